"""Schedules: what a caller passes, and what the SDK returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from relaymesh.errors import InvalidEnvelope, InvalidValue
from relaymesh.kernel.address import name_of
from relaymesh.kernel.envelope import Encoding, Envelope
from relaymesh.kernel.schedules.commands import ScheduleStored
from relaymesh.kernel.schedules.schedule import Missed, ScheduleView, Work
from relaymesh.kernel.schedules.schedules import missing
from relaymesh.plans.builder import Workflow
from relaymesh.plans.naming import split_name
from relaymesh.sdk.submission import json_of, whole_of
from relaymesh.wire.envelope import build_envelope, when

__all__ = ["Schedule", "found_schedule", "message_of", "put_of", "schedule_of", "work_of"]

FIELDS = ("type", "priority", "ttl", "key")
"""Fields of `send` that the message of a schedule may have."""


@dataclass(frozen=True)
class Schedule:
    """A schedule: what it runs, its next tick, and the results of its last ticks."""

    name: str
    cron: str
    tz: str
    missed: Missed
    paused: bool
    owner: str
    next_at: datetime | None
    """Its next tick; None while it is paused. A tick that waits is in the past."""
    workflow: str | None
    """The workflow that it runs; a stored one as `release` or `release@3`; None: it sends a message."""
    document: Mapping[str, Any] | None
    """The workflow itself, if it was given whole; None in lists."""
    input: Any
    """None in lists."""
    to: str | None
    """The agent that it sends to; None: it runs a workflow."""
    content: Any
    """None in lists."""
    runs: int
    skipped: int
    """Ticks that passed without their own run."""
    last_tick: datetime | None
    last_run: str | None
    """The task or the message of the last run."""
    last_run_at: datetime | None
    waiting: str | None
    """Why the tick that is due could not run yet; None: no tick waits."""
    tries: int
    """How often the due tick was tried."""
    reason: str | None
    """Why the last skipped ticks had no run; None after the next run."""
    created_at: datetime
    duplicate: bool
    """It existed before, with the same fields."""


def schedule_of(view: ScheduleView, *, duplicate: bool = False) -> Schedule:
    kept, refusal, work = view.schedule, view.refusal, view.schedule.work
    message = work.message
    return Schedule(
        kept.name,
        kept.cron,
        kept.tz,
        kept.missed,
        kept.paused,
        name_of(kept.owner),
        None if kept.paused else when(kept.next_at),
        work.workflow or None,
        msgspec.json.decode(work.document) if work.document else None,
        msgspec.json.decode(work.input) if work.workflow and work.input else None,
        name_of(work.to) if work.to else None,
        None if message is None else msgspec.json.decode(message.content),
        kept.runs,
        kept.skipped,
        when(kept.last_tick_at) if kept.last_run else None,
        kept.last_run or None,
        when(kept.last_run_at) if kept.last_run else None,
        None if refusal is None else refusal.reason,
        0 if refusal is None else refusal.tries,
        kept.reason or None,
        when(kept.at),
        duplicate,
    )


def put_of(stored: ScheduleStored) -> Schedule:
    return schedule_of(stored.schedule, duplicate=stored.duplicate)


def found_schedule(view: ScheduleView | None, name: str) -> Schedule:
    """Raises `NotFound` if there is none."""
    if view is None:
        raise missing(name)
    return schedule_of(view)


def work_of(
    workflow: Workflow | Mapping[str, Any] | str | None, input: Any, to: str | None, message: Envelope | None
) -> Work:
    """What a tick starts: a run of a workflow, or a message."""
    if (workflow is None) == (to is None):
        raise InvalidValue(
            "a schedule runs a workflow or sends a message: exactly one of the two",
            hint="give workflow= with input=, or to= with content=",
        )
    if to is not None:
        if input is not None:
            raise InvalidValue("a message has a content, not an input", hint="give it as content=")
        return Work(to=to, message=message)
    if isinstance(workflow, str):
        name, version = split_name(workflow)
        return Work(f"{name}@{version}" if version else name, input=json_of(input))
    assert workflow is not None
    return Work(document=whole_of(workflow), input=json_of(input))


def message_of(
    sender: str, to: str | None, content: Any, fields: Mapping[str, Any], limit: int
) -> Envelope | None:
    """The message of each tick, without an id; None: the schedule runs a workflow."""
    if to is None:
        if content is not None or fields:
            given = "content" if content is not None else min(fields)
            raise InvalidValue(
                f"{given} belongs to a message, and there is no recipient",
                hint="give to=, or leave it out",
            )
        return None
    unknown = fields.keys() - set(FIELDS)
    if unknown:
        raise InvalidEnvelope(
            f"the message of a schedule has no field {min(map(str, unknown))!r}",
            hint=f"fields are {', '.join(FIELDS)}",
        )
    envelope = build_envelope(sender, content, id="schedule", limit=limit, **fields)
    if envelope.encoding != Encoding.JSON:
        raise InvalidEnvelope("the content of a schedule must be a JSON value, not bytes")
    return msgspec.structs.replace(envelope, id="")
