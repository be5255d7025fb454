"""Commands about schedules, and the values that they result in. They check themselves, like all commands."""

from __future__ import annotations

import re
from typing import Any, get_args

import msgspec

from relaymesh.errors import InvalidValue, PayloadTooLarge
from relaymesh.kernel.bounds import (
    ADDRESS_LENGTH_MAX,
    BYTES_MAX,
    COUNT_MAX,
    MOMENT_MS_MAX,
    flag,
    one_of,
    plain_text,
    shown,
    sound,
    text,
    whole,
)
from relaymesh.kernel.commands import Send
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.failure_text import cut_reason
from relaymesh.kernel.request import Command
from relaymesh.kernel.schedules.schedule import Missed, ScheduleView, Work
from relaymesh.kernel.tasks.commands import TASK_INPUT_MAX, VERSION_LENGTH_MAX, Submit
from relaymesh.kernel.tasks.plan import NAME_LENGTH_MAX, PLAN_BYTES_MAX

CRON_LENGTH_MAX = 128
TZ_LENGTH_MAX = 64
WORKFLOW_LENGTH_MAX = NAME_LENGTH_MAX + 1 + VERSION_LENGTH_MAX
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


class ScheduleStored(msgspec.Struct, frozen=True, gc=False):
    """What a put of a schedule gets, and whether it was there with the same fields."""

    schedule: ScheduleView
    duplicate: bool = False


class SetSchedule(Command[ScheduleStored]):
    """Keep a schedule. Its namespace is that of `owner`. `next_at`: its first tick.

    Without `replace`, other fields under a name that is taken are a `Conflict`.
    """

    name: str
    cron: str
    tz: str
    work: Work
    owner: str
    next_at: int
    missed: Missed = "one"
    replace: bool = False
    budget: int = 0

    def __post_init__(self) -> None:
        self.name = schedule_name(self.name)
        self.cron = cron_text(self.cron)
        self.tz = text(self.tz, "tz", 1, TZ_LENGTH_MAX)
        self.work = _checked_work(self.work)
        self.owner = text(self.owner, "owner", 1, ADDRESS_LENGTH_MAX)
        self.next_at = whole(self.next_at, "next_at", 0, MOMENT_MS_MAX)
        one_of(self.missed, "missed", get_args(Missed))
        flag(self.replace, "replace")
        self.budget = whole(self.budget, "budget", 0, BYTES_MAX)


class RemoveSchedule(Command[bool]):
    """Remove a schedule. What it began goes on. Returns whether there was one."""

    namespace: str
    name: str
    by: str = ""

    def __post_init__(self) -> None:
        self.namespace = text(self.namespace, "namespace", 1, ADDRESS_LENGTH_MAX)
        self.name = schedule_name(self.name)
        self.by = text(self.by, "by", 0, ADDRESS_LENGTH_MAX)


class PauseSchedule(Command[ScheduleView]):
    """Pause a schedule, or let it go on with the tick at `next_at`. Ticks while it is paused are not missed.

    `sequence`: of the `ScheduleSet` for which `next_at` was worked out.
    """

    namespace: str
    name: str
    paused: bool
    next_at: int = 0
    sequence: int = 0
    by: str = ""

    def __post_init__(self) -> None:
        self.namespace = text(self.namespace, "namespace", 1, ADDRESS_LENGTH_MAX)
        self.name = schedule_name(self.name)
        flag(self.paused, "paused")
        self.next_at = whole(self.next_at, "next_at", 0, MOMENT_MS_MAX)
        self.sequence = whole(self.sequence, "sequence", 0, 1 << 62)
        self.by = text(self.by, "by", 0, ADDRESS_LENGTH_MAX)


class Fired(msgspec.Struct, frozen=True, gc=False):
    """What became of a tick: a run, a skip, or why it waits. All empty: it was not due any more."""

    run: str = ""
    skipped: bool = False
    blocked: str = ""


class FireSchedule(Command[Fired]):
    """Run the tick at `tick_at`, the last one that is due. `next_at`: the tick behind it.

    `due_at`: the tick that the schedule waits for. `passed`: how many from it on get no run, because
    `tick_at` has overtaken them.

    `work`: the task or the message, made for this tick; None: it could not be made, and `obstacle` says why.
    `next_at` is 0 if the calendar itself cannot be read: its time zone is gone.
    """

    namespace: str
    name: str
    sequence: int
    due_at: int
    tick_at: int
    next_at: int
    passed: int = 0
    work: Submit | Send | None = None
    obstacle: str = ""

    def __post_init__(self) -> None:
        self.namespace = text(self.namespace, "namespace", 1, ADDRESS_LENGTH_MAX)
        self.name = schedule_name(self.name)
        self.sequence = whole(self.sequence, "sequence", 0, 1 << 62)
        self.due_at = whole(self.due_at, "due_at", 0, MOMENT_MS_MAX)
        self.tick_at = whole(self.tick_at, "tick_at", self.due_at, MOMENT_MS_MAX)
        self.next_at = whole(self.next_at, "next_at", 0, MOMENT_MS_MAX)
        self.passed = whole(self.passed, "passed", 0, COUNT_MAX)
        self.obstacle = cut_reason(sound(plain_text(self.obstacle, "obstacle")))
        if self.work is None and not self.obstacle:
            raise InvalidValue("a tick needs its work, or what is in the way of it")
        if self.next_at <= self.tick_at and (self.next_at or self.work is not None):
            raise InvalidValue(f"next_at must lie behind {self.tick_at}, not at {self.next_at}")


def schedule_name(value: Any) -> str:
    """The name of a schedule: formed as that of a workflow."""
    name = text(value, "the name of a schedule", 1, NAME_LENGTH_MAX)
    if not _NAME.fullmatch(name):
        raise InvalidValue(
            f"{shown(name)} is no name of a schedule",
            hint="use letters, digits, '_', '-' and '.', starting with a letter, a digit or '_'",
        )
    return name


def cron_text(value: Any) -> str:
    return text(value, "cron", 1, CRON_LENGTH_MAX)


def _checked_work(work: Any) -> Work:
    if work.__class__ is not Work:
        raise InvalidValue(f"the work of a schedule must be a Work, not {shown(work)}")
    workflow = text(work.workflow, "workflow", 0, WORKFLOW_LENGTH_MAX)
    to = text(work.to, "to", 0, ADDRESS_LENGTH_MAX)
    message: Any = work.message
    if bool(workflow) == bool(to):
        raise InvalidValue(
            "a schedule runs a workflow or sends a message: exactly one of the two",
            hint="give workflow= with input=, or to= with content=",
        )
    if (message is None) == bool(to) or (to and message.__class__ is not Envelope):
        raise InvalidValue(f"a schedule that sends needs an envelope, not {shown(message)}")
    return Work(
        workflow,
        _bytes(work.document, "the workflow of a schedule", PLAN_BYTES_MAX),
        _bytes(work.input, "the input of a schedule", TASK_INPUT_MAX),
        to,
        message,
    )


def _bytes(value: Any, what: str, most: int) -> bytes:
    if type(value) is not bytes:
        raise InvalidValue(f"{what} must be the bytes of a JSON value, not {shown(value)}")
    if len(value) > most:
        raise PayloadTooLarge(f"{what} has {len(value)} bytes; {most} are allowed")
    return value
