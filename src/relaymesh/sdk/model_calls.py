"""Model calls: how many blocks of one program may call a model at once (`llm_parallel_limit`)."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator

from relaymesh.wire.parameters import DEFAULTS

__all__ = ["AsyncModelCalls", "ModelCalls"]


class ModelCalls:
    """For threads. A lower limit interrupts nothing: new calls wait until there are fewer."""

    def __init__(self) -> None:
        self._limit = DEFAULTS.llm_parallel_limit
        self._out = 0
        self._changed = threading.Condition()

    def limit_to(self, limit: int) -> None:
        with self._changed:
            self._limit = limit
            self._changed.notify_all()

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: self._out < self._limit)
            self._out += 1
        try:
            yield
        finally:
            with self._changed:
                self._out -= 1
                self._changed.notify_all()


class AsyncModelCalls:
    """For one event loop."""

    def __init__(self) -> None:
        self._limit = DEFAULTS.llm_parallel_limit
        self._out = 0
        self._waiting: list[asyncio.Future[None]] = []

    def limit_to(self, limit: int) -> None:
        self._limit = limit
        self._wake()

    @contextlib.asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        while self._out >= self._limit:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn in self._waiting:
                    self._waiting.remove(turn)
                else:
                    self._wake()  # the turn was ours: another one takes it
                raise
        self._out += 1
        try:
            yield
        finally:
            self._out -= 1
            self._wake()

    def _wake(self) -> None:
        """As many as there is room for."""
        for turn in self._waiting[: max(0, self._limit - self._out)]:
            self._waiting.remove(turn)
            if not turn.done():
                turn.set_result(None)
