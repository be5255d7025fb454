"""Tasks and steps as rows: the fields of `--json`, and the columns for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from relaymesh.cli.moments import span_text
from relaymesh.cli.table import Column
from relaymesh.kernel.tasks.spending import dollars
from relaymesh.sdk.task_views import StepState, TaskEvent, TaskState, TaskSummary
from relaymesh.wire.usage import micros_of


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"


TASKS = [
    Column("id", "id"),
    Column("workflow", "text"),
    Column("status"),
    Column("steps_ended", "number", title="ended"),
    Column("steps_total", "number", title="steps"),
    Column("owner", "text"),
    Column("created_at", show=_time, title="created"),
    Column("updated_at", show=_time, title="updated"),
    Column("reason", "text"),
]
STEPS = [
    Column("name"),
    Column("agent", "text"),
    Column("status"),
    Column("attempt", "number"),
    Column("elapsed", "number", span_text),
]
ONLY_IF_ANY = [
    Column("abandoned", "number"),
    Column("holder", "text"),
    Column("waiting", "text"),
    Column("progress", "text"),
    Column("uncertain"),
    Column("code"),
    Column("reason", "text"),
]
"""Columns that are left out of the table while they are empty."""


EVENTS = [
    Column("at", show=lambda at: f"{at:%Y-%m-%d %H:%M:%S.%f}"[:-3], title="time"),
    Column("event"),
    Column("step", "text"),
    Column("agent", "text"),
    Column("holder", "text"),
    Column("token"),
    Column("status"),
    Column("code"),
    Column("reason", "text"),
]
"""The story of a task."""


ABOUT = ("waiting", "cost_usd", "cost_usd_max", "tokens", "tokens_max", "again_of")
"""Fields of one task beside the columns of a list."""


def event_row(event: TaskEvent) -> dict[str, Any]:
    return asdict(event)


def task_row(task: TaskSummary) -> dict[str, Any]:
    return {column.name: getattr(task, column.name) for column in TASKS}


def state_row(task: TaskState, now: datetime) -> dict[str, Any]:
    """A task with its result and its steps."""
    steps = [step_row(step, now) for step in task.steps]
    about = {name: getattr(task, name) for name in ABOUT}
    return {**task_row(task), **about, "result": task.result, "steps": steps}


def used_text(task: TaskSummary) -> str:
    """What a task has used of its budget, for people: `$1.20 of $5.00, 3400 tokens`. Empty: nothing."""
    parts = []
    if task.cost_usd or task.cost_usd_max:
        most = "" if task.cost_usd_max is None else f" of {_dollars(task.cost_usd_max)}"
        parts.append(f"{_dollars(task.cost_usd)}{most}")
    if task.tokens or task.tokens_max:
        most = "" if task.tokens_max is None else f" of {task.tokens_max}"
        parts.append(f"{task.tokens}{most} tokens")
    return ", ".join(parts)


def _dollars(amount: float) -> str:
    return dollars(micros_of(amount))


def step_row(step: StepState, now: datetime) -> dict[str, Any]:
    names = (
        "name",
        "agent",
        "status",
        "attempt",
        "abandoned",
        "holder",
        "waiting",
        "progress",
        "uncertain",
        "code",
        "reason",
    )
    row = {name: getattr(step, name) for name in names}
    row["elapsed"] = elapsed(step, now)
    for name in ("updated_at", "granted_at", "ended_at"):
        row[name] = getattr(step, name)
    return row


def step_columns(rows: Sequence[dict[str, Any]]) -> list[Column]:
    return [*STEPS, *(column for column in ONLY_IF_ANY if any(row[column.name] for row in rows))]


def elapsed(step: StepState, now: datetime) -> float | None:
    """Seconds since the last grant of a step that runs, or from it to the end; None before the first."""
    if step.granted_at is None:
        return None
    if step.ended_at is not None:
        return max(0.0, (step.ended_at - step.granted_at).total_seconds())
    return max(0.0, (now - step.granted_at).total_seconds()) if step.status == "RUNNING" else None


def in_plan_order(steps: Sequence[StepState]) -> list[StepState]:
    """The steps as planned, the items of a fan-out and added steps below their step."""
    names = {step.name for step in steps}
    below: dict[str, list[StepState]] = {}
    for step in steps:
        above = step.name.rpartition("/")[0]
        below.setdefault(above if above in names else "", []).append(step)
    ordered: list[StepState] = []
    left = below.pop("", [])[::-1]
    while left:
        step = left.pop()
        ordered.append(step)
        left += below.pop(step.name, [])[::-1]
    return ordered
