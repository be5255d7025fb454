"""Where calls are made: a mesh that is opened, ended one way or another, and opened again."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from relaymesh import AsyncMesh, Mesh, MeshSettings
from relaymesh.journal import JournalSettings
from relaymesh.node.node import Node
from relaymesh.testing import ManualClock, ManualMesh, MemoryDisk
from tests.node.inside import node_of

AGENTS = ("a1", "a2", "a3", "w1", "oracle", "stocked", "stocker", "bystander")
HANDLED = ("w1",)
"""Mailboxes that handlers serve: nobody else receives from them."""


class House:
    """A mesh of one kind. `mesh` is open between `open` and `end`."""

    kind: type
    mesh: Any
    source: str
    """The line that opens it."""

    def open(self) -> None:
        raise NotImplementedError

    def run(self, result: Any) -> Any:
        """What a call gives, awaited if need be."""
        return result

    def call(self, function: Any) -> Any:
        """Call, where programs of this kind make their calls."""
        return function()

    @property
    def node(self) -> Node:
        return node_of(self.mesh)

    def end(self, *, kill: bool) -> None:
        self.run(self.mesh.close(force=kill))

    def discard(self) -> None:
        """No more use for it."""

    def furnish(self) -> None:
        """Agents that every life has, with settings of which no call before made anything else."""
        for name in AGENTS:
            self.run(self.mesh.agent(name, capacity=100_000))
        oracle = self.run(self.mesh.agent("oracle"))
        self.call(lambda: oracle.handle(self.answer))

    def answer(self, delivery: Any) -> Any:
        mesh = self.mesh
        if isinstance(mesh, AsyncMesh):
            return self._answer_later(mesh, delivery)
        return mesh.agent("oracle").answer(delivery, "yes") and None

    async def _answer_later(self, mesh: AsyncMesh, delivery: Any) -> None:
        await (await mesh.agent("oracle")).answer(delivery, "yes")

    def bystander(self) -> None:
        """An agent that did nothing wrong sends, receives and acks."""
        agent = self.run(self.mesh.agent("bystander"))
        receipt = self.run(agent.send("bystander", {"well": True}))
        delivery = self.run(agent.receive(timeout=5))
        assert delivery.id == receipt.id, f"{delivery.envelope} came, and {receipt.id} was sent"
        assert delivery.content == {"well": True}
        self.run(delivery.ack())


class ManualHouse(House):
    """No threads, a manual clock, a disk in memory: fast, and the same every time."""

    kind = ManualMesh
    source = "mesh = ManualMesh(disk=MemoryDisk())"

    def __init__(self, folder: Path) -> None:
        self._disk = MemoryDisk()
        self._clock = ManualClock()
        self._lives = 0
        self._settings = MeshSettings(journal=JournalSettings(allocate_bytes=0))

    def open(self) -> None:
        self._lives += 1
        self.mesh = ManualMesh(disk=self._disk, clock=self._clock, settings=self._settings, seed=self._lives)


class ThreadedHouse(House):
    kind = Mesh
    source = "mesh = Mesh('data')"

    def __init__(self, folder: Path) -> None:
        self._path = folder

    def open(self) -> None:
        _begin_another_day(self._path)
        self.mesh = Mesh(self._path, settings=SMALL)


class AsyncHouse(House):
    kind = AsyncMesh
    source = "mesh = await AsyncMesh('data').open()"

    def __init__(self, folder: Path) -> None:
        self._path = folder
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(self._remember)
        self.unhandled: list[str] = []

    def _remember(self, loop: Any, context: dict[str, Any]) -> None:
        self.unhandled.append(f"{context.get('message')}: {context.get('exception')!r}")

    def open(self) -> None:
        _begin_another_day(self._path)
        self.mesh = AsyncMesh(self._path, settings=SMALL)
        self.run(self.mesh.open())

    def run(self, result: Any) -> Any:
        if not inspect.isawaitable(result):
            return result
        return self._loop.run_until_complete(_awaited(result))

    def call(self, function: Any) -> Any:
        async def inside() -> Any:
            result = function()
            return await result if inspect.isawaitable(result) else result

        return self._loop.run_until_complete(inside())

    def discard(self) -> None:
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


def _begin_another_day(path: Path) -> None:
    """A report of dead letters is written once a day: let each life write its own."""
    shutil.rmtree(path / "reports", ignore_errors=True)


async def _awaited(result: Any) -> Any:
    return await result


SMALL = MeshSettings(journal=JournalSettings(allocate_bytes=0), checkpoint_bytes=5_000_000)
HOUSES: tuple[type[Any], ...] = (ManualHouse, ThreadedHouse, AsyncHouse)


@contextlib.contextmanager
def sealed(folder: Path) -> Iterator[None]:
    """Nothing that is drawn by accident reaches a real home, or a real node."""
    kept, place = dict(os.environ), Path.cwd()
    os.environ.pop("RELAYMESH_URL", None)
    os.environ.pop("RELAYMESH_TOKEN", None)
    os.environ["RELAYMESH_HOME"] = str(folder / "home")
    os.environ["HOME"] = str(folder)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(place)
        os.environ.clear()
        os.environ.update(kept)
