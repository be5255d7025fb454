"""What clients were shown of tasks: it was true, and what had ended stays as it was shown."""

from __future__ import annotations

import json

from relaymesh.testing.simulation.history import History, Shown
from relaymesh.testing.simulation.task_ledger import KEY_MS, TaskLedger
from relaymesh.testing.simulation.told import ENDS, TaskTold, same
from relaymesh.testing.simulation.verdict import Violation


def check_shown(history: History, ledger: TaskLedger, *, has_store: bool) -> None:
    for shown in history.shown:
        task = ledger.tasks.get(shown.task)
        if task is None:
            raise Violation("shown_is_true", f"task {shown.task} was shown, and the journal has it not")
        ended = 0 < task.through <= shown.synced
        if not shown.status:
            forgotten = ended and (not has_store or shown.at >= task.ended_at + KEY_MS)
            if not forgotten:
                raise Violation("shown_is_true", f"task {task.id} was not found")
        elif shown.status in ENDS:
            _check_end(shown, task)
        elif ended:
            raise Violation(
                "shown_is_true", f"task {task.id} was shown as {shown.status} after it ended as {task.end}"
            )
        _check_steps(shown, task)


def _check_end(shown: Shown, task: TaskTold) -> None:
    if shown.status != task.end:
        raise Violation(
            "shown_is_true", f"task {task.id} was shown as {shown.status}, and is {task.end or 'live'}"
        )
    if task.end == "SUCCESS" and (shown.result is None or json.loads(shown.result) != task.result):
        raise Violation("shown_is_true", f"task {task.id} was shown with the result {shown.result!r}")


def _check_steps(shown: Shown, task: TaskTold) -> None:
    """Those that had ended: a state that is no end may have changed since."""
    for name, (status, output) in shown.steps.items():
        if status not in ENDS:
            continue
        step = task.by_name(name)
        if step.status != status or (output is not None and not same(json.loads(output), step.output)):
            raise Violation(
                "shown_is_true", f"{step} was shown as {status} with {output!r}, and is {step.status}"
            )
