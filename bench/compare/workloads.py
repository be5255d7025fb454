"""The work that is measured, on the revision that this process imports.

Most of it is the bench's own (`one_by_one`, `throughput`, `server`, `recovery`, `memory`), in slices short
enough that two revisions can take turns. What only the remote rows need is imported by them.
"""

from __future__ import annotations

import asyncio
import gc
import shutil
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from bench import memory
from bench.compare.ratios import Slice
from bench.contents import content
from bench.meshes import CAPACITY, CAPACITY_BYTES, NO_CHECKPOINT, run_on_loop, settings, until_projected
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
CHECKPOINTS = 3
RECEIVE_S = 5.0


class Workloads(AbstractContextManager["Workloads"]):
    """What one process does, slice after slice. A node and filled directories are kept for later slices."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._node: Server | None = None
        self._filled: set[Path] = set()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._node is not None:
            self._node.stop()

    def run(self, work: str, params: dict[str, Any]) -> Slice:
        measure: Callable[..., Slice] = getattr(self, work)
        gc.collect()
        return measure(**params)

    # -- embedded ------------------------------------------------------------------------------

    def mesh(self, durability: Durability, batch: int, seconds: float) -> Slice:
        """One thread: send, receive, ack."""
        with Mesh(self._empty(), settings=settings(durability)) as mesh:
            pair = Pair(mesh, SIZE)
            turn = pair.same_thread if batch == 1 else partial(pair.same_thread_many, batch)
            turn()
            until_projected(mesh)
            turns = 0
            cpu, began = time.process_time(), time.perf_counter()
            while (took := time.perf_counter() - began) < seconds:
                turn()
                turns += 1
            until_projected(mesh)
            return Slice(amount=turns * batch, wall_s=took, cpu_s=time.process_time() - cpu)

    def async_(self, durability: Durability, batch: int, seconds: float) -> Slice:
        return self._on_loop(
            partial(AsyncMesh, self._empty(), settings=settings(durability)),
            _traffic(batch, seconds, SENDERS["async"], RECEIVERS["async"]),
        )

    # -- a node over loopback ------------------------------------------------------------------

    def websocket(self, batch: int, seconds: float) -> Slice:
        from bench.peers.relaymesh_ws import RECEIVERS, SENDERS

        node = self._running()
        before = _cpu_s(node.pid)
        done = self._on_loop(
            partial(AsyncMesh, f"http://127.0.0.1:{node.port}"),
            _traffic(batch, seconds, SENDERS, RECEIVERS),
        )
        return done + Slice(amount=0, cpu_s=_cpu_s(node.pid) - before)

    def posts(self, seconds: float) -> Slice:
        """Single POSTs. The processor time is the node's: the client here is not RelayMesh's."""
        from bench.peers import relaymesh_ws
        from bench.server import posts

        node = self._running()
        before, began = _cpu_s(node.pid), time.perf_counter()
        found = run_on_loop(posts(node, seconds))
        took, cpu = time.perf_counter() - began, _cpu_s(node.pid) - before
        relaymesh_ws.set_up(node.port)  # takes out what was posted
        return Slice(amount=found["posts"], wall_s=took, cpu_s=cpu)

    # -- a directory ---------------------------------------------------------------------------

    def recovery(self, what: str, count: int) -> Slice:
        """Open a directory of `count` messages, pending or acked, without a checkpoint."""
        data = self._directory(what, count)
        cpu, began = time.process_time(), time.perf_counter()
        mesh = Mesh(data, settings=settings("batched", checkpoint_bytes=NO_CHECKPOINT))
        took, cpu = time.perf_counter() - began, time.process_time() - cpu
        with mesh:
            if mesh.stats().pending != (count if what == "live" else 0):
                raise AssertionError(f"{mesh.stats().pending} messages came back of {count} {what} ones")
        return Slice(amount=count, wall_s=took, cpu_s=cpu)

    def checkpoint(self, count: int) -> Slice:
        """Checkpoints of `count` pending messages; one message is sent before each."""
        data = self._directory("live", count, name="checkpoint")
        wall = cpu = 0.0
        with Mesh(data, settings=settings("batched", checkpoint_bytes=NO_CHECKPOINT)) as mesh:
            sender = mesh.agent("filler")
            for _ in range(CHECKPOINTS):
                sender.send("consumer", content("json", SIZE))
                until_projected(mesh)
                spent, began = time.process_time(), time.perf_counter()
                mesh.checkpoint()
                wall += time.perf_counter() - began
                cpu += time.process_time() - spent
        return Slice(amount=CHECKPOINTS, wall_s=wall, cpu_s=cpu)

    def memory(self, count: int) -> Slice:
        """Resident memory that `count` pending messages add, half of them in each of two mailboxes."""
        place = self._empty()
        found = memory.measure(place, pending=count // 2, size=SIZE)
        return Slice(amount=count, bytes=found["first_added_bytes"] + found["added_bytes"])

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

    @staticmethod
    def _on_loop(opened: Callable[[], AsyncMesh], work: Callable[[AsyncMesh], Awaitable[Slice]]) -> Slice:
        async def run() -> Slice:
            async with opened() as mesh:
                return await work(mesh)

        done: Slice = run_on_loop(run())
        return done


def _traffic(
    batch: int, seconds: float, senders: dict[int, int], receivers: dict[int, int]
) -> Callable[[AsyncMesh], Awaitable[Slice]]:
    if batch == 1:
        return partial(_singles, seconds=seconds)
    traffic = Traffic(batch, seconds, senders[batch], receivers[batch], content("json", SIZE))
    return partial(_batches, traffic=traffic)


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
