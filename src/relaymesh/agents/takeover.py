"""The start of a supervisor: wait until no other one runs, and end the processes that a dead one left."""

from __future__ import annotations

import asyncio
from pathlib import Path

from relaymesh.agents.sweep import end_left
from relaymesh.node.disk import RealLock

__all__ = ["end_marked_with", "lock_when_free"]

LOOK_EVERY_S = 0.05


async def lock_when_free(path: Path, asked: asyncio.Event) -> RealLock | None:
    """The lock of the supervisor, once the one before it has ended. None: asked to stop first."""
    while not asked.is_set():
        try:
            return RealLock(path)
        except BlockingIOError:
            await asyncio.sleep(LOOK_EVERY_S)
    return None


def end_marked_with(mark: str) -> int:
    """End every process that carries a mark of this data directory. Returns how many were ended."""
    return sum([swept.ended for swept in end_left(f"{mark}.").values()])
