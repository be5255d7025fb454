"""A plan in the kernel: steps in an order in which each comes after its needs.

`relaymesh.plans` makes plans of JSON, YAML or the builder, and checks what people write: names, references,
expressions. Here a plan is a value of small numbers and opaque bytes. The kernel reads which step needs
which, and never reads an input or an expression.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from typing import Any, Literal
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import force_setattr

from relaymesh.errors import InvalidPlan
from relaymesh.kernel.address import name_of
from relaymesh.kernel.bounds import (
    ADDRESS_LENGTH_MAX,
    LEASE_MS_MAX,
    RETRIES_MAX,
    TEXT_LENGTH_MAX,
    flag,
    one_of,
    shown,
    text,
    whole,
)
from relaymesh.kernel.settings import BACKOFF_MS_MAX

STEPS_MAX = 10_000
PLAN_BYTES_MAX = 1_048_576
NAME_LENGTH_MAX = 128
EXPRESSION_LENGTH_MAX = 4_096
MAX_ATTEMPTS = 3
MAX_ABANDONED = 10
STEP_LEASE_MS = 15_000
PARALLEL_MAX = 100
"""The most unsettled step messages of one task, if its plan has no `window`; also the largest `parallel`."""
WINDOW_MAX = 10_000

NUMBER_MAX = 4 * STEPS_MAX
"""Steps, items, added steps and those that undo, in one task."""
COST_MAX = 1_000_000_000_000_000
"""A billion dollars, in millionths."""
USAGE_MAX = 1_000_000_000_000_000
OPTIONS_MAX = 100
SIGNAL_BYTES_MAX = 65_536
"""The largest value of a signal, an answer or a default, in bytes of JSON."""

OnFailure = Literal["fail", "continue", "handle"]
ON_FAILURE: tuple[OnFailure, ...] = ("fail", "continue", "handle")

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")


WaitKind = Literal["ask", "wait", "signal"]
WAIT_KINDS: tuple[WaitKind, ...] = ("ask", "wait", "signal")


class WaitPlan(msgspec.Struct, array_like=True, frozen=True, gc=False, kw_only=True):
    """What a step waits for instead of an agent's work.

    `ask`: an answer of the agent in `mailbox`; the step's input is the question. `wait`: a time; the input is
    a number of seconds, or a timestamp. `signal`: one of this name, from outside.
    """

    kind: WaitKind
    signal: str = ""
    options: tuple[str, ...] = ()
    """The allowed answers; empty: any answer."""
    default: bytes | None = None
    """JSON that replaces the answer or the signal when the time is over; None: the step times out."""


class StepPlan(msgspec.Struct, array_like=True, frozen=True, gc=False, kw_only=True):
    """One step. `needs`, `refers` and `handler` are numbers of steps; those of the first two come before
    the step."""

    name: str
    mailbox: str
    """The address of the agent that works on it; empty: an agent with `capability` is chosen when it is
    sent."""
    input: bytes = b"null"
    """JSON that may hold expressions."""
    dynamic: bool = False
    """Whether `input` holds expressions: if not, it is sent as it is."""
    needs: tuple[int, ...] = ()
    refers: tuple[int, ...] = ()
    """The steps whose outputs its expressions read: all of them come before it."""
    when: str = ""
    """An expression; if it is false, the step is skipped. Empty: no condition."""
    for_each: str = ""
    """An expression that gives a list; the step is done once for each item. Empty: once."""
    parallel: int = 0
    """How many items of `for_each` may be out at once; 0: as many as the window of the task allows."""
    on_failure: OnFailure = "fail"
    handler: int = -1
    """With `handle`: the step that runs only if this one fails."""
    max_attempts: int = MAX_ATTEMPTS
    max_abandoned: int = MAX_ABANDONED
    lease_ms: int = STEP_LEASE_MS
    attempt_timeout_ms: int = 0
    """How long one attempt may take, counted from its grant; 0: as long as its lease is renewed."""
    timeout_ms: int = 0
    """How long the step may take, counted from when its message was sent; 0: no limit."""
    priority: int = 2
    key: str | None = None
    """The lane of its messages; None: none, so a fan-out runs in parallel."""
    capability: str = ""
    """The capability that the agent must have, instead of `mailbox`."""
    wait: WaitPlan | None = None
    """What it waits for; None: it is work for an agent."""
    include: str = ""
    """The stored workflow whose steps replace it: "release" or "release@3"."""
    grows: bool = False
    """Whether its holder may end it with more steps."""
    sees: tuple[int, ...] = ()
    """With `grows`: the steps before it, whose outputs its new steps may read."""
    outer: tuple[int, ...] = ()
    """For an added step: steps outside of its group that it reads, by their numbers in the task."""
    undo: StepPlan | None = None
    """The step that undoes it, if the task ends without success."""

    @property
    def who(self) -> str:
        """The name of its agent, or the capability, for people."""
        return f"capability {self.capability}" if self.capability else name_of(self.mailbox)


class Plan(msgspec.Struct, array_like=True, frozen=True, weakref=True, dict=True, kw_only=True):
    """A checked workflow. `steps` is in an order in which every step comes after its needs."""

    name: str
    steps: tuple[StepPlan, ...]
    version: str = ""
    deadline_ms: int = 0
    """How long a task may take, counted from its submit, downtime included; 0: no limit."""
    cost_micros: int = 0
    """What a task may cost, in millionths of a dollar; 0: no limit."""
    tokens: int = 0
    """How many tokens of models a task may use; 0: no limit."""
    window: int = 0
    """How many messages of a task may be unsettled at once; 0: `PARALLEL_MAX`."""
    backoff_ms_base: int = 0
    """As in `MailboxSettings`, for steps whose mailbox has the default; 0: the mailbox's."""
    backoff_ms_cap: int = 0

    @property
    def out_max(self) -> int:
        return self.window or PARALLEL_MAX

    @cached_property
    def size(self) -> int:
        """About how many bytes it keeps."""
        return size_of(self.steps)


def size_of(steps: Iterable[StepPlan]) -> int:
    """About how many bytes these keep."""
    return sum([_size(step) for step in steps])


def _size(step: StepPlan) -> int:
    size = 256 + len(step.input) + len(step.when) + len(step.for_each) + len(step.capability)
    size += 8 * (len(step.needs) + len(step.refers) + len(step.sees) + len(step.outer))
    if step.wait is not None:
        size += len(step.wait.default or b"") + sum([64 + len(option) for option in step.wait.options])
    return size if step.undo is None else size + _size(step.undo)


def check_plan(plan: Any) -> Plan:
    """The plan, with plain values. Raises `InvalidPlan` that names step and field."""
    if plan.__class__ is not Plan:
        raise InvalidPlan(f"a plan must be a Plan, not {shown(plan)}")
    if _checked.get(id(plan)) is plan:
        return plan
    _set(plan, "name", text(plan.name, "the workflow's name", 1, NAME_LENGTH_MAX, InvalidPlan))
    _set(plan, "version", text(plan.version, "the workflow's version", 0, TEXT_LENGTH_MAX, InvalidPlan))
    _set(plan, "deadline_ms", whole(plan.deadline_ms, "deadline in ms", 0, LEASE_MS_MAX, InvalidPlan))
    _set(plan, "cost_micros", whole(plan.cost_micros, "budget in micro-dollars", 0, COST_MAX, InvalidPlan))
    _set(plan, "tokens", whole(plan.tokens, "budget in tokens", 0, USAGE_MAX, InvalidPlan))
    _set(plan, "window", whole(plan.window, "window", 0, WINDOW_MAX, InvalidPlan))
    for field in ("backoff_ms_base", "backoff_ms_cap"):
        _set(plan, field, whole(getattr(plan, field), field, 0, BACKOFF_MS_MAX, InvalidPlan))
    check_steps(plan.steps, f"workflow {plan.name!r}")
    _checked[id(plan)] = plan
    return plan


_checked: WeakValueDictionary[int, Plan] = WeakValueDictionary()
"""By id, the checked plans that are still in use, because one plan is submitted many times."""


def check_steps(steps: Any, what: str) -> tuple[StepPlan, ...]:
    """Steps that stand together: those of a plan, or a group that one step goes on as."""
    if type(steps) is not tuple or not steps:
        raise InvalidPlan(f"{what} has no steps")
    if len(steps) > STEPS_MAX:
        raise InvalidPlan(f"{what} has {len(steps)} steps; {STEPS_MAX} are allowed")
    names: set[str] = set()
    for number, step in enumerate(steps):
        check_step(step, number, len(steps), names)
    if (size := size_of(steps)) > 2 * PLAN_BYTES_MAX + 256 * STEPS_MAX:
        raise InvalidPlan(f"{what} has {size} bytes; {PLAN_BYTES_MAX} are allowed")
    for number, step in enumerate(steps):
        if step.on_failure == "handle" and number not in steps[step.handler].needs:
            handler = steps[step.handler].name
            raise InvalidPlan(f"step {handler!r} must need {step.name!r}: it runs only if that one fails")
    handlers = [step.handler for step in steps if step.on_failure == "handle"]
    if len(handlers) != len(set(handlers)):
        raise InvalidPlan(f"{what}: two steps name the same step in on_failure")
    return steps


def check_step(step: Any, number: int, count: int, names: set[str]) -> None:
    """One step at its number of `count` steps. `names`: those of the steps before it."""
    if step.__class__ is not StepPlan:
        raise InvalidPlan(f"step {number} must be a StepPlan, not {shown(step)}")
    name = text(step.name, f"the name of step {number}", 1, TEXT_LENGTH_MAX, InvalidPlan)
    if not _NAME.fullmatch(name):
        raise InvalidPlan(f"step {name!r}: a name has letters, digits, '_', '-' and '.'")
    if name in names:
        raise InvalidPlan(f"step {name!r} occurs twice")
    names.add(name)
    what = f"step {name!r}: "
    _set(step, "name", name)
    _check_doing(step, what)
    if type(step.input) is not bytes or len(step.input) > PLAN_BYTES_MAX:
        raise InvalidPlan(f"{what}input must be at most {PLAN_BYTES_MAX} bytes of JSON")
    _check_fields(step, number, what)
    one_of(step.on_failure, what + "on_failure", ON_FAILURE, InvalidPlan)
    if (step.on_failure == "handle") != (type(step.handler) is int and number < step.handler < count):
        raise InvalidPlan(f"{what}on_failure must name a step that comes after it")
    if step.key is not None:
        _set(step, "key", text(step.key, what + "key", 1, TEXT_LENGTH_MAX, InvalidPlan))
    if step.undo is not None:
        _check_undo(step, number, what)


def _check_fields(step: StepPlan, number: int, what: str) -> None:
    """Check numbers, lists of steps, and expressions. Most fields have their defaults, which are valid."""
    for field, most in (("needs", number), ("refers", number), ("sees", number), ("outer", NUMBER_MAX)):
        numbers = getattr(step, field)
        if numbers == () and type(numbers) is tuple:
            continue
        if type(numbers) is not tuple or not all(type(each) is int and 0 <= each < most for each in numbers):
            raise InvalidPlan(f"{what}{field} must name steps before it, not {shown(numbers)}")
    for field in ("when", "for_each"):
        expression = getattr(step, field)
        if expression != "" or type(expression) is not str:
            _set(step, field, text(expression, what + field, 0, EXPRESSION_LENGTH_MAX, InvalidPlan))
    for field, (least, most) in WHOLE_BOUNDS.items():
        value = getattr(step, field)
        if type(value) is not int or not least <= value <= most:
            _set(step, field, whole(value, what + field, least, most, InvalidPlan))


def _check_doing(step: StepPlan, what: str) -> None:
    """What the step is: an agent's work, a wait, or another workflow."""
    flag(step.grows, what + "grows", InvalidPlan)
    _set(step, "include", text(step.include, what + "workflow", 0, TEXT_LENGTH_MAX, InvalidPlan))
    _set(step, "capability", text(step.capability, what + "capability", 0, TEXT_LENGTH_MAX, InvalidPlan))
    if step.wait is not None:
        _check_wait(step.wait, what)
    asks = step.wait is not None and step.wait.kind == "ask"
    if (step.wait is not None or step.include) and (step.grows or step.capability or step.undo):
        raise InvalidPlan(f"{what}only the work of an agent has a capability, grows, or is undone")
    if step.wait is not None and step.include:
        raise InvalidPlan(f"{what}it waits, or it is another workflow, not both")
    works = not step.capability and not step.include and (step.wait is None or asks)
    least, most = (1, ADDRESS_LENGTH_MAX) if works else (0, 0)
    _set(step, "mailbox", text(step.mailbox, what + "agent", least, most, InvalidPlan))


def _check_wait(wait: Any, what: str) -> None:
    if wait.__class__ is not WaitPlan:
        raise InvalidPlan(f"{what}wait must be a WaitPlan, not {shown(wait)}")
    one_of(wait.kind, what + "kind of wait", WAIT_KINDS, InvalidPlan)
    least = 1 if wait.kind == "signal" else 0
    _set(wait, "signal", text(wait.signal, what + "signal", least, NAME_LENGTH_MAX, InvalidPlan))
    if type(wait.options) is not tuple or len(wait.options) > OPTIONS_MAX:
        raise InvalidPlan(f"{what}options must be at most {OPTIONS_MAX} texts, not {shown(wait.options)}")
    options = tuple([text(each, what + "option", 1, TEXT_LENGTH_MAX, InvalidPlan) for each in wait.options])
    _set(wait, "options", options)
    if wait.default is not None and (type(wait.default) is not bytes or len(wait.default) > SIGNAL_BYTES_MAX):
        raise InvalidPlan(f"{what}default must be at most {SIGNAL_BYTES_MAX} bytes of JSON")


def _check_undo(step: StepPlan, number: int, what: str) -> None:
    """The step that undoes another reads what that step may read, and its output. It has no needs."""
    undo: Any = step.undo
    if undo.__class__ is not StepPlan or undo.name != step.name:
        raise InvalidPlan(f"{what}compensate must be a step of the same name, not {shown(undo)}")
    if undo.needs or undo.when or undo.for_each or undo.wait or undo.include or undo.grows or undo.undo:
        raise InvalidPlan(f"{what}compensate is the work of an agent, and nothing else")
    check_step(undo, number, number + 1, set())
    if undo.on_failure != "fail":
        raise InvalidPlan(f"{what}compensate has no on_failure")


WHOLE_BOUNDS: dict[str, tuple[int, int]] = {
    "parallel": (0, PARALLEL_MAX),
    "max_attempts": (1, RETRIES_MAX),
    "max_abandoned": (0, RETRIES_MAX),
    "lease_ms": (1_000, LEASE_MS_MAX),
    "attempt_timeout_ms": (0, LEASE_MS_MAX),
    "timeout_ms": (0, LEASE_MS_MAX),
    "priority": (1, 5),
}

_set = force_setattr
