"""Waiting for what another thread, task or process does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["PATIENCE_S", "until", "until_async"]

T = TypeVar("T")

PATIENCE_S = 90.0
"""Long enough for a slow machine under load. A wait that succeeds ends as soon as the condition holds."""


def until(condition: Callable[[], T], seconds: float = PATIENCE_S) -> T:
    """Wait until the condition holds. Returns what it returned."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"it did not happen within {seconds:g} s"
        time.sleep(0.005)
    return found


async def until_async(condition: Callable[[], Any], seconds: float = PATIENCE_S) -> None:
    """The same on an event loop. The condition may be a coroutine function."""
    end = time.monotonic() + seconds
    while True:
        found = condition()
        if await found if asyncio.iscoroutine(found) else found:
            return
        assert time.monotonic() < end, f"it did not happen within {seconds:g} s"
        await asyncio.sleep(0.002)
