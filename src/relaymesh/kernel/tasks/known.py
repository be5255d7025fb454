"""Every task that the kernel knows, in the order of submission: a list of tasks begins at the newest."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from relaymesh.kernel.tasks.task import Task
from relaymesh.kernel.tasks.views import TaskShown

LOOKS_MAX = 2_000
"""Tasks that one look of a list looks at: about a millisecond, whatever it is to find."""


class Known:
    """Live tasks, and those that ended a moment ago, by the sequence of their submission."""

    __slots__ = ("_order", "_tasks")

    def __init__(self) -> None:
        self._tasks: dict[int, Task | TaskShown] = {}
        self._order: list[int] = []
        """Their sequences, the oldest first, and those of tasks that were forgotten since it was tidied."""

    def __len__(self) -> int:
        return len(self._tasks)

    def begin(self, task: Task) -> None:
        self._tasks[task.sequence] = task
        insort(self._order, task.sequence)

    def end(self, shown: TaskShown) -> None:
        """It ended, and is known for a while."""
        self._tasks[shown.task.sequence] = shown

    def forget(self, sequence: int) -> None:
        del self._tasks[sequence]
        if len(self._order) > 2 * len(self._tasks) + LOOKS_MAX:
            self._order = [each for each in self._order if each in self._tasks]

    def before(self, sequence: int | None) -> Iterator[tuple[int, Task | TaskShown | None]]:
        """From the newest one submitted before this sequence; None in place of a task: it is forgotten."""
        order, tasks = self._order, self._tasks
        at = len(order) if sequence is None else bisect_left(order, sequence)
        while at:
            at -= 1
            yield order[at], tasks.get(order[at])
