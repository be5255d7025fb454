"""An agent of several processes: a worker for each, and each work goes to the one that has the fewest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from relaymesh.agents.adapter import Event, Outcome, Work
from relaymesh.agents.worker import Worker

__all__ = ["WorkerGroup"]


class WorkerGroup:
    """The adapter. A worker starts its process with the first work that it gets."""

    keeps_process = True

    def __init__(self, workers: Sequence[Worker]) -> None:
        self._workers = list(workers)
        self._under_way = [0] * len(self._workers)

    async def run(self, work: Work, emit: Callable[[Event], None]) -> Outcome:
        """One work, on one of the processes."""
        number = self._under_way.index(min(self._under_way))
        self._under_way[number] += 1
        try:
            return await self._workers[number].run(work, emit)
        finally:
            self._under_way[number] -= 1

    async def close(self) -> None:
        """End all of them at once; one that fails keeps no other from ending."""
        closed = await asyncio.gather(*[each.close() for each in self._workers], return_exceptions=True)
        for error in closed:
            if error is not None:
                raise error
