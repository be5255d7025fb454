"""Meshes as the measurements open them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from relaymesh import AsyncMesh, Mesh, MeshSettings
from relaymesh.node.async_local import AsyncLocalSession
from relaymesh.node.local import LocalSession
from relaymesh.node.node import Node
from relaymesh.node.settings import Durability

CAPACITY = 4_000_000
CAPACITY_BYTES = 4_000_000_000
NO_CHECKPOINT = 1 << 60


def settings(durability: Durability, **changes: Any) -> MeshSettings:
    return MeshSettings(durability=durability, **changes)


def node_of(mesh: Mesh | AsyncMesh) -> Node:
    """The node of an embedded mesh, to look at."""
    session = mesh._session
    assert isinstance(session, (LocalSession, AsyncLocalSession))
    return session.node


def behind(node: Node) -> int:
    """Events that are not yet synced, or not yet in the store.

    The same as `mesh.stats()` tells, without its walk over all mailboxes, which would be measured too.
    """
    lag = node.projector.lag if node.projector is not None else 0
    return lag + node.core.unsynced


def until_projected(mesh: Mesh, timeout_s: float = 120.0) -> float:
    """Wait until all is synced and in the store; answers the seconds it took."""
    began = time.perf_counter()
    while time.perf_counter() - began < timeout_s:
        if not behind(node_of(mesh)):
            return time.perf_counter() - began
        time.sleep(0.005)
    raise TimeoutError("the store did not catch up with the journal")


async def until_projected_async(mesh: AsyncMesh, timeout_s: float = 120.0) -> float:
    began = time.perf_counter()
    while time.perf_counter() - began < timeout_s:
        if not behind(node_of(mesh)):
            return time.perf_counter() - began
        await asyncio.sleep(0.005)
    raise TimeoutError("the store did not catch up with the journal")


def loop_name() -> str:
    try:
        import uvloop  # noqa: F401
    except ImportError:
        return "asyncio"
    return "uvloop"


def run_on_loop(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine on uvloop where it is installed, else on asyncio's own loop."""
    factory = None
    if loop_name() == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work)


def fill(mesh: Mesh, to: str, count: int, message: Any, **fields: Any) -> None:
    """Leave `count` messages pending in a mailbox, a thousand at a time, as fast as the store follows."""
    sender = mesh.agent("filler")
    while count > 0:
        size = min(1000, count)
        sender.send_many([{"to": to, "content": message, **fields}] * size)
        count -= size
        while behind(node_of(mesh)) > 100_000:
            time.sleep(0.02)


def place_of(place: Path, name: str) -> Path:
    """A directory of its own below the measurement's."""
    path = place / name
    path.mkdir(parents=True, exist_ok=True)
    return path
