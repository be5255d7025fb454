"""Tasks and steps as the SDK shows them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from relaymesh.errors import NotFound
from relaymesh.kernel.address import name_of
from relaymesh.kernel.bounds import TEXT_LENGTH_MAX, text
from relaymesh.kernel.tasks.status import Status
from relaymesh.kernel.tasks.views import StepView, TaskShown, TaskView
from relaymesh.wire.envelope import when
from relaymesh.wire.tasks import TaskStory
from relaymesh.wire.usage import dollars_of

__all__ = ["StepState", "TaskEvent", "TaskState", "TaskSummary", "state_of", "story_of", "summary_of"]


@dataclass(frozen=True)
class StepState:
    """One step of a task. `attempt`: how often it was granted.

    `waiting`: why a pending step was not sent, or what a running one waits for: an answer, a signal, a time.
    `uncertain`: it undoes a step whose outcome is not known.
    """

    name: str
    agent: str
    status: Status
    attempt: int
    abandoned: int
    holder: str
    waiting: str
    progress: str
    code: str
    reason: str
    updated_at: datetime
    granted_at: datetime | None
    ended_at: datetime | None
    uncertain: bool


@dataclass(frozen=True)
class TaskSummary:
    """A task without its steps. `waiting`: why it sends no steps, or that it undoes its steps.

    `cost_usd`, `tokens`: what its attempts have used; `cost_usd_max`, `tokens_max`: its budget, None without
    one. `again_of`: for a rerun, the task whose outcomes it took over; else empty.
    """

    id: str
    workflow: str
    status: Status
    owner: str
    reason: str
    created_at: datetime
    updated_at: datetime
    steps_total: int
    steps_ended: int
    waiting: str
    cost_usd: float
    cost_usd_max: float | None
    tokens: int
    tokens_max: int | None
    again_of: str


@dataclass(frozen=True)
class TaskState(TaskSummary):
    """A task with its steps. `result`: of a success; None otherwise."""

    result: Any
    steps: tuple[StepState, ...]

    def step(self, name: str) -> StepState:
        """The step of this name; `build/3` is an item of `build`. Raises `NotFound` if there is none."""
        wanted = text(name, "the name of a step", 1, TEXT_LENGTH_MAX)
        for step in self.steps:
            if step.name == wanted:
                return step
        known = ", ".join([step.name for step in self.steps[:20]])
        raise NotFound(f"task {self.id} has no step {wanted!r}", hint=f"its steps: {known}")


@dataclass(frozen=True)
class TaskEvent:
    """One thing that happened to a task, or to its step `step`.

    `event`: submitted, sent, expanded, granted, failed, abandoned, given_back, dead_letter, redriven, purged,
    step_ended, closing or ended. `token`: of the grant under which it happened.
    """

    sequence: int
    at: datetime
    event: str
    step: str
    agent: str
    holder: str
    token: str
    status: str
    code: str
    reason: str


def story_of(story: TaskStory) -> list[TaskEvent]:
    return [
        TaskEvent(**msgspec.structs.asdict(each) | {"at": when(each.at), "agent": _name(each.agent)})
        for each in story.events
    ]


def _name(address: str) -> str:
    return name_of(address) if address else ""


def summary_of(view: TaskView) -> TaskSummary:
    return TaskSummary(**_fields(view))


def state_of(shown: TaskShown) -> TaskState:
    result = None if shown.task.result is None else msgspec.json.decode(shown.task.result)
    return TaskState(**_fields(shown.task), result=result, steps=tuple(map(_step, shown.steps)))


def _fields(view: TaskView) -> dict[str, Any]:
    return {
        "id": view.task,
        "workflow": view.workflow,
        "status": view.status,
        "owner": name_of(view.owner),
        "reason": view.reason,
        "created_at": when(view.created_at),
        "updated_at": when(view.updated_at),
        "steps_total": view.steps_total,
        "steps_ended": view.steps_ended,
        "waiting": view.waiting,
        "cost_usd": dollars_of(view.cost_micros),
        "cost_usd_max": dollars_of(view.cost_micros_max) or None,
        "tokens": view.tokens,
        "tokens_max": view.tokens_max or None,
        "again_of": view.again_of,
    }


def _step(view: StepView) -> StepState:
    return StepState(
        view.name,
        name_of(view.agent),
        view.status,
        view.attempt,
        view.abandoned,
        view.lease_owner,
        view.waiting,
        view.progress,
        view.code,
        view.reason,
        when(view.updated_at),
        when(view.granted_at) if view.granted_at else None,
        when(view.ended_at) if view.ended_at >= 0 else None,
        view.uncertain,
    )
