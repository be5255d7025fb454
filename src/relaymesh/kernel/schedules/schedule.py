"""One schedule: what to do, when next, and what its last ticks led to."""

from __future__ import annotations

from typing import Literal

import msgspec

from relaymesh.kernel.envelope import Envelope

SCHEDULE_BYTES = 1_024
"""Memory of a schedule beside its document, its input and its message."""

Missed = Literal["one", "none"]
"""What becomes of ticks that passed while nothing could run them: one run for all of them, or none."""


class Work(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What a tick begins: a task of a workflow, or a message to `to`.

    `workflow`: the name of a stored workflow, with or without a version (`release`, `release@3`), or the name
    in `document`, which is JSON. `message` has no id yet: each tick gives it one.
    """

    workflow: str = ""
    document: bytes = b""
    input: bytes = b"null"
    to: str = ""
    message: Envelope | None = None

    @property
    def size(self) -> int:
        message = 0 if self.message is None else self.message.size
        return len(self.document) + len(self.input) + message


class Schedule(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A schedule as the journal left it. Each record makes a new value of it."""

    namespace: str
    name: str
    cron: str
    tz: str
    missed: Missed
    work: Work
    owner: str
    budget: int
    next_at: int
    """The tick that it waits for (mesh time, ms)."""
    at: int
    """When it was set, and by which event."""
    sequence: int
    paused: bool = False
    runs: int = 0
    skipped: int = 0
    """Ticks that have passed without a run of their own."""
    last_tick_at: int = 0
    last_run: str = ""
    last_run_at: int = 0
    """The last run: its tick, its task or message, and when it began."""
    reason: str = ""
    """Why the last ticks without a run had none; empty since the next run."""

    @property
    def size(self) -> int:
        return SCHEDULE_BYTES + self.work.size


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """A tick that is due and could not run yet. Volatile: a start tries at once."""

    tick_at: int
    since: int
    """When it was tried first (mesh time, ms)."""
    tries: int
    reason: str
    retry_at: int


class ScheduleView(msgspec.Struct, frozen=True, gc=False):
    """A schedule as it is shown. Lists have no document, no input and no message."""

    schedule: Schedule
    refusal: Refusal | None = None
