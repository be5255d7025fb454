"""Schedules: put, listed, shown, paused, resumed, removed."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from relaymesh.errors import InvalidPlan, InvalidValue
from relaymesh.kernel.bounds import ADDRESS_LENGTH_MAX, TEXT_LENGTH_MAX
from relaymesh.kernel.envelope import TTL_MS_DEFAULT, Envelope
from relaymesh.kernel.schedules.commands import CRON_LENGTH_MAX, TZ_LENGTH_MAX
from relaymesh.kernel.schedules.schedule import Missed, ScheduleView, Work
from relaymesh.wire.api.base import Address, Answer, Content, Name, Request, Time
from relaymesh.wire.envelope import iso, parse_priority, parse_ttl

SCHEDULES_PAGE_MAX = 1_000
"""Schedules in one answer."""

ScheduleName = Annotated[
    str, Meta(description="Letters, digits, `_`, `-` and `.`.", min_length=1, max_length=128)
]
CronLine = Annotated[
    str,
    Meta(
        description="Five fields: minute, hour, day of month, month, day of week.",
        min_length=1,
        max_length=CRON_LENGTH_MAX,
        examples=["0 7 * * *"],
    ),
]
Zone = Annotated[
    str,
    Meta(
        description="A time zone of the IANA database.",
        min_length=1,
        max_length=TZ_LENGTH_MAX,
        examples=["Europe/Berlin"],
    ),
]
Scheduled = Annotated[
    msgspec.Raw,
    Meta(
        description="The workflow of each run: a document, or the name of a stored one."
        " Without a version the one put last is looked up at each tick.",
        extra_json_schema={"type": ["object", "string"]},
    ),
]


class ScheduledMessage(Request, frozen=True):
    """The message of each tick."""

    to: Name
    content: Content | UnsetType = UNSET
    type: str = "message"
    priority: int | str | None = None
    ttl: Annotated[float, Meta(description="Seconds.")] | None = None
    key: Annotated[str, Meta(min_length=1, max_length=TEXT_LENGTH_MAX)] | None = None


class PutScheduleRequest(Request, frozen=True):
    """Keep a schedule: it runs a workflow, or sends a message, at every tick."""

    name: ScheduleName
    cron: CronLine
    tz: Zone = "UTC"
    workflow: Scheduled | UnsetType = UNSET
    input: Content | UnsetType = UNSET
    message: ScheduledMessage | None = None
    missed: Annotated[
        Missed, Meta(description="Ticks that passed while the mesh was down: one run for all, or none.")
    ] = "one"
    replace: Annotated[bool, Meta(description="Put other fields under a name that is taken.")] = False
    owner: Annotated[Name, Meta(description="The agent that pays for it and for its runs.")] | None = None


class SchedulesQuery(Request, frozen=True):
    """The query of `GET /v1/schedules`."""

    namespace: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    limit: Annotated[int, Meta(description="At most so many.", ge=1, le=SCHEDULES_PAGE_MAX)] = 100
    cursor: Annotated[
        str, Meta(description="`cursor` of the page before.", max_length=ADDRESS_LENGTH_MAX)
    ] = ""


class ScheduleSummaryBody(Answer, frozen=True):
    """A schedule, without its document, its input and its content."""

    name: str
    namespace: str
    cron: str
    tz: str
    missed: Missed
    paused: bool
    owner: Address
    next_at: Annotated[Time | None, Meta(description="Its next tick; null while it is paused.")]
    workflow: str | None
    to: Address | None
    runs: int
    skipped: Annotated[int, Meta(description="Ticks that have passed without a run of their own.")]
    last_tick_at: Time | None
    last_run: Annotated[str | None, Meta(description="The task or the message of the last run.")]
    last_run_at: Time | None
    waiting: Annotated[str | None, Meta(description="Why the tick that is due could not run yet.")]
    tries: int
    retry_at: Time | None
    reason: Annotated[str | None, Meta(description="Why the last ticks without a run had none.")]
    created_at: Time
    sequence: Annotated[int, Meta(description="Of the event that set it.")]
    duplicate: Annotated[bool, Meta(description="Of a put: it was there already.")] = False


class ScheduleBody(ScheduleSummaryBody, frozen=True, kw_only=True):
    """A schedule with its work."""

    document: Content | UnsetType = UNSET
    input: Content | UnsetType = UNSET
    message: ScheduledMessage | None = None


class SchedulesAnswer(Answer, frozen=True):
    """Schedules by name. `cursor`: names the next page; null: there is none."""

    schedules: list[ScheduleSummaryBody]
    cursor: str | None = None


class ScheduleRemovedAnswer(Answer, frozen=True):
    """Whether there was such a schedule."""

    removed: bool


def schedule_summary(view: ScheduleView) -> ScheduleSummaryBody:
    return ScheduleSummaryBody(**_fields(view))


def schedule_body(view: ScheduleView, *, duplicate: bool = False) -> ScheduleBody:
    work = view.schedule.work
    message = work.message
    return ScheduleBody(
        **_fields(view),
        duplicate=duplicate,
        document=msgspec.Raw(work.document) if work.document else UNSET,
        input=msgspec.Raw(work.input) if work.workflow else UNSET,
        message=None if message is None else scheduled_message(work.to, message),
    )


def scheduled_message(to: str, message: Envelope) -> ScheduledMessage:
    return ScheduledMessage(
        to=to,
        content=msgspec.Raw(message.content),
        type=message.type,
        priority=message.priority,
        ttl=message.ttl_ms / 1000,
        key=message.key,
    )


def envelope_of(message: ScheduledMessage, sender: str) -> Envelope:
    """The message of each tick, without an id. Its content is kept byte for byte."""
    return Envelope(
        "",
        sender,
        b"null" if message.content is UNSET else bytes(message.content),
        type=message.type,
        priority=parse_priority(message.priority, message.type),
        ttl_ms=TTL_MS_DEFAULT if message.ttl is None else parse_ttl(message.ttl),
        key=message.key,
    )


def work_from(
    workflow: bytes | None, input: bytes | None, message: ScheduledMessage | None, sender: str = ""
) -> Work:
    """What a request wants a tick to begin. The node checks the rest."""
    if message is not None:
        if workflow is not None or input is not None:
            raise InvalidValue(
                "a schedule runs a workflow or sends a message: exactly one of the two",
                hint="leave workflow and input out, or message",
            )
        return Work(to=message.to, message=envelope_of(message, sender))
    given = b"null" if input is None else input
    if workflow is None or not workflow.lstrip(b" \t\r\n").startswith(b'"'):
        return Work(document=workflow or b"", input=given)
    try:
        return Work(msgspec.json.decode(workflow, type=str), input=given)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidPlan(f"the name of the workflow is no JSON: {error}") from None


def _fields(view: ScheduleView) -> dict[str, Any]:
    kept, refusal = view.schedule, view.refusal
    return {
        "name": kept.name,
        "namespace": kept.namespace,
        "cron": kept.cron,
        "tz": kept.tz,
        "missed": kept.missed,
        "paused": kept.paused,
        "owner": kept.owner,
        "next_at": None if kept.paused else iso(kept.next_at),
        "workflow": kept.work.workflow or None,
        "to": kept.work.to or None,
        "runs": kept.runs,
        "skipped": kept.skipped,
        "last_tick_at": iso(kept.last_tick_at) if kept.last_run else None,
        "last_run": kept.last_run or None,
        "last_run_at": iso(kept.last_run_at) if kept.last_run else None,
        "waiting": None if refusal is None else refusal.reason,
        "tries": 0 if refusal is None else refusal.tries,
        "retry_at": None if refusal is None else iso(refusal.retry_at),
        "reason": kept.reason or None,
        "created_at": iso(kept.at),
        "sequence": kept.sequence,
    }
