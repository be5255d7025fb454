"""Growing: a step ends as more steps. Its holder asks for them, or its plan names a stored workflow.

They belong to the same task: one budget, one deadline, one cancel. The step completes with their outputs.
"""

from __future__ import annotations

from relaymesh.errors import InvalidPlan
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.tasks.plan import STEPS_MAX, StepPlan, check_steps
from relaymesh.kernel.tasks.submitting import require_mailbox
from relaymesh.kernel.tasks.task import Task

DEPTH_MAX = 8
"""Steps that go on as steps that go on as steps …"""


def check_growth(decision: Decision, task: Task, number: int, steps: tuple[StepPlan, ...]) -> None:
    """Refuse a group that is too deep, too large, or whose agents are not there."""
    name = task.name_of(number)
    check_steps(steps, f"step {name}")
    if task.depth_of(number) >= DEPTH_MAX:
        raise InvalidPlan(f"step {name} lies {DEPTH_MAX} groups deep, and no deeper one is allowed")
    count = len(task.steps) - len(task.plan.steps) + len(steps)
    if count > STEPS_MAX:
        raise InvalidPlan(
            f"step {name} adds {len(steps)} steps: a task may have {STEPS_MAX} beside its plan, not {count}"
        )
    for step in steps:
        outside = [*step.outer, *(step.undo.outer if step.undo is not None else ())]
        if any(each >= len(task.steps) for each in outside):
            raise InvalidPlan(f"step {name}/{step.name} reads a step that is not there")
        for each in (step, step.undo):
            if each is not None and each.mailbox:
                require_mailbox(decision, task.namespace, f"{name}/{step.name}", each.mailbox)
