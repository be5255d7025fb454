"""Schedules over plain HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import UNSET, Raw

from relaymesh.client.http_workflows import HttpWorkflows
from relaymesh.client.messages import ms_of
from relaymesh.errors import NotFound
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.query import ListSchedules, ShowSchedule
from relaymesh.kernel.request import Request
from relaymesh.kernel.schedules.commands import RemoveSchedule, ScheduleStored
from relaymesh.kernel.schedules.schedule import Refusal, Schedule, ScheduleView, Work
from relaymesh.wire import api
from relaymesh.wire.api.schedules import SCHEDULES_PAGE_MAX
from relaymesh.wire.schedules import HoldSchedule, PutSchedule

__all__ = ["OF_SCHEDULES", "HttpSchedules"]


class HttpSchedules(HttpWorkflows):
    """Requests about schedules. `HttpSession` sends them."""

    async def _put_schedule(self, request: PutSchedule, **_: Any) -> ScheduleStored:
        work, message = request.work, request.work.message
        workflow = work.document or (msgspec.json.encode(work.workflow) if work.workflow else b"")
        body = api.PutScheduleRequest(
            name=request.name,
            cron=request.cron,
            tz=request.tz,
            workflow=Raw(workflow) if workflow else UNSET,
            input=Raw(work.input) if workflow else UNSET,
            message=None if message is None else api.scheduled_message(work.to, message),
            missed=request.missed,
            replace=request.replace,
            owner=request.owner,
        )
        answer, repeated = await self._ask("POST", "/v1/schedules", body, api.ScheduleBody)
        return ScheduleStored(_view_of(answer), answer.duplicate and not repeated)

    async def _find_schedule(self, query: ShowSchedule, **_: Any) -> ScheduleView | None:
        try:
            return _view_of(await self._get(_schedule(query.name, query.namespace), api.ScheduleBody))
        except NotFound:
            return None

    async def _schedules(self, query: ListSchedules, **_: Any) -> list[ScheduleView]:
        found: list[ScheduleView] = []
        asked: dict[str, Any] = {} if query.namespace is None else {"namespace": query.namespace}
        if query.after:
            asked["cursor"] = query.after
        while len(found) < query.limit:
            asked["limit"] = min(SCHEDULES_PAGE_MAX, query.limit - len(found))
            answer = await self._get("/v1/schedules", api.SchedulesAnswer, **asked)
            found += [_view_of(body) for body in answer.schedules]
            if answer.cursor is None:
                break
            asked["cursor"] = answer.cursor
        return found

    async def _hold_schedule(self, request: HoldSchedule, **_: Any) -> ScheduleView:
        what = "pause" if request.paused else "resume"
        path = f"{_schedule(request.name, request.namespace)}/{what}"
        answer, _repeated = await self._ask("POST", path, None, api.ScheduleBody)
        return _view_of(answer)

    async def _remove_schedule(self, command: RemoveSchedule, **_: Any) -> bool:
        path = _schedule(command.name, command.namespace)
        answer, repeated = await self._ask("DELETE", path, None, api.ScheduleRemovedAnswer)
        removed: bool = answer.removed or repeated
        return removed


OF_SCHEDULES: dict[type[Request[Any]], Callable[..., Any]] = {
    PutSchedule: HttpSchedules._put_schedule,
    ShowSchedule: HttpSchedules._find_schedule,
    ListSchedules: HttpSchedules._schedules,
    HoldSchedule: HttpSchedules._hold_schedule,
    RemoveSchedule: HttpSchedules._remove_schedule,
}
"""Each request about schedules, and its route."""


def _view_of(body: api.ScheduleSummaryBody) -> ScheduleView:
    refusal = None
    if body.waiting is not None:
        retry_at = _ms(body.retry_at)
        refusal = Refusal(_ms(body.next_at), retry_at, body.tries, body.waiting, retry_at)
    return ScheduleView(
        Schedule(
            body.namespace,
            body.name,
            body.cron,
            body.tz,
            body.missed,
            _work_of(body),
            body.owner,
            0,
            _ms(body.next_at),
            ms_of(body.created_at),
            body.sequence,
            body.paused,
            body.runs,
            body.skipped,
            _ms(body.last_tick_at),
            body.last_run or "",
            _ms(body.last_run_at),
            body.reason or "",
        ),
        refusal,
    )


def _work_of(body: api.ScheduleSummaryBody) -> Work:
    """Of a summary without document, input and message."""
    document = given = b""
    message: Envelope | None = None
    if isinstance(body, api.ScheduleBody):
        document = b"" if body.document is UNSET else bytes(body.document)
        given = b"" if body.input is UNSET else bytes(body.input)
        if body.message is not None:
            message = api.envelope_of(body.message, body.owner)
    return Work(body.workflow or "", document, given, body.to or "", message)


def _ms(moment: str | None) -> int:
    return 0 if moment is None else ms_of(moment)


def _schedule(name: str, namespace: str) -> str:
    return f"/v1/schedules/{quote(f'{namespace}/{name}', safe='/')}"
