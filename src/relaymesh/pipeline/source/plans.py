"""The parts of a task's plan that the tables use: names, agents, needs. Inputs and expressions stay in the
journal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from relaymesh.kernel.records import TaskUndoing
from relaymesh.kernel.tasks.plan import Plan, StepPlan
from relaymesh.kernel.tasks.status import Status
from relaymesh.pipeline.source.results import hash_of

__all__ = ["plan_json", "steps_json", "undoing_json"]


def plan_json(plan: Plan, given: Sequence[tuple[int, Status, bytes]] = ()) -> str:
    """The same text for every task of a plan, so that a file of bronze holds it once.

    `given`: steps that another task did before, with their outcomes.
    """
    said: dict[str, Any] = {
        "workflow": plan.name,
        "version": plan.version,
        "deadline_ms": plan.deadline_ms,
        "steps": [_step(step) for step in plan.steps],
    }
    if given:
        said["given"] = [[number, status, hash_of(output)] for number, status, output in given]
    return msgspec.json.encode(said).decode()


def steps_json(steps: Sequence[StepPlan]) -> str:
    """Steps that replace a step: their needs are numbered from the first of them."""
    return msgspec.json.encode({"steps": [_step(step) for step in steps]}).decode()


def undoing_json(record: TaskUndoing) -> str:
    return msgspec.json.encode({"undo": record.steps, "uncertain": record.uncertain}).decode()


def _step(step: StepPlan) -> dict[str, Any]:
    """By name; what is not said is the default."""
    said: dict[str, Any] = {"name": step.name, "agent": step.mailbox, "needs": sorted(set(step.needs))}
    if step.capability:
        said["capability"] = step.capability
    if step.on_failure != "fail":
        said["on_failure"] = step.on_failure
    if step.handler >= 0:
        said["handler"] = step.handler
    if step.for_each:
        said["for_each"] = True
    if step.wait is not None:
        said |= {"wait": step.wait.kind, "default": step.wait.default is not None}
    if step.undo is not None:
        said["undo"] = _step(step.undo)
    return said
