"""The ledger of tasks: what attempts use, and what a task may use."""

from __future__ import annotations

from typing import Any

from relaymesh.testing.simulation.task_ends import TaskEnds
from relaymesh.testing.simulation.told import StepTold, TaskTold
from relaymesh.testing.simulation.verdict import Violation


class Spending(TaskEnds):
    """Usage by token, budgets, and tasks that pause."""

    def used(self, at: int, record: list[Any]) -> None:
        id, number, token, cost, tokens = record[3:8]
        step = self._step(id, number, "usage")
        if token != step.token:
            raise Violation("usage_once", f"usage of {step} under {token}, its last grant is {step.token}")
        before = step.task.used.get(token, (0, 0))
        if cost < before[0] or tokens < before[1] or (cost, tokens) == before:
            raise Violation("usage_once", f"{step} used {before} under {token}, and then {cost}, {tokens}")
        step.task.used[token] = cost, tokens

    def paused(self, at: int, record: list[Any]) -> None:
        task = self._task(record[3], "a pause")
        if task.paused or task.closing or not task.over_budget:
            raise Violation(
                "budget_kept",
                f"task {task.id} pauses with {task.total} of {task.budget} used: {task.closing}",
            )
        task.paused = True
        self.owed.setdefault((task.id, "budget"), task.owner)

    def budget_set(self, at: int, record: list[Any]) -> None:
        task = self._task(record[3], "a budget")
        if task.closing:
            raise Violation("ended_stays", f"task {task.id} gets a budget, and closes")
        task.budget = record[4], record[5]
        task.budgets.append(task.budget)
        if not task.over_budget:
            task.paused = False
            self.owed.pop((task.id, "budget"), None)

    def withdrawn(self, step: StepTold, content: bytes, *, leased: bool) -> None:
        """Its message is taken back: it is sent again as it was."""
        if not step.task.paused or step.undoes is not None:
            raise Violation("budget_kept", f"{step} was taken back, and its task has not used its budget")
        if leased or step.status != "OUT":
            raise Violation("budget_kept", f"{step} was taken back, though it is {step.status}")
        step.status, step.sent_at, step.parked = "PENDING", -1, content

    def _check_budget(self, task: TaskTold, leased: set[StepTold]) -> None:
        """A task that has used its budget pauses at once, and nothing of it waits to be granted."""
        if task.closing or all(step.ended for step in task.steps):
            return
        if task.paused != task.over_budget:
            what = "pauses" if task.paused else "goes on"
            raise Violation("budget_kept", f"task {task.id} {what}: {task.total} of {task.budget} is used")
        for step in task.out if task.paused else ():
            if step not in leased:
                raise Violation("budget_kept", f"{step} may be granted, though its task has used its budget")
