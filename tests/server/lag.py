"""How long an event loop leaves others waiting: sampled by a task that wants to run all the time."""

from __future__ import annotations

import asyncio
import gc
import time
from types import TracebackType
from typing import Self


class Lag:
    """`longest`: the most processor time, in seconds, that one turn of the loop took while this was open.

    What the process held before is frozen, as a served node does it: a collection that visits the heap of a
    thousand other tests is not the loop's fault.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        self._task: asyncio.Task[None]

    async def __aenter__(self) -> Self:
        gc.freeze()
        self._task = asyncio.create_task(self._sample())
        await asyncio.sleep(0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.sleep(0)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        gc.unfreeze()

    async def _sample(self) -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.longest = max(self.longest, now - last)
            last = now
