"""Tasks over plain HTTP: what `HttpSession` asks about them, and how their steps are settled."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

import msgspec
from msgspec import UNSET, Raw

from relaymesh.client.messages import ms_of
from relaymesh.client.problem import error_of
from relaymesh.client.remote import RemoteSession, lost
from relaymesh.client.tasks import shown_of, view_of
from relaymesh.errors import NotFound
from relaymesh.kernel.request import Request
from relaymesh.kernel.tasks.commands import (
    Abandon,
    Answer,
    Cancel,
    Fail,
    Finish,
    Report,
    SetBudget,
    Signal,
    Submitted,
)
from relaymesh.kernel.tasks.status import Status
from relaymesh.kernel.tasks.views import TaskShown, TaskView
from relaymesh.kernel.token import format_token, parse_token
from relaymesh.wire import api
from relaymesh.wire.api.settling import usage_body
from relaymesh.wire.api.tasks import TASKS_MAX
from relaymesh.wire.tasks import (
    FindTask,
    FindTasks,
    GrowStep,
    RerunTask,
    SubmitTask,
    TaskEvent,
    TaskStory,
    TellTask,
    WatchTask,
)
from relaymesh.wire.usage import dollars_of

__all__ = ["OF_TASKS", "POLL_MS_MAX", "HttpTasks", "raise_refused", "texts_of", "token_in"]

POLL_MS_MAX = 30_000


class HttpTasks(RemoteSession):
    """Requests about tasks. `HttpSession` sends them."""

    if TYPE_CHECKING:

        async def _ask(
            self, method: str, path: str, body: Any, answer: Any, *, wait_s: float = 0.0, **query: Any
        ) -> tuple[Any, bool]: ...

        async def _get(self, path: str, answer: Any, **query: Any) -> Any: ...

        async def _post(self, path: str, body: Any, answer: Any) -> Any: ...

        async def _settle(self, request: api.SettleRequest) -> tuple[list[api.SettledBody], bool]: ...

    async def _end_step(self, command: Finish | Fail | GrowStep, **_: Any) -> Status:
        token = format_token(command.token)
        if isinstance(command, Finish):
            done = api.FinishBody(token=token, result=Raw(command.output), usage=usage_body(command.usage))
            request = api.SettleRequest(finishes=[done])
        elif isinstance(command, GrowStep):
            grown = api.GrowBody(token=token, steps=Raw(command.document), usage=usage_body(command.usage))
            request = api.SettleRequest(grows=[grown])
        else:
            failed = api.FailBody(
                token=token, code=command.code, reason=command.reason, usage=usage_body(command.usage)
            )
            request = api.SettleRequest(fails=[failed])
        results, repeated = await self._settle(request)
        result = results[0]
        if result.outcome == "lease_lost" and (not repeated or await self._really_stale([command.token])):
            self._held.drop([command.token])
            raise lost(command.token)
        raise_refused(result)
        self._held.drop([command.token])
        return "RUNNING" if result.status is UNSET else result.status

    async def _report(self, command: Report, **_: Any) -> None:
        body = api.ReportBody(
            token=format_token(command.token), progress=command.progress, usage=usage_body(command.usage)
        )
        results, _repeated = await self._settle(api.SettleRequest(reports=[body]))
        if results[0].outcome == "lease_lost":
            raise lost(command.token)
        raise_refused(results[0])

    async def _abandon(self, command: Abandon, **_: Any) -> list[int]:
        tokens = list(dict.fromkeys(command.tokens))
        if not tokens:
            return []
        bodies = [api.AbandonBody(token=text, reason=command.reason) for text in texts_of(tokens)]
        results, _repeated = await self._settle(api.SettleRequest(abandons=bodies))
        self._held.drop(tokens)
        return [token_in(each.token) for each in results if each.outcome in ("lease_lost", "refused")]

    async def _submit(self, request: SubmitTask, **_: Any) -> Submitted:
        body = api.SubmitRequest(
            workflow=Raw(request.document),
            input=Raw(request.input),
            key=request.key,
            again=request.again,
            owner=request.owner,
            trace=request.trace,
            reply_to=request.reply_to or None,
            notify=cast("Any", list(request.notify)),
        )
        answer, repeated = await self._ask("POST", "/v1/tasks", body, api.SubmittedAnswer)
        return Submitted(answer.task, answer.duplicate and not repeated, answer.status)

    async def _find_task(self, request: FindTask | WatchTask, **_: Any) -> TaskShown | None:
        wait_s = min(POLL_MS_MAX / 1000, request.wait_s) if isinstance(request, WatchTask) else 0.0
        asked: dict[str, Any] = {}
        if isinstance(request, WatchTask) and wait_s:
            asked = {"wait": wait_s, "seen": request.seen}
        try:
            body, _again = await self._ask(
                "GET", _task(request.task), None, api.TaskBody, wait_s=wait_s, **asked
            )
        except NotFound:
            return None
        return shown_of(body)

    async def _tell_task(self, request: TellTask, **_: Any) -> TaskStory | None:
        try:
            body: api.TaskStoryAnswer = await self._get(_task(request.task) + "/story", api.TaskStoryAnswer)
        except NotFound:
            return None
        events = [TaskEvent(**msgspec.structs.asdict(each) | {"at": ms_of(each.at)}) for each in body.events]
        return TaskStory(body.task, events, body.complete)

    async def _tasks(self, request: FindTasks, **_: Any) -> list[TaskView]:
        found: list[TaskView] = []
        wanted = {"namespace": request.namespace, "status": request.status, "workflow": request.workflow}
        asked: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
        cursor = request.before
        while len(found) < request.limit:
            if cursor is not None:
                asked["cursor"] = cursor
            asked["limit"] = min(TASKS_MAX, request.limit - len(found))
            answer = await self._get("/v1/tasks", api.TasksAnswer, **asked)
            found += [view_of(body) for body in answer.tasks]
            cursor = answer.cursor
            if cursor is None:
                break
        return found

    async def _rerun(self, request: RerunTask, **_: Any) -> Submitted:
        body = api.RerunRequest(
            from_step=request.from_step,
            input=UNSET if request.input is None else Raw(request.input),
            owner=request.owner,
        )
        answer, repeated = await self._ask("POST", _task(request.task) + "/rerun", body, api.SubmittedAnswer)
        return Submitted(answer.task, answer.duplicate and not repeated, answer.status)

    async def _answer(self, command: Answer, **_: Any) -> Status:
        body = api.AnswerRequest(value=Raw(command.value), from_=command.by)
        path = f"{_task(command.task)}/steps/{quote(command.step, safe='')}/answer"
        answer: api.TaskStatusAnswer = await self._post(path, body, api.TaskStatusAnswer)
        return answer.status

    async def _signal(self, command: Signal, **_: Any) -> bool:
        body = api.SignalRequest(name=command.name, value=Raw(command.value), id=command.id)
        path = _task(command.task) + "/signals"
        answer, repeated = await self._ask("POST", path, body, api.SignalledAnswer)
        return bool(answer.duplicate) and not repeated

    async def _set_budget(self, command: SetBudget, **_: Any) -> Status:
        micros = command.cost_micros
        body = api.BudgetRequest(
            cost_usd=None if micros is None else dollars_of(micros), tokens=command.tokens
        )
        path = _task(command.task) + "/budget"
        answer: api.TaskStatusAnswer = await self._post(path, body, api.TaskStatusAnswer)
        return answer.status

    async def _cancel(self, command: Cancel, **_: Any) -> Status:
        body = api.CancelRequest(reason=command.reason, hard=command.hard)
        answer: api.TaskStatusAnswer = await self._post(
            _task(command.task) + "/cancel", body, api.TaskStatusAnswer
        )
        return answer.status


OF_TASKS: dict[type[Request[Any]], Callable[..., Any]] = {
    SubmitTask: HttpTasks._submit,
    FindTask: HttpTasks._find_task,
    WatchTask: HttpTasks._find_task,
    FindTasks: HttpTasks._tasks,
    TellTask: HttpTasks._tell_task,
    Cancel: HttpTasks._cancel,
    Answer: HttpTasks._answer,
    Signal: HttpTasks._signal,
    SetBudget: HttpTasks._set_budget,
    RerunTask: HttpTasks._rerun,
    Finish: HttpTasks._end_step,
    GrowStep: HttpTasks._end_step,
    Fail: HttpTasks._end_step,
    Report: HttpTasks._report,
    Abandon: HttpTasks._abandon,
}
"""Each request about tasks and their steps, and its route."""


def raise_refused(result: api.SettledBody) -> None:
    if result.outcome == "refused":
        raise error_of(str(result.code), str(result.detail), "" if result.hint is UNSET else result.hint)


def texts_of(tokens: Any) -> list[str]:
    return [format_token(token) for token in tokens]


def token_in(text: str) -> int:
    token = parse_token(text)
    assert token is not None, "the answer's type has checked its form"
    return token


def _task(id: str) -> str:
    return f"/v1/tasks/{quote(id, safe='')}"
