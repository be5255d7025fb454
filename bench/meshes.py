"""Meshes as the measurements open them.

Nothing here but `node_of` needs more than the public API, so that `bench.compare` can run the same work on
another revision.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relaymesh import AsyncMesh, Mesh, MeshSettings

if TYPE_CHECKING:
    from relaymesh.node.node import Node
    from relaymesh.node.settings import Durability

CAPACITY = 4_000_000
CAPACITY_BYTES = 4_000_000_000
NO_CHECKPOINT = 1 << 53
POLL_S = 0.005
POLL_SHARE = 0.1
"""Of the time that a wait takes, at most this much is spent on asking: `stats` walks over all mailboxes."""


def settings(durability: Durability, **changes: Any) -> MeshSettings:
    return MeshSettings(durability=durability, **changes)


def kept_in(path: Path, durability: Durability) -> Path | None:
    """Where a mesh of this durability keeps its data: in memory nowhere."""
    return None if durability == "memory" else path


def node_of(mesh: Mesh | AsyncMesh) -> Node:
    """The node of an embedded mesh, to look at."""
    from relaymesh.node.async_local import AsyncLocalSession
    from relaymesh.node.local import LocalSession

    session = mesh._session
    assert isinstance(session, (LocalSession, AsyncLocalSession))
    return session.node


def behind(mesh: Mesh) -> int:
    """Events that are not yet synced, or not yet in the store."""
    stats = mesh.stats()
    return stats.store_lag + stats.sequence - stats.synced


async def behind_async(mesh: AsyncMesh) -> int:
    stats = await mesh.stats()
    return stats.store_lag + stats.sequence - stats.synced


def until_projected(mesh: Mesh, timeout_s: float = 120.0) -> float:
    """Wait until all is synced and in the store. Returns the seconds it took."""
    began = asked = time.perf_counter()
    while asked - began < timeout_s:
        if behind(mesh) <= 0:
            return asked - began
        time.sleep(_pause_s(asked))
        asked = time.perf_counter()
    raise TimeoutError("the store did not catch up with the journal")


async def until_projected_async(mesh: AsyncMesh, timeout_s: float = 120.0) -> float:
    began = asked = time.perf_counter()
    while asked - began < timeout_s:
        if await behind_async(mesh) <= 0:
            return asked - began
        await asyncio.sleep(_pause_s(asked))
        asked = time.perf_counter()
    raise TimeoutError("the store did not catch up with the journal")


def _pause_s(asked: float) -> float:
    """How long to wait before the next question; the last one was put at `asked`."""
    return max(POLL_S, (time.perf_counter() - asked) / POLL_SHARE)


def loop_name() -> str:
    try:
        import uvloop  # noqa: F401
    except ImportError:
        return "asyncio"
    return "uvloop"


def loop_runner() -> asyncio.Runner:
    """Runs on uvloop where it is installed, else on asyncio's own loop."""
    factory = None
    if loop_name() == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    return asyncio.Runner(loop_factory=factory)


def run_on_loop(work: Coroutine[Any, Any, Any]) -> Any:
    with loop_runner() as runner:
        return runner.run(work)


def fill(mesh: Mesh, to: str, count: int, message: Any, **fields: Any) -> None:
    """Leave `count` messages pending in a mailbox, a thousand at a time, as fast as the store follows."""
    sender = mesh.agent("filler")
    while count > 0:
        size = min(1000, count)
        sender.send_many([{"to": to, "content": message, **fields}] * size)
        count -= size
        while behind(mesh) > 100_000:
            time.sleep(0.02)


def place_of(place: Path, name: str) -> Path:
    """A directory of its own below the measurement's."""
    path = place / name
    path.mkdir(parents=True, exist_ok=True)
    return path
