"""Retention: a preview of a purge, the purge, and the daily report of dead letters."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from relaymesh.wire.api.base import Address, Answer, Request, Time
from relaymesh.wire.retention import AGE_MS_MAX, DONE_PASSED, REASON_LENGTH_MAX

Age = Annotated[int, Meta(ge=0, le=AGE_MS_MAX)]
Box = Annotated[str, Meta(description="Full address: only of this mailbox.", min_length=1, max_length=512)]


class PurgePreviewQuery(Request, frozen=True):
    """The query of `GET /v1/purge`."""

    done_ms: Age | None = None
    dead_ms: Age | None = None
    mailbox: Box | None = None
    including_steps: bool = False


class PurgeRowBody(Answer, frozen=True):
    """What goes, of one kind and one mailbox."""

    kind: Annotated[str, Meta(description="messages, ids, tasks, steps, keys or dead_letters.")]
    mailbox: Annotated[str | None, Meta(description="An address, or the target of ids; null for tasks.")]
    count: int
    bytes: Annotated[int, Meta(description="About so many, for what is in the store's tables.")]
    oldest: Time
    newest: Time


class PurgePreviewAnswer(Answer, frozen=True):
    """What a purge would remove. A time that is null was not asked for."""

    rows: list[PurgeRowBody]
    done_before: Time | None
    dead_before: Time | None
    waiting_letters: Annotated[int, Meta(description="Old dead letters of steps that wait for a decision.")]
    waiting_tasks: Annotated[int, Meta(description="Tasks that would fail if those letters went.")]


class PurgeOldRequest(Request, frozen=True):
    """Remove what is older than these times. The reason is kept in the audit log."""

    reason: Annotated[str, Meta(description="Why.", min_length=1, max_length=REASON_LENGTH_MAX)]
    done_before: Annotated[str, Meta(description="ISO 8601: done before.")] | None = None
    dead_before: Annotated[str, Meta(description="ISO 8601: died before.")] | None = None
    mailbox: Box | None = None
    including_steps: Annotated[
        bool, Meta(description="Also dead letters that steps wait for: the steps fail.")
    ] = False
    after: Annotated[
        int, Meta(description="0 at first, then what the answer says.", ge=0, le=DONE_PASSED)
    ] = 0


class PurgeOldAnswer(Answer, frozen=True):
    """What this request removed. While `more`, ask again with this `after`."""

    messages: int
    ids: int
    tasks: int
    steps: int
    keys: int
    dead_letters: int
    after: int
    more: bool


class ReportQuery(Request, frozen=True):
    """The query of `GET /v1/dead-letters/report`."""

    day: str | None = None


class ReportGroupBody(Answer, frozen=True):
    """Dead letters of one mailbox that died for one reason."""

    mailbox: Address
    reason: str
    count: int
    new: Annotated[int, Meta(description="Died since the report before.")]
    bytes: int
    oldest: Time
    newest: Time
    examples: Annotated[list[str], Meta(description="Ids of some of these messages, the oldest first.")]
    look: Annotated[str, Meta(description="The command that lists them.")]


class LetterReportAnswer(Answer, frozen=True):
    """Dead letters that waited for a decision when the report was written."""

    day: Annotated[str, Meta(description="YYYY-MM-DD, UTC.")]
    at: Time
    total: int
    new: int
    groups: list[ReportGroupBody]
    through: Annotated[int, Meta(description="The sequence that this report reached.")]
    since: Annotated[str | None, Meta(description="Day of the report before; null for the first.")]
