"""Top rate: send → deliver → ack, with several sends and at least two receives outstanding.

Senders send batches, one after the other, each waiting for its receipts; receivers take batches and ack
them. Nothing limits the senders but a window on what is not yet acked, so that what is measured
is a flow and not a queue that fills; a sender that meets it sleeps until an ack opens it again. The store
projects all the while, and the processor time counts until it has caught up.
"""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.contents import Kind, content
from bench.meshes import (
    CAPACITY,
    CAPACITY_BYTES,
    kept_in,
    loop_name,
    run_on_loop,
    settings,
    until_projected,
    until_projected_async,
)
from bench.profiled import Profile
from bench.resident import cpu_by_thread, peak_bytes, rss_bytes
from relaymesh import AsyncMesh, Mesh, StoreLagging

if TYPE_CHECKING:
    from relaymesh.node.settings import Durability
    from relaymesh.sdk.agent import Agent
    from relaymesh.sdk.async_agent import AsyncAgent

SENDERS = {"mesh": {1: 16, 100: 3, 1000: 2}, "async": {1: 64, 100: 4, 1000: 3}}
"""Sends outstanding, by batch: one by one they share syncs, large batches need only overlap."""
RECEIVERS = {"mesh": {1: 4, 100: 2, 1000: 2}, "async": {1: 16, 100: 2, 1000: 2}}
WINDOW_BATCHES = 20
WINDOW_MIN = 2_000
RECEIVE_S = 0.1
STALL_S = 0.005


@dataclass
class Traffic:
    """One run: how it is driven, and what it has come to. Counters have one writer each."""

    batch: int
    seconds: float
    senders: int
    receivers: int
    message: Any
    sent: list[int] = field(default_factory=list)
    acked: list[int] = field(default_factory=list)
    stalls: int = 0
    deadline: float = 0.0
    done_at: float = 0.0
    sending: int = 0
    owed: int = 0
    """Acked messages that have not yet made up a stride."""

    def start(self) -> None:
        self.sent = [0] * self.senders
        self.acked = [0] * self.receivers
        self.sending = self.senders
        self.deadline = time.perf_counter() + self.seconds

    @property
    def stride(self) -> int:
        """Batches that a sender sends between two looks at the window."""
        return max(1, 100 // self.batch)

    @property
    def strides(self) -> int:
        """The window: how many strides may be on their way."""
        return max(WINDOW_MIN, self.batch * WINDOW_BATCHES) // (self.batch * self.stride)

    def arrived(self, index: int, count: int) -> int:
        """Note what was acked. Answers how many strides that frees."""
        self.acked[index] += count
        self.done_at = time.perf_counter()
        freed, self.owed = divmod(self.owed + count, self.batch * self.stride)
        return freed

    @property
    def finished(self) -> bool:
        return self.sending == 0 and sum(self.acked) == sum(self.sent)


def measure(
    place: Path,
    *,
    api: str,
    durability: Durability,
    batch: int,
    size: int,
    seconds: float,
    kind: Kind = "json",
    senders: int | None = None,
    receivers: int | None = None,
    profile: bool = False,
) -> dict[str, Any]:
    traffic = Traffic(
        batch,
        seconds,
        senders or SENDERS[api][batch],
        receivers or RECEIVERS[api][batch],
        content(kind, size),
    )
    tracer = Profile(profile)
    if api == "async":
        found = run_on_loop(_async_run(place, durability, traffic, tracer))
    else:
        found = _thread_run(place, durability, traffic, tracer)
    return {
        "api": api,
        "loop": loop_name() if api == "async" else None,
        "durability": durability,
        "batch": batch,
        "size": size,
        "kind": kind,
        "senders": traffic.senders,
        "receivers": traffic.receivers,
        "stalls": traffic.stalls,
        "peak_bytes": peak_bytes(),
        "profile": tracer.top(),
        **found,
    }


def _figures(traffic: Traffic, began: float, cpu: float, stats: Any, drain_s: float) -> dict[str, Any]:
    messages = sum(traffic.acked)
    took = traffic.done_at - began
    return {
        "messages": messages,
        "seconds": took,
        "rate": messages / took,
        "rate_with_store": messages / (took + drain_s),
        "cpu_us": cpu / messages * 1e6,
        "cores_busy": cpu / (took + drain_s),
        "store_lag": stats.store_lag,
        "drain_s": drain_s,
        "journal_bytes_per_message": stats.journal_bytes / messages,
        "rss_bytes": rss_bytes(),
    }


# -- threads ----------------------------------------------------------------------------------


def _thread_run(place: Path, durability: Durability, traffic: Traffic, tracer: Profile) -> dict[str, Any]:
    with Mesh(kept_in(place / "data", durability), settings=settings(durability)) as mesh:
        mesh.agent("consumer", capacity=CAPACITY, capacity_bytes=CAPACITY_BYTES)
        before = cpu_by_thread()
        window = threading.Semaphore(traffic.strides)
        noting = threading.Lock()
        traffic.start()
        began, cpu = time.perf_counter(), time.process_time()
        threads = [
            *(
                threading.Thread(target=_send, args=(mesh, traffic, i, window))
                for i in range(traffic.senders)
            ),
            *(
                threading.Thread(target=_receive, args=(mesh, traffic, i, window, noting))
                for i in range(1, traffic.receivers)
            ),
        ]
        for thread in threads:
            thread.start()
        with tracer.running():
            _receive(mesh, traffic, 0, window, noting)
        for thread in threads:
            thread.join()
        stats = mesh.stats()
        drain_s = until_projected(mesh)
        cpu = time.process_time() - cpu
        return {**_figures(traffic, began, cpu, stats, drain_s), "threads": _difference(before)}


def _send(mesh: Mesh, traffic: Traffic, index: int, window: threading.Semaphore) -> None:
    agent = mesh.agent(f"producer-{index}")
    batch = [{"to": "consumer", "content": traffic.message} for _ in range(traffic.batch)]
    try:
        while time.perf_counter() < traffic.deadline:
            window.acquire()
            for _ in range(traffic.stride):
                while not _sent(agent, batch):
                    traffic.stalls += 1
                    time.sleep(STALL_S)
                traffic.sent[index] += traffic.batch
    finally:
        traffic.sending -= 1


def _sent(agent: Agent, batch: list[dict[str, Any]]) -> bool:
    try:
        agent.send_many(batch)
    except StoreLagging:
        return False
    return True


def _receive(
    mesh: Mesh, traffic: Traffic, index: int, window: threading.Semaphore, noting: threading.Lock
) -> None:
    agent = mesh.agent("consumer")
    while True:
        deliveries = agent.receive_many(traffic.batch, timeout=RECEIVE_S)
        if deliveries:
            for delivery in deliveries:
                _ = delivery.content
            mesh.ack_many(deliveries)
            with noting:
                freed = traffic.arrived(index, len(deliveries))
            if freed:
                window.release(freed)
        elif traffic.finished:
            return


def _difference(before: dict[str, float]) -> dict[str, float]:
    """Processor seconds of the threads that outlive the traffic; senders' and receivers' are the rest."""
    return {name: round(s - before.get(name, 0.0), 3) for name, s in cpu_by_thread().items()}


# -- event loop -------------------------------------------------------------------------------


async def _async_run(
    place: Path, durability: Durability, traffic: Traffic, tracer: Profile
) -> dict[str, Any]:
    async with AsyncMesh(kept_in(place / "data", durability), settings=settings(durability)) as mesh:
        return await flow(mesh, traffic, tracer)


async def flow(mesh: AsyncMesh, traffic: Traffic, tracer: Profile) -> dict[str, Any]:
    """The traffic on an open mesh, embedded or remote. Processor time is that of this process alone."""
    await mesh.agent("consumer", capacity=CAPACITY, capacity_bytes=CAPACITY_BYTES)
    before = cpu_by_thread()
    window = asyncio.Semaphore(traffic.strides)
    traffic.start()
    began, cpu = time.perf_counter(), time.process_time()
    with tracer.running():
        await asyncio.gather(
            *(_async_send(mesh, traffic, i, window) for i in range(traffic.senders)),
            *(_async_receive(mesh, traffic, i, window) for i in range(traffic.receivers)),
        )
    stats = await mesh.stats()
    drain_s = await until_projected_async(mesh)
    cpu = time.process_time() - cpu
    return {**_figures(traffic, began, cpu, stats, drain_s), "threads": _difference(before)}


async def _async_send(mesh: AsyncMesh, traffic: Traffic, index: int, window: asyncio.Semaphore) -> None:
    agent = await mesh.agent(f"producer-{index}")
    batch = [{"to": "consumer", "content": traffic.message} for _ in range(traffic.batch)]
    try:
        while time.perf_counter() < traffic.deadline:
            await window.acquire()
            for _ in range(traffic.stride):
                while not await _async_sent(agent, batch):
                    traffic.stalls += 1
                    await asyncio.sleep(STALL_S)
                traffic.sent[index] += traffic.batch
    finally:
        traffic.sending -= 1


async def _async_sent(agent: AsyncAgent, batch: list[dict[str, Any]]) -> bool:
    try:
        await agent.send_many(batch)
    except StoreLagging:
        return False
    return True


async def _async_receive(mesh: AsyncMesh, traffic: Traffic, index: int, window: asyncio.Semaphore) -> None:
    agent = await mesh.agent("consumer")
    while True:
        deliveries = await agent.receive_many(traffic.batch, timeout=RECEIVE_S)
        if deliveries:
            for delivery in deliveries:
                _ = delivery.content
            await mesh.ack_many(deliveries)
            for _ in range(traffic.arrived(index, len(deliveries))):
                window.release()
        elif traffic.finished:
            return
