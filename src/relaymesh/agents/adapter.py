"""What an adapter is: work in, events out, one outcome.

The supervisor calls `run` once for each attempt. The adapter must end every process that it started for the
attempt before `run` returns or raises, also when `run` is cancelled. `run` is cancelled when the lease is
lost, when the task is cancelled hard, and when the supervisor stops.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

__all__ = [
    "LOG_LINE_MAX",
    "Adapter",
    "Done",
    "Event",
    "Failure",
    "Grown",
    "Outcome",
    "Progress",
    "Text",
    "ToolUse",
    "Used",
    "Work",
]

LOG_LINE_MAX = 8_192
"""The longest `Text`, in bytes. An adapter cuts longer lines into several."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of one delivery."""

    run: str
    """The id of this attempt. Every process of the attempt has it in its environment, as RELAYMESH_RUN."""
    agent: str
    message_id: str
    type: str
    sender: str
    """Who sent the message. The node stamps it; the content cannot change it."""
    content: bytes
    """JSON. Of a step, its input."""
    task: str | None = None
    step: str | None = None
    attempt: int = 1
    time_limit_s: float | None = None
    """How long this attempt may take; None: no limit."""
    silence_limit_s: float | None = None
    """How long it may go without output; None: no limit."""
    workspace: Path | None = None
    """The working directory; None: a new empty one, removed afterwards."""
    tokens_left: int | None = None
    cost_left_usd: float | None = None
    """What was left of the budget of its task when the attempt began; None: no budget, or not known."""
    time_left_s: float | None = None
    """When the attempt began, until its step or task is out of time; None: no limit, or not known."""


class Text(msgspec.Struct, frozen=True):
    """What the agent said, for its log. Never more than `LOG_LINE_MAX` bytes at once."""

    text: str
    stream: str = "stdout"


class Progress(msgspec.Struct, frozen=True):
    """One line for a person: shown at the step while it runs."""

    text: str


class ToolUse(msgspec.Struct, frozen=True):
    name: str
    summary: str = ""


class Used(msgspec.Struct, frozen=True):
    """What the attempt has used so far: its total, not what was added."""

    cost_usd: float | None = None
    tokens: int | None = None


Event = Text | Progress | ToolUse | Used


class Done(msgspec.Struct, frozen=True):
    """The work is done. `value`: JSON."""

    value: bytes = b"null"
    used: Used = Used()


class Grown(msgspec.Struct, frozen=True):
    """The step continues with more steps. `steps`: JSON, as for `relaymesh.Continue`."""

    steps: bytes
    used: Used = Used()


class Failure(msgspec.Struct, frozen=True):
    """The work is not done. `code` is an error code of the failure contract.

    `final`: do not try again. `until_ms`: try again at this time, and count no attempt. `after_ms`: try again
    after this delay instead of the backoff; the attempt counts. `drop`: ack the message, and count it as
    dropped. `abandoned`: the attempt was ended from outside (killed, or its supervisor died), so it counts as
    an abandonment and not as a failure.
    """

    code: str
    reason: str
    final: bool = False
    until_ms: int | None = None
    after_ms: int | None = None
    drop: bool = False
    abandoned: bool = False
    used: Used = Used()


Outcome = Done | Grown | Failure


class Adapter(Protocol):
    """Runs the work of one agent. One object runs all attempts of its agent, also several at once."""

    async def run(self, work: Work, emit: Callable[[Event], None]) -> Outcome:
        """Do one attempt. It never raises because of the agent: a wrong answer of the agent is a
        `Failure`."""
        ...

    async def close(self) -> None:
        """End what still runs. Called once, when no `run` is under way."""
        ...
