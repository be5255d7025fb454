"""One way to speak to every kind of mesh: every call awaited, so that a specification is written once.

`Uniform` wraps a mesh, an agent, a subscription or a delivery of either kind. Calls of the plain twin run
in a thread. Time is virtual: `World.pass_time` moves it, event by event; only waits are real. A remote
mesh has its node, behind a real socket, in a thread of the same process, with the same clock.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from relaymesh import AsyncMesh, Mesh, MeshSettings
from relaymesh.journal import JournalSettings
from relaymesh.node.clock import Latch
from relaymesh.node.settings import Durability
from relaymesh.sdk.agent import Inbox
from relaymesh.sdk.async_agent import AsyncInbox
from relaymesh.sdk.async_delivery import AsyncDelivery
from relaymesh.sdk.delivery import Delivery
from relaymesh.testing import ManualClock
from tests.client.serving import ServerThread
from tests.node.inside import node_of

Kind = Literal["mesh", "async", "ws", "ws-async", "http-async"]
EMBEDDED: tuple[Kind, ...] = ("mesh", "async")
REMOTE: tuple[Kind, ...] = ("ws", "ws-async", "http-async")
START = datetime(2026, 1, 1, tzinfo=UTC)
LIGHT = MeshSettings(journal=JournalSettings(allocate_bytes=200_000))
IN_THE_CALLERS_THREAD = ("handle", "on")
WRAPPED = (Inbox, AsyncInbox, Delivery, AsyncDelivery)


class SteppedClock(ManualClock):
    """Mesh time is virtual; whoever waits for another thread really waits."""

    def wait(self, latch: Latch, seconds: float | None) -> bool:
        return latch.wait(seconds)


class Uniform:
    """The awaited face of one object. Its plain attributes are those of the object."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.inner, name)
        if not inspect.ismethod(value) or name in IN_THE_CALLERS_THREAD:
            return value

        async def call(*args: Any, **kwargs: Any) -> Any:
            args = tuple(bare(each) for each in args)
            if inspect.iscoroutinefunction(value):
                return faced(await value(*args, **kwargs))
            return faced(await asyncio.to_thread(value, *args, **kwargs))

        return call

    async def __aenter__(self) -> Uniform:
        if isinstance(self.inner, (Mesh, Delivery)):
            await asyncio.to_thread(self.inner.__enter__)
        else:
            await self.inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if isinstance(self.inner, (Mesh, Delivery)):
            return bool(await asyncio.to_thread(self.inner.__exit__, kind, error, trace))
        return bool(await self.inner.__aexit__(kind, error, trace))


def faced(value: Any) -> Any:
    if isinstance(value, WRAPPED):
        return Uniform(value)
    if isinstance(value, list) and value and isinstance(value[0], WRAPPED):
        return [Uniform(each) for each in value]
    return value


def bare(value: Any) -> Any:
    if isinstance(value, Uniform):
        return value.inner
    return [bare(each) for each in value] if isinstance(value, list) else value


class World(Uniform):
    """One mesh under test and its time."""

    def __init__(
        self, mesh: Mesh | AsyncMesh, clock: SteppedClock, server: ServerThread | None = None
    ) -> None:
        super().__init__(mesh)
        self.clock = clock
        self.server = server

    @property
    def node(self) -> Any:
        return node_of(self.inner) if self.server is None else self.server.node

    async def inner_close(self, **options: Any) -> None:
        """Close the mesh alone."""
        await super().__getattr__("close")(**options)

    async def close(self, *, force: bool = False, **options: Any) -> None:
        """Close the mesh, and the node behind it."""
        await self.inner_close(force=force, **options)
        if self.server is not None:
            await asyncio.to_thread(self.server.stop, force=force)

    @property
    def sequence(self) -> int:
        """How many events were ever decided: it moves when anything is written."""
        return int(self.node.core.kernel.state.sequence)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        try:
            return await super().__aexit__(kind, error, trace)
        finally:
            if self.server is not None:
                await asyncio.to_thread(self.server.stop)

    @property
    def now_s(self) -> float:
        """Mesh time in seconds since 1970."""
        return float(self.node.time.now() / 1000)

    async def pass_time(self, seconds: float) -> None:
        """Move through everything that falls due; leases in blocks and handlers are renewed."""
        end = self.clock.elapsed_ns() + round(seconds * 1e9)
        while True:
            renewed = self.inner._renewer.renew()
            if inspect.isawaitable(renewed):
                await renewed
            await self.deliver_due()
            left = end - self.clock.elapsed_ns()
            if left <= 0:
                return
            quiet_ms = max(1, self.node.core.kernel.next_event_at - self.node.time.now())
            if self.inner._renewer._held:
                quiet_ms = min(quiet_ms, 1000)
            self.clock.advance_ns(min(left, quiet_ms * 1_000_000))


@dataclass(frozen=True)
class Worlds:
    """Opens meshes of one kind and durability, again and again on the same directory."""

    kind: Kind
    durability: Durability
    path: Path
    clock: SteppedClock

    @property
    def _place(self) -> Path | None:
        return None if self.durability == "memory" else self.path

    @property
    def awaited(self) -> bool:
        """Whether the mesh is an `AsyncMesh`."""
        return self.kind.endswith("async")

    @property
    def remote(self) -> bool:
        """Whether its node is behind a socket."""
        return self.kind in REMOTE

    @asynccontextmanager
    async def __call__(self, **options: Any) -> AsyncIterator[World]:
        world = await self.open(**options)
        try:
            yield world
        finally:
            await world.close()

    async def open(self, *, workers: tuple[int, int] = (2, 4), **settings: Any) -> World:
        chosen = replace(LIGHT, durability=self.durability, **settings)
        if self.remote:
            return await self._open_remote(chosen, workers)
        if self.kind == "async":
            mesh = AsyncMesh(self._place, settings=chosen, workers=workers, clock=self.clock)
            return World(await mesh.open(), self.clock)
        opened = await asyncio.to_thread(
            Mesh, self._place, settings=chosen, workers=workers, clock=self.clock
        )
        return World(opened, self.clock)

    async def _open_remote(self, settings: MeshSettings, workers: tuple[int, int]) -> World:
        server = await asyncio.to_thread(ServerThread, self.path, settings, clock=self.clock)
        options: dict[str, Any] = {
            "token": server.token(["admin"], "*"),
            "transport": "http" if self.kind == "http-async" else "websocket",
            "workers": workers,
            "clock": self.clock,
        }
        try:
            if self.kind == "ws":
                return World(await asyncio.to_thread(Mesh, server.url, **options), self.clock, server)
            return World(await AsyncMesh(server.url, **options).open(), self.clock, server)
        except BaseException:
            await asyncio.to_thread(server.stop)
            raise
