"""The cases: what the agent does, and what must come of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from relaymesh.agents.adapter import Done, Event, Failure, Outcome, Progress, Text

__all__ = ["CASES", "GIB", "Case", "Faults", "Seen"]

GIB = 1 << 30
UNICODE = 'ä€😀 \u202e right to left \u0000 \u2028 \x7f "\\ e\u0301 \ufeff'
OPTIONS = "--version -rf / ; $(touch injected) `touch injected` && echo 'x' | sh #needle-7f3a"
BOMB_MOST = 500
LOG_MIB_MAX = 200

Faults = list[str]
Interference = Literal["cancel", "kill"]


class Seen(msgspec.Struct, kw_only=True):
    """What came of one case, as the suite saw it."""

    outcome: Outcome | None
    """None: it was cancelled."""
    events: list[Event]
    seconds: float
    processes: int
    """How many processes of the agent there were in all."""
    arguments: bytes
    log_mib: float


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One behaviour of an agent."""

    name: str
    content: dict[str, Any]
    judge: Callable[[Seen], Faults]
    time_limit_s: float | None = None
    silence_limit_s: float | None = None
    interference: Interference | None = None
    """What the suite does to it once the agent is under way."""
    within_s: float = 30.0
    """How long `run` may take at most, whatever the agent does."""
    processes_max: int | None = None
    """How many processes the agent may have. Needs root or a pids cgroup."""


def done(value: Any) -> Callable[[Seen], Faults]:
    def judge(seen: Seen) -> Faults:
        if not isinstance(seen.outcome, Done):
            return [f"the agent succeeded, and the outcome is {_short(seen.outcome)}"]
        try:
            found = msgspec.json.decode(seen.outcome.value)
        except msgspec.DecodeError as error:
            return [f"the result is no JSON: {error}"]
        return [] if found == value else [f"the result is {found!r:.100}, not {value!r:.100}"]

    return judge


def failed(*codes: str, final: bool | None = None, abandoned: bool = False) -> Callable[[Seen], Faults]:
    def judge(seen: Seen) -> Faults:
        outcome = seen.outcome
        if not isinstance(outcome, Failure):
            return [f"the agent failed, and the outcome is {_short(outcome)}"]
        faults = []
        if codes and outcome.code not in codes:
            faults.append(f"the code is {outcome.code!r}, not {' or '.join(codes)}")
        if final is not None and outcome.final != final:
            faults.append(f"final is {outcome.final}, and must be {final}")
        if outcome.abandoned != abandoned:
            faults.append(f"abandoned is {outcome.abandoned}, and must be {abandoned}")
        if not outcome.reason:
            faults.append("the failure has no reason")
        return faults

    return judge


def cancelled(seen: Seen) -> Faults:
    return [] if seen.outcome is None else [f"run was cancelled, and returned {_short(seen.outcome)}"]


def progressed(seen: Seen) -> Faults:
    if Progress("half of it") not in seen.events:
        return ["no Progress event of the agent's progress line"]
    return done(None)(seen)


def talked(seen: Seen) -> Faults:
    faults = done("talked")(seen)
    if seen.log_mib > LOG_MIB_MAX:
        faults.append(f"the log takes {seen.log_mib:.0f} MiB")
    return faults


def as_data(seen: Seen) -> Faults:
    faults = done(OPTIONS)(seen)
    if b"needle-7f3a" in seen.arguments:
        faults.append("the content stands in the command line or the environment of the agent")
    return faults


def bounded(seen: Seen) -> Faults:
    """A fork bomb is bounded, or refused with a reason, or run after saying what is not prevented."""
    if refusal(seen):
        return []
    if seen.processes >= BOMB_MOST:
        said = any(isinstance(event, Text) and "not prevented" in event.text for event in seen.events)
        return [] if said else [f"the agent had {seen.processes} processes: nothing bounds them"]
    return failed("timeout")(seen)


def refusal(seen: Seen) -> str:
    """The reason of an adapter that did not run the agent at all."""
    outcome = seen.outcome
    if seen.processes == 0 and isinstance(outcome, Failure) and outcome.final and outcome.reason:
        return outcome.reason
    return ""


def _short(outcome: Outcome | None) -> str:
    return f"{outcome!r:.160}"


def cases(size: int) -> list[Case]:
    """All cases; `size`: how much the talkative ones write."""
    return [
        Case(name="success", content={"scenario": "echo", "value": {"n": 1}}, judge=done({"n": 1})),
        Case(name="progress", content={"scenario": "progress", "text": "half of it"}, judge=progressed),
        Case(
            name="failure",
            content={"scenario": "fail", "reason": "no disk", "final": False},
            judge=failed(final=False),
        ),
        Case(
            name="failure for good",
            content={"scenario": "fail", "reason": "no such branch", "final": True},
            judge=failed(final=True),
        ),
        Case(name="timeout", content={"scenario": "sleep"}, judge=failed("timeout"), time_limit_s=1.0),
        Case(name="silence", content={"scenario": "sleep"}, judge=failed("timeout"), silence_limit_s=1.0),
        Case(
            name="long and not silent",
            content={"scenario": "chatter", "times": 12, "pause_s": 0.5},
            judge=done("chattered"),
            silence_limit_s=5.0,
        ),
        Case(name="kill", content={"scenario": "sleep"}, judge=failed(abandoned=True), interference="kill"),
        Case(name="garbage", content={"scenario": "garbage"}, judge=failed("invalid")),
        Case(name="half a line", content={"scenario": "half"}, judge=failed()),
        Case(
            name="too much output",
            content={"scenario": "big", "size": size},
            judge=failed("invalid", "output_too_large"),
            within_s=120.0,
        ),
        Case(name="talkative", content={"scenario": "talk", "size": size}, judge=talked, within_s=240.0),
        Case(name="unicode", content={"scenario": "echo", "value": UNICODE}, judge=done(UNICODE)),
        Case(name="cancellation", content={"scenario": "sleep"}, judge=cancelled, interference="cancel"),
        Case(name="input like an option", content={"scenario": "echo", "value": OPTIONS}, judge=as_data),
        Case(name="children that stay", content={"scenario": "leave"}, judge=done("left")),
        Case(name="ignores SIGTERM", content={"scenario": "deaf"}, judge=failed("timeout"), time_limit_s=2.0),
        Case(
            name="fork bomb",
            content={"scenario": "bomb", "most": BOMB_MOST},
            judge=bounded,
            processes_max=64,
            time_limit_s=3.0,
            within_s=60.0,
        ),
    ]


CASES = tuple(case.name for case in cases(GIB))
