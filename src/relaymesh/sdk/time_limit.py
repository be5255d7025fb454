"""The time that one run of a handler may take.

A coroutine is stopped: cancelled where it waits, and nacked once it has ended. A plain function cannot be
stopped: its delivery is nacked when the time is over, and what it returns or raises later is ignored.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import threading
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any

__all__ = ["TimeLimit", "call_awaited_within", "call_within"]


class TimeLimit:
    """Either the run ends first or its time is over first, never both: two threads may race for it.

    In a `with` block around the run; the block raises `TimeoutError` if the time was over first.
    """

    __slots__ = ("_ended", "_lock", "_stop", "at", "delivery", "over", "seconds", "stopped")

    def __init__(self, delivery: Any, seconds: float, now: int) -> None:
        self.delivery = delivery
        self.seconds = seconds
        self.at = now + math.ceil(seconds * 1000)
        """Mesh time at which it is over."""
        self.over = False
        self.stopped = False
        self._ended = False
        self._stop: Callable[[], object] | None = None
        self._lock = threading.Lock()

    @property
    def error(self) -> TimeoutError:
        return TimeoutError(f"the handler took longer than its time limit of {self.seconds:g} s")

    def may_stop(self, stop: Callable[[], object] | None) -> None:
        """From here on `stop` stops the run; None: nothing does. Raises `TimeoutError` if it is too late."""
        with self._lock:
            if self.over and stop is not None:
                raise self.error
            self._stop = stop

    def expire(self) -> bool:
        """The time is over. Returns whether to nack now: a run that is stopped is nacked at its end."""
        with self._lock:
            if self._ended or self.over:
                return False
            self.over = True
            if self._stop is not None:
                self.stopped = True
                self._stop()
            return not self.stopped

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._ended = True
        if self.over and (error is None or isinstance(error, (Exception, asyncio.CancelledError))):
            raise self.error from error


def call_within(limit: TimeLimit, handler: Callable[[Any], Any]) -> Any:
    """Run a handler in this thread; a coroutine on a loop of its own. Returns what it returns."""
    with limit:
        result = handler(limit.delivery)
        if inspect.isawaitable(result):
            result = asyncio.run(_stoppable(limit, result))
    return result


async def _stoppable(limit: TimeLimit, awaitable: Awaitable[Any]) -> Any:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    try:
        limit.may_stop(lambda: loop.call_soon_threadsafe(task.cancel))
        return await awaitable
    finally:
        limit.may_stop(None)
        if inspect.iscoroutine(awaitable):
            awaitable.close()


async def call_awaited_within(
    limit: TimeLimit, handler: Callable[[Any], Any], in_thread: Callable[..., Awaitable[Any]]
) -> Any:
    """Run a handler on this loop; a plain function by `in_thread`. Returns what it returns."""
    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()
    try:
        with limit:
            if inspect.iscoroutinefunction(handler):
                limit.may_stop(task.cancel)
                return await handler(limit.delivery)
            result = await in_thread(handler, limit.delivery)
            if inspect.isawaitable(result):
                try:
                    limit.may_stop(task.cancel)
                    return await result
                finally:
                    if inspect.iscoroutine(result):
                        result.close()
            return result
    finally:
        if limit.stopped and task.uncancel() > before:
            raise asyncio.CancelledError  # by the mesh that closes, at the same time
