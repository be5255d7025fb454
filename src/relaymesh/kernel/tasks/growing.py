"""Growing: a step is replaced by more steps. Its holder asks for them, or its plan names a stored workflow.

They belong to the same task: one budget, one deadline, one cancel. The step completes with their outputs.
"""

from __future__ import annotations

from relaymesh.errors import InvalidPlan
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.tasks.plan import STEPS_MAX, StepPlan, check_steps
from relaymesh.kernel.tasks.submitting import require_mailbox
from relaymesh.kernel.tasks.task import Task

DEPTH_MAX = 8
"""How deep groups of steps may be nested."""


def check_growth(decision: Decision, task: Task, number: int, steps: tuple[StepPlan, ...]) -> None:
    """Refuse a group that is too deep, too large, or has unknown agents."""
    name = task.name_of(number)
    check_steps(steps, f"step {name}")
    if task.depth_of(number) >= DEPTH_MAX:
        raise InvalidPlan(f"step {name} lies {DEPTH_MAX} groups deep; a deeper group is not allowed")
    count = len(task.steps) - len(task.plan.steps) + len(steps)
    if count > STEPS_MAX:
        raise InvalidPlan(
            f"step {name} adds {len(steps)} steps: a task may have {STEPS_MAX} beside its plan, not {count}"
        )
    for step in steps:
        outside = [*step.outer, *(step.undo.outer if step.undo is not None else ())]
        if any(each >= len(task.steps) for each in outside):
            raise InvalidPlan(f"step {name}/{step.name} reads a step that does not exist")
        for each in (step, step.undo):
            if each is not None and each.mailbox:
                require_mailbox(decision, task.namespace, f"{name}/{step.name}", each.mailbox)
