"""Latency from send to receive at half of the top rate, the disk's own beside it.

The generator is open-loop: batches are due at fixed moments, whether or not the mesh has answered the ones
before, and each message carries the moment it was due. A mesh that falls behind is charged for it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from array import array
from pathlib import Path
from typing import Any

from bench.contents import age, clock, stamped
from bench.disk_sync import RawDisk
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
from bench.quantile import percentile
from bench.throughput import measure as top_rate
from relaymesh import AsyncMesh, Mesh
from relaymesh.node.settings import Durability

SENDERS = 4
RECEIVERS = 2
RECEIVE_MAX = 1000
RECEIVE_S = 0.2
FRAME_OVERHEAD_BYTES = 100
WARM_UP_SHARE = 0.1


def measure(
    place: Path,
    *,
    api: str,
    durability: Durability,
    seconds: float,
    batch: int = 100,
    size: int = 200,
    rate: float | None = None,
    top_seconds: float = 1.5,
) -> dict[str, Any]:
    """`rate`: messages a second; None means half of a top rate measured here, just before."""
    top = None
    if rate is None:
        found = top_rate(
            place / "top",
            api=api,
            durability=durability,
            batch=batch,
            size=size,
            seconds=top_seconds,
            kind="bytes",
        )
        top = found["rate"]
        rate = top / 2
    with RawDisk(place / "disk", batch * (size + FRAME_OVERHEAD_BYTES)) as disk:
        disk.for_seconds(min(1.0, seconds / 4))
        plan = Plan(rate, batch, size, seconds)
        if api == "async":
            run_on_loop(_async_run(place, durability, plan))
        else:
            _thread_run(place, durability, plan)
        disk.for_seconds(min(1.0, seconds / 4))
    ages = plan.ages()
    return {
        "api": api,
        "loop": loop_name() if api == "async" else None,
        "durability": durability,
        "batch": batch,
        "size": size,
        "top_rate": top,
        "rate_wanted": rate,
        "rate": plan.received / plan.took_s,
        "messages": plan.received,
        "p50_ms": percentile(ages, 0.5) * 1000,
        "p99_ms": percentile(ages, 0.99) * 1000,
        "max_ms": max(ages, default=0.0) * 1000,
        "disk": disk.summary(),
    }


class Plan:
    """When each batch is due, and how old each message was when it was received."""

    def __init__(self, rate: float, batch: int, size: int, seconds: float) -> None:
        self.batch = batch
        self.size = size
        self.count = max(1, int(rate * seconds / batch))
        self.every_s = batch / rate
        self.began = 0.0
        self.took_s = 1.0
        self._ages = [array("d") for _ in range(RECEIVERS)]
        self.sending = 0

    def start(self) -> None:
        self.began = clock() + 0.02

    def due(self, number: int) -> float:
        return self.began + number * self.every_s

    def messages(self, due: float) -> list[dict[str, Any]]:
        data = stamped(self.size, due)
        return [{"to": "consumer", "content": data}] * self.batch

    def note(self, receiver: int, deliveries: list[Any]) -> None:
        now = clock()
        self._ages[receiver].extend([age(delivery.content, now) for delivery in deliveries])
        self.took_s = now - self.began

    @property
    def received(self) -> int:
        return sum(len(ages) for ages in self._ages)

    @property
    def finished(self) -> bool:
        return self.sending == 0 and self.received >= self.count * self.batch

    def ages(self) -> list[float]:
        """All but the first tenth of each receiver: connections, caches and files are warm after it."""
        return [age for ages in self._ages for age in ages[int(len(ages) * WARM_UP_SHARE) :]]


# -- threads ----------------------------------------------------------------------------------


def _thread_run(place: Path, durability: Durability, plan: Plan) -> None:
    with Mesh(kept_in(place / "data", durability), settings=settings(durability)) as mesh:
        mesh.agent("consumer", capacity=CAPACITY, capacity_bytes=CAPACITY_BYTES)
        plan.sending = SENDERS
        plan.start()
        threads = [
            *(threading.Thread(target=_send, args=(mesh, plan, i)) for i in range(SENDERS)),
            *(threading.Thread(target=_receive, args=(mesh, plan, i)) for i in range(RECEIVERS)),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        until_projected(mesh)


def _send(mesh: Mesh, plan: Plan, index: int) -> None:
    """Every SENDERS-th batch, at its moment or as soon after it as the mesh lets go of this thread."""
    agent = mesh.agent(f"producer-{index}")
    try:
        for number in range(index, plan.count, SENDERS):
            due = plan.due(number)
            if (early := due - clock()) > 0:
                time.sleep(early)
            agent.send_many(plan.messages(due))
    finally:
        plan.sending -= 1


def _receive(mesh: Mesh, plan: Plan, index: int) -> None:
    agent = mesh.agent("consumer")
    while not plan.finished:
        deliveries = agent.receive_many(RECEIVE_MAX, timeout=RECEIVE_S)
        if deliveries:
            plan.note(index, deliveries)
            mesh.ack_many(deliveries)


# -- event loop -------------------------------------------------------------------------------


async def _async_run(place: Path, durability: Durability, plan: Plan) -> None:
    async with AsyncMesh(kept_in(place / "data", durability), settings=settings(durability)) as mesh:
        await mesh.agent("consumer", capacity=CAPACITY, capacity_bytes=CAPACITY_BYTES)
        agent = await mesh.agent("producer")
        receivers = [asyncio.create_task(_async_receive(mesh, plan, i)) for i in range(RECEIVERS)]
        plan.sending = 1
        plan.start()
        sends = set()
        for number in range(plan.count):
            due = plan.due(number)
            if (early := due - clock()) > 0:
                await asyncio.sleep(early)
            send = asyncio.create_task(agent.send_many(plan.messages(due)))
            sends.add(send)
            send.add_done_callback(sends.discard)
        await asyncio.gather(*sends)
        plan.sending = 0
        await asyncio.gather(*receivers)
        await until_projected_async(mesh)


async def _async_receive(mesh: AsyncMesh, plan: Plan, index: int) -> None:
    agent = await mesh.agent("consumer")
    while not plan.finished:
        deliveries = await agent.receive_many(RECEIVE_MAX, timeout=RECEIVE_S)
        if deliveries:
            plan.note(index, deliveries)
            await mesh.ack_many(deliveries)
