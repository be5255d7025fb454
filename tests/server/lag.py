"""How long an event loop leaves others waiting: sampled by a task that wants to run all the time."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Self


class Lag:
    """`longest`: the most processor time, in seconds, that one turn of the loop took while this was open."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._task: asyncio.Task[None]

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._sample())
        await asyncio.sleep(0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.sleep(0)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _sample(self) -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.longest = max(self.longest, now - last)
            last = now
