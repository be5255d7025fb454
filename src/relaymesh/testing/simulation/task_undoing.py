"""The ledger of tasks: what a task that ends without success undoes."""

from __future__ import annotations

from typing import Any

from relaymesh.testing.simulation.task_ends import TaskEnds
from relaymesh.testing.simulation.told import StepTold, TaskTold, to_undo
from relaymesh.testing.simulation.verdict import Violation


class Undoing(TaskEnds):
    """Each step that was done is undone once, the last one first."""

    def undoing(self, at: int, record: list[Any]) -> None:
        id, numbers, uncertain = record[3:6]
        task = self._task(id, "an undoing")
        if not task.closing:
            raise Violation("undo_once", f"task {id} undoes, and does not close")
        if task.undos:
            raise Violation("undo_once", f"task {id} undoes a second time")
        if task.out:
            raise Violation("undo_order", f"task {id} undoes while {task.out[0]} is out")
        told, wanted = list(zip(numbers, uncertain, strict=True)), to_undo(task)
        if told != wanted:
            raise Violation(_what_differs(told, wanted), f"task {id} undoes {told}, not {wanted}")
        for number, doubt in told:
            undone = task.steps[number]
            undo = StepTold(task, len(task.steps), undone.plan["undo"], undoes=undone, uncertain=doubt)
            task.steps.append(undo)
            task.undos.append(undo)

    def _check_undone(self, task: TaskTold) -> None:
        """The task ends now."""
        if task.closing and not task.undos and to_undo(task):
            raise Violation("undo_once", f"task {task.id} ends, and does not undo {to_undo(task)}")
        for undo in task.undos:
            if not undo.ended:
                raise Violation("undo_once", f"task {task.id} ends before {undo}")


def _what_differs(told: list[tuple[int, bool]], wanted: list[tuple[int, bool]]) -> str:
    if sorted(number for number, _ in told) != sorted(number for number, _ in wanted):
        return "undo_once"
    return "undo_order" if [each for each, _ in told] != [each for each, _ in wanted] else "undo_uncertain"
