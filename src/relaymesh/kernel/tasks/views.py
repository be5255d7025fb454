"""Tasks and steps as values that leave the kernel: for the store, for queries and for callers."""

from __future__ import annotations

import msgspec

from relaymesh.kernel.address import name_of
from relaymesh.kernel.moment import iso
from relaymesh.kernel.tasks.plan import StepPlan
from relaymesh.kernel.tasks.status import Status
from relaymesh.kernel.tasks.step_state import Waiting
from relaymesh.kernel.tasks.task import Task
from relaymesh.kernel.token import TOKEN_COUNTER_BITS


class StepView(msgspec.Struct, frozen=True, gc=False):
    """One step, as it is now. `number` is its number in the task."""

    task: str
    number: int
    name: str
    agent: str
    """The address of the mailbox that its message is in, or goes to."""
    status: Status
    attempt: int = 0
    failed: int = 0
    abandoned: int = 0
    next_retry_at: int = 0
    lease_owner: str = ""
    lease_token: int = 0
    lease_epoch: int = 0
    sent_at: int = 0
    granted_at: int = 0
    updated_at: int = 0
    ended_at: int = -1
    code: str = ""
    reason: str = ""
    waiting: str = ""
    """Why a pending step waits: its needs, the window, a mailbox."""
    progress: str = ""
    output: bytes | None = None
    """Its result, while the task keeps it."""
    uncertain: bool = False
    """Whether the outcome of the step that it undoes is unknown."""


class StepGrant(msgspec.Struct, frozen=True, gc=False):
    """The last grant of a step, for a holder that names the step and not its token."""

    owner: str
    """Of the task."""
    mailbox: str
    status: Status
    token: int = 0
    """0: it has no grant that a result could still count for."""
    attempt: int = 0
    """As its delivery said."""
    sequence: int = -1
    """Of its message."""
    held: bool = False
    """Whether its lease is not over."""


class TaskView(msgspec.Struct, frozen=True, gc=False):
    """A task, as it is now."""

    task: str
    workflow: str
    version: str
    status: Status
    owner: str
    key: str
    request: bytes
    trace: str | None
    created_at: int
    updated_at: int
    ended_at: int = -1
    reason: str = ""
    result: bytes | None = None
    """The result of a success; None before its end, and of every other end."""
    steps_total: int = 0
    steps_ended: int = 0
    sequence: int = 0
    """Of the event that submitted it."""
    through: int = 0
    """The sequence after the record that ended it."""
    cost_micros: int = 0
    tokens: int = 0
    """What its attempts have used: millionths of a dollar, and tokens of models."""
    cost_micros_max: int = 0
    tokens_max: int = 0
    """Its budget; 0: no limit."""
    waiting: str = ""
    """Why it sends no steps, or that it undoes its steps."""
    again_of: str = ""
    """For a rerun: the task whose outcomes it took over."""


class TaskShown(msgspec.Struct, frozen=True, gc=False):
    """A task with its steps."""

    task: TaskView
    steps: tuple[StepView, ...]
    revision: int = 0
    """A number that increases with each change of a live task. A watch compares it, because times are too
    coarse."""


def step_view(task: Task, number: int) -> StepView:
    step, plan = task.steps[number], task.plan_of(number)
    leased = step.status == "RUNNING" and step.sequence >= 0
    waiting = ""
    if step.status == "PENDING" and step.sequence < 0:
        waiting = "needs" if number not in task.ready else task.paused or task.blocked or "window"
    elif step.wait is not None:
        waiting = _waits_for(step.wait, plan)
    return StepView(
        task.id,
        number,
        task.name_of(number),
        step.mailbox or plan.mailbox,
        step.status,
        step.attempts,
        step.failed,
        step.abandoned,
        step.retry_at if step.status in ("RETRYING", "ABANDONED") else 0,
        step.holder if leased else "",
        step.token if leased else 0,
        step.token >> TOKEN_COUNTER_BITS if leased else 0,
        step.sent_at,
        step.granted_at,
        step.updated_at,
        step.ended_at,
        step.code,
        step.reason,
        waiting,
        step.progress if leased else "",
        step.output,
        step.uncertain,
    )


def _waits_for(wait: Waiting, plan: StepPlan) -> str:
    """In words: an answer, a signal or a time."""
    what = "time"
    if wait.kind == "ask":
        what = f"answer of {name_of(wait.asked)}"
    elif plan.wait is not None and wait.kind == "signal":
        what = f"signal {plan.wait.signal}"
    return f"{what}, until {iso(wait.until)}" if wait.until else what


def task_view(task: Task) -> TaskView:
    return TaskView(
        task.id,
        task.plan.name,
        task.plan.version,
        task.end or task.status,
        task.owner,
        task.key,
        task.request,
        task.trace,
        task.at,
        task.updated_at,
        task.updated_at if task.end else -1,
        task.reason,
        task.returned,
        len(task.steps),
        len(task.steps) - (0 if task.end else task.open),
        task.sequence,
        task.through,
        task.cost,
        task.tokens,
        task.cost_max,
        task.tokens_max,
        "" if task.end else "undoes what it did" if task.undos else task.paused,
        task.again_of,
    )


def shown(task: Task) -> TaskShown:
    steps = tuple([step_view(task, number) for number in range(len(task.steps))])
    return TaskShown(task_view(task), steps, task.through or task.revision)
