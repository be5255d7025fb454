"""The work that is measured, on the revision that this process imports.

Most of it is the bench's own (`one_by_one`, `throughput`, `server`, `recovery`, `memory`), in slices short
enough that two revisions can take turns. What only the remote rows need is imported by them.
"""

from __future__ import annotations

import asyncio
import gc
import shutil
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from bench import memory
from bench.compare.ratios import Slice
from bench.contents import content
from bench.meshes import (
    CAPACITY,
    CAPACITY_BYTES,
    NO_CHECKPOINT,
    kept_in,
    loop_runner,
    run_on_loop,
    settings,
    until_projected,
)
from bench.one_by_one import Pair
from bench.profiled import Profile
from bench.recovery import fill_directory
from bench.throughput import RECEIVERS, SENDERS, Traffic, flow
from relaymesh import AsyncMesh, Mesh

if TYPE_CHECKING:
    from bench.peers.server import Server
    from relaymesh.node.settings import Durability

SIZE = 200
SINGLES = 16
"""Tasks that send, receive and ack one message at a time."""
RECEIVE_S = 5.0


class Workloads(AbstractContextManager["Workloads"]):
    """What one process does, slice after slice.

    A mesh stays open for the slices of its row, so that slices can be short; a node and filled directories
    are kept for later rows too.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._node: Server | None = None
        self._filled: set[Path] = set()
        self._row = ""
        self._open = ExitStack()
        self._slice: Callable[[], Slice] | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()
        if self._node is not None:
            self._node.stop()

    def run(self, work: str, params: dict[str, Any]) -> Slice:
        row = f"{work} {params}"
        if self._slice is None or row != self._row:
            self._open.close()
            self._slice = getattr(self, work)(**params)
            self._row = row
        gc.collect()
        return self._slice()

    # -- embedded ------------------------------------------------------------------------------

    def mesh(self, durability: Durability, batch: int, seconds: float) -> Callable[[], Slice]:
        """One thread: send, receive, ack."""
        opened = Mesh(
            kept_in(self._empty(), durability), settings=settings(durability, checkpoint_bytes=NO_CHECKPOINT)
        )
        mesh = self._open.enter_context(opened)
        pair = Pair(mesh, SIZE)
        turn = pair.same_thread if batch == 1 else partial(pair.same_thread_many, batch)
        turn()

        def measure() -> Slice:
            until_projected(mesh)
            turns = 0
            cpu, began = time.process_time(), time.perf_counter()
            while (took := time.perf_counter() - began) < seconds:
                turn()
                turns += 1
            until_projected(mesh)
            return Slice(amount=turns * batch, wall_s=took, cpu_s=time.process_time() - cpu)

        return measure

    def async_mesh(self, durability: Durability, batch: int, seconds: float) -> Callable[[], Slice]:
        opened = AsyncMesh(
            kept_in(self._empty(), durability), settings=settings(durability, checkpoint_bytes=NO_CHECKPOINT)
        )
        return self._on_loop(opened, _traffic(batch, seconds, SENDERS["async"], RECEIVERS["async"]))

    # -- a node over loopback ------------------------------------------------------------------

    def websocket(self, batch: int, seconds: float) -> Callable[[], Slice]:
        from bench.peers.relaymesh_ws import RECEIVERS, SENDERS

        node = self._running()
        opened = AsyncMesh(f"http://127.0.0.1:{node.port}")
        client = self._on_loop(opened, _traffic(batch, seconds, SENDERS, RECEIVERS))

        def measure() -> Slice:
            before = _cpu_s(node.pid)
            return client() + Slice(amount=0, cpu_s=_cpu_s(node.pid) - before)

        return measure

    def posts(self, seconds: float) -> Callable[[], Slice]:
        """Single POSTs. The processor time is the node's: the client here is not RelayMesh's."""
        from bench.peers import relaymesh_ws
        from bench.server import posts

        node = self._running()

        def measure() -> Slice:
            before, began = _cpu_s(node.pid), time.perf_counter()
            found = run_on_loop(posts(node, seconds))
            took, cpu = time.perf_counter() - began, _cpu_s(node.pid) - before
            relaymesh_ws.set_up(node.port)  # takes out what was posted
            return Slice(amount=found["posts"], wall_s=took, cpu_s=cpu)

        return measure

    # -- a directory ---------------------------------------------------------------------------

    def recovery(self, what: str, count: int) -> Callable[[], Slice]:
        """Open a directory of `count` messages, pending or acked, without a checkpoint."""
        data = self._directory(what, count)

        def measure() -> Slice:
            cpu, began = time.process_time(), time.perf_counter()
            mesh = Mesh(data, settings=settings("batched", checkpoint_bytes=NO_CHECKPOINT))
            took, cpu = time.perf_counter() - began, time.process_time() - cpu
            with mesh:
                if mesh.stats().pending != (count if what == "live" else 0):
                    raise AssertionError(f"{mesh.stats().pending} messages came back of {count} {what} ones")
            return Slice(amount=count, wall_s=took, cpu_s=cpu)

        return measure

    def checkpoint(self, count: int) -> Callable[[], Slice]:
        """Checkpoints of `count` pending messages; one message is sent before each."""
        data = self._directory("live", count, name="checkpoint")
        opened = Mesh(data, settings=settings("batched", checkpoint_bytes=NO_CHECKPOINT))
        mesh = self._open.enter_context(opened)
        sender = mesh.agent("filler")

        def measure() -> Slice:
            sender.send("consumer", content("json", SIZE))
            until_projected(mesh)
            cpu, began = time.process_time(), time.perf_counter()
            mesh.checkpoint()
            return Slice(amount=1, wall_s=time.perf_counter() - began, cpu_s=time.process_time() - cpu)

        return measure

    def memory(self, count: int) -> Callable[[], Slice]:
        """Resident memory that `count` pending messages add, half of them in each of two mailboxes."""

        def measure() -> Slice:
            found = memory.measure(self._empty(), pending=count // 2, size=SIZE)
            return Slice(amount=count, bytes=found["first_added_bytes"] + found["added_bytes"])

        return measure

    # ------------------------------------------------------------------------------------------

    def _empty(self) -> Path:
        path = self._place / "slice"
        shutil.rmtree(path, ignore_errors=True)
        return path

    def _directory(self, what: str, count: int, name: str | None = None) -> Path:
        path = self._place / (name or what)
        if path not in self._filled:
            fill_directory(path, what, count, size=SIZE)
            self._filled.add(path)
            gc.collect()
        return path

    def _running(self) -> Server:
        if self._node is None:
            place = self._place / "node"
            place.mkdir()
            from bench.peers import relaymesh_ws

            self._node = relaymesh_ws.start(place)
        return self._node

    def _on_loop(
        self, opened: AsyncMesh, work: Callable[[AsyncMesh], Coroutine[Any, Any, Slice]]
    ) -> Callable[[], Slice]:
        """Enter the mesh on a loop that is kept as long as it."""
        runner = self._open.enter_context(loop_runner())
        mesh = runner.run(opened.__aenter__())
        self._open.callback(lambda: runner.run(opened.__aexit__(None, None, None)))
        return lambda: runner.run(work(mesh))


def _traffic(
    batch: int, seconds: float, senders: dict[int, int], receivers: dict[int, int]
) -> Callable[[AsyncMesh], Coroutine[Any, Any, Slice]]:
    if batch == 1:
        return partial(_singles, seconds=seconds)
    message = content("json", SIZE)
    return lambda mesh: _batches(mesh, Traffic(batch, seconds, senders[batch], receivers[batch], message))


async def _batches(mesh: AsyncMesh, traffic: Traffic) -> Slice:
    found = await flow(mesh, traffic, Profile(False))
    messages: int = found["messages"]
    return Slice(amount=messages, wall_s=found["seconds"], cpu_s=found["cpu_us"] * messages / 1e6)


async def _singles(mesh: AsyncMesh, seconds: float) -> Slice:
    """Tasks that each send one message, receive one, and ack it."""
    message = content("json", SIZE)
    producer = await mesh.agent("producer")
    consumer = await mesh.agent("consumer", capacity=CAPACITY, capacity_bytes=CAPACITY_BYTES)
    cpu, began = time.process_time(), time.perf_counter()

    async def one_by_one() -> int:
        done = 0
        while time.perf_counter() - began < seconds:
            await producer.send("consumer", message)
            delivery = await consumer.receive(timeout=RECEIVE_S)
            _ = delivery.content
            await delivery.ack()
            done += 1
        return done

    counts = await asyncio.gather(*(one_by_one() for _ in range(SINGLES)))
    took = time.perf_counter() - began
    return Slice(amount=sum(counts), wall_s=took, cpu_s=time.process_time() - cpu)


def _cpu_s(pid: int) -> float:
    """Processor seconds of another process, to the nanosecond: Linux numbers its clock by its id."""
    return time.clock_gettime(~pid << 3 | 2)
