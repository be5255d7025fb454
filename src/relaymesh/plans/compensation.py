"""Compensation: the step that undoes another one, if the task ends without success."""

from __future__ import annotations

from typing import Any

from relaymesh.kernel.tasks.plan import StepPlan
from relaymesh.plans.position import Position, kind_of
from relaymesh.plans.work import PLAIN, WORK_FIELDS, Expressions, StepDefaults, read_work
from relaymesh.wire.near import Names


def read_compensation(
    given: Any, step: StepPlan, position: Position, namespace: str, defaults: StepDefaults = PLAIN
) -> tuple[StepPlan | None, Expressions]:
    """The step that undoes `step`, and its expressions. The agent of `step` does it, unless one is named."""
    if given is None:
        return None, []
    here = position.within("compensate")
    if not isinstance(given, dict):
        here.refuse(f"must be an object, not {kind_of(given)}", "write compensate: {input: …}")
    for field in given:
        if field not in WORK_FIELDS:
            here.unknown(field, Names(WORK_FIELDS), ", ".join(WORK_FIELDS))
    return read_work(step.name, given, here, namespace, defaults, done_by=step)
