"""Retention: what is old, and removing it; the daily report of dead letters."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from relaymesh.errors import InvalidEnvelope, NotFound
from relaymesh.kernel.moment import iso
from relaymesh.server.exchange import Exchange
from relaymesh.server.purging import find_report, preview_purge, purge_old
from relaymesh.server.security.trail import trail_of
from relaymesh.wire.api import (
    LetterReportAnswer,
    PurgeOldAnswer,
    PurgeOldRequest,
    PurgePreviewAnswer,
    PurgePreviewQuery,
    PurgeRowBody,
    ReportQuery,
)
from relaymesh.wire.letter_report import FindReport
from relaymesh.wire.retention import PreviewPurge, Purge

PATH = "/v1/purge"
PREVIEW = {
    "done_ms": "doneMs",
    "dead_ms": "deadMs",
    "mailbox": "mailbox",
    "including_steps": "includingSteps",
}


async def preview(exchange: Exchange) -> PurgePreviewAnswer:
    """Count what is older than these ages, or than the node's own retention. It changes nothing."""
    exchange.principal.require_everywhere()
    query = exchange.query_into(PurgePreviewQuery, PREVIEW)
    asked = PreviewPurge(query.done_ms, query.dead_ms, query.mailbox, query.including_steps)
    async with exchange.account.long_work:
        found = await preview_purge(exchange.served, exchange.principal, asked)
    return PurgePreviewAnswer(
        rows=[
            PurgeRowBody(
                kind=row.kind,
                mailbox=row.mailbox,
                count=row.count,
                bytes=row.bytes,
                oldest=iso(row.oldest),
                newest=iso(row.newest),
            )
            for row in found.rows
        ],
        done_before=_text(found.done_before),
        dead_before=_text(found.dead_before),
        waiting_letters=found.waiting_letters,
        waiting_tasks=found.waiting_tasks,
    )


async def purge(exchange: Exchange) -> PurgeOldAnswer:
    """Remove messages and tasks that were done, and letters that died, before these times. It works for
    about a second: repeat the request while `more` is true."""
    exchange.principal.require_everywhere()
    body = await exchange.decode(PurgeOldRequest)
    asked = Purge(
        body.reason,
        _moment(body.done_before, "doneBefore"),
        _moment(body.dead_before, "deadBefore"),
        body.mailbox,
        body.including_steps,
        body.after,
    )
    async with exchange.account.long_work:
        part = await purge_old(exchange.served, exchange.principal, trail_of(exchange.scope), PATH, asked)
    return PurgeOldAnswer(after=part.after, more=part.more, **msgspec.structs.asdict(part.counts))


async def report(exchange: Exchange) -> LetterReportAnswer:
    """The report of dead letters of a day, or the newest: by mailbox and reason, with the number of new
    ones."""
    exchange.principal.require("read")
    query = exchange.query_into(ReportQuery, {"day": "day"})
    found = await find_report(exchange.served, exchange.principal, FindReport(query.day))
    if found is None:
        raise NotFound(
            "there is no report of dead letters" + (f" of {query.day}" if query.day else ""),
            hint="the node writes one at its start and at midnight UTC",
        )
    return msgspec.convert(found, LetterReportAnswer, from_attributes=True)


def _text(ms: int | None) -> str | None:
    return None if ms is None else iso(ms)


def _moment(text: str | None, field: str) -> int | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return max(0, round(moment.timestamp() * 1000))
    except (ValueError, OverflowError):
        raise InvalidEnvelope(f"{field} is not an ISO 8601 time: {text[:80]!r}") from None
