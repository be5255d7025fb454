"""How a task ended, for its caller."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from relaymesh.errors import NoAnswer, NotFound, TaskFailed
from relaymesh.kernel.tasks.status import TASK_ENDS
from relaymesh.kernel.tasks.views import TaskShown

__all__ = ["WATCH_S", "found", "result_of", "spent"]

Shown = TypeVar("Shown")

WATCH_S = 20.0
"""How long one request waits for a change; then the next request continues."""


def found(shown: Shown | None, id: str) -> Shown:
    if shown is None:
        raise NotFound(f"there is no task {id}", hint="relaymesh task list shows tasks and their states")
    return shown


def spent(rest: float, mesh_s: float, here_s: float) -> float:
    """How much of `rest` seconds a watch took, by the clock of the mesh, or by that of this process if the
    former did not move. Less than `rest`: it returned early, because its node was stopping.
    """
    return mesh_s if mesh_s >= rest else max(mesh_s, min(rest, here_s))


def result_of(shown: TaskShown, timeout: float | None) -> Any:
    """The result of a success; raises for any other state."""
    task = shown.task
    if task.status == "SUCCESS":
        return msgspec.json.decode(task.result or b"null")
    if task.status not in TASK_ENDS:
        raise NoAnswer(
            f"task {task.task} is {task.status} after {timeout:g} s, with {task.steps_ended} of"
            f" {task.steps_total} steps ended",
            hint="it goes on: ask again, or look at task.show()",
        )
    raise TaskFailed(f"task {task.task} ended as {task.status}: {task.reason or 'no reason was given'}")
