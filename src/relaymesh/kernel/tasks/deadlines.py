"""When tasks and steps run out of time, and when waits are over."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from relaymesh.kernel.moment import NEVER
from relaymesh.kernel.tasks.task import Task

SWEEP_MIN = 64
"""How many timers are kept before ended ones are removed."""


class Deadlines:
    """When tasks and steps run out of time. Ended items are dropped lazily: when their time comes, or when
    they may be half of all. It holds names, never tasks, so that an ended task is freed.
    """

    __slots__ = ("_heap", "_live", "_sweep_at", "_ties", "next")

    def __init__(self, live: dict[str, Task]) -> None:
        self._live = live
        self._heap: list[tuple[int, int, str, int]] = []
        """Time, tie, task, and its step or -1."""
        self._ties = 0
        self._sweep_at = SWEEP_MIN
        self.next = NEVER

    def add_task(self, task: Task) -> None:
        if task.deadline_at:
            self._push(task.deadline_at, task, -1)

    def add_step(self, task: Task, number: int) -> None:
        at = task.times_out_at(number)
        if at:
            self._push(at, task, number)

    def _push(self, at: int, task: Task, number: int) -> None:
        self._ties += 1
        heappush(self._heap, (at, self._ties, task.id, number))
        if len(self._heap) >= self._sweep_at:
            self._sweep()
        self.next = self._heap[0][0]

    def pop_due(self, now: int) -> Iterator[tuple[Task, int]]:
        """Tasks, with a step or -1, whose time is over. Each is checked when its turn comes, because handling
        the one before may have ended it.
        """
        while self._heap and self._heap[0][0] <= now:
            item = heappop(self._heap)
            self.next = self._heap[0][0] if self._heap else NEVER
            if self._waits(item):
                yield self._live[item[2]], item[3]

    def _waits(self, item: tuple[int, int, str, int]) -> bool:
        at, _, id, number = item
        task = self._live.get(id)
        if task is None:
            return False
        return at == (task.deadline_at if number < 0 else task.times_out_at(number))

    def _sweep(self) -> None:
        self._heap = [item for item in self._heap if self._waits(item)]
        heapify(self._heap)
        self._sweep_at = SWEEP_MIN + 2 * len(self._heap)

    def __len__(self) -> int:
        return len(self._heap)
