"""Retention over plain HTTP: the preview of a purge, the purge, and the report of dead letters."""

from __future__ import annotations

from typing import Any

import msgspec

from relaymesh.client.http_workflows import HttpWorkflows
from relaymesh.client.messages import ms_of
from relaymesh.errors import NotFound
from relaymesh.kernel.moment import iso
from relaymesh.wire import api
from relaymesh.wire.letter_report import FindReport, LetterReport
from relaymesh.wire.retention import PreviewPurge, Purge, PurgeCounts, PurgePart, PurgePreview, PurgeRow

__all__ = ["HttpRetention"]


class HttpRetention(HttpWorkflows):
    """Requests about what is old. `HttpSession` sends them."""

    async def _preview_purge(self, request: PreviewPurge, **_: Any) -> PurgePreview:
        fields = {name: getattr(request, name) for name in ("done_ms", "dead_ms", "mailbox")}
        asked = {name: value for name, value in fields.items() if value is not None}
        if request.including_steps:
            asked["including_steps"] = "true"
        found = await self._get("/v1/purge", api.PurgePreviewAnswer, **asked)
        return PurgePreview(
            [
                PurgeRow(row.kind, row.mailbox, row.count, row.bytes, ms_of(row.oldest), ms_of(row.newest))
                for row in found.rows
            ],
            _ms(found.done_before),
            _ms(found.dead_before),
            found.waiting_letters,
            found.waiting_tasks,
        )

    async def _purge_old(self, request: Purge, **_: Any) -> PurgePart:
        body = api.PurgeOldRequest(
            reason=request.reason,
            done_before=_text(request.done_before),
            dead_before=_text(request.dead_before),
            mailbox=request.mailbox,
            including_steps=request.including_steps,
            after=request.after,
        )
        answer = await self._post("/v1/purge", body, api.PurgeOldAnswer)
        counts = PurgeCounts(*[getattr(answer, name) for name in PurgeCounts.__struct_fields__])
        return PurgePart(counts, answer.after, answer.more)

    async def _find_report(self, request: FindReport, **_: Any) -> LetterReport | None:
        asked = {} if request.day is None else {"day": request.day}
        try:
            answer = await self._get("/v1/dead-letters/report", api.LetterReportAnswer, **asked)
        except NotFound:
            return None
        return msgspec.convert(answer, LetterReport, from_attributes=True)


def _ms(text: str | None) -> int | None:
    return None if text is None else ms_of(text)


def _text(ms: int | None) -> str | None:
    return None if ms is None else iso(ms)
