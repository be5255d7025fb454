"""Does a message cost more when there is more of everything? Processor time a message, step by step.

At each size the same traffic runs: send_many(100), receive_many(100), ack_many(100), in one thread, over a
backlog that stays as it is. Processor time of all threads is what is compared, since it counts
garbage collection and the store but not the neighbours on a shared machine.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.contents import content
from bench.meshes import CAPACITY, CAPACITY_BYTES, NO_CHECKPOINT, fill, settings, until_projected
from bench.quantile import median
from relaymesh import Mesh

BATCH = 100
ROUNDS = 3
HOUR_MS = 3_600_000


def measure(place: Path, *, of: str, sizes: list[int], batches: int, size: int = 200) -> dict[str, Any]:
    """`of`: `pending`, `mailboxes` or `delayed`. Checkpoints are left out: their cost is per byte."""
    with Mesh(place / "data", settings=settings("batched", checkpoint_bytes=NO_CHECKPOINT)) as mesh:
        curve = CURVES[of](mesh, content("json", size))
        steps = []
        for each in sizes:
            curve.grow(each)
            until_projected(mesh)
            steps.append({"size": each, **_cost(mesh, curve.batch, batches)})
        first = steps[0]["cpu_us"]
        return {
            "of": of,
            "steps": steps,
            "ratio": max(step["cpu_us"] for step in steps) / first,
            "last_ratio": steps[-1]["cpu_us"] / first,
        }


def _cost(mesh: Mesh, batch: Callable[[], None], batches: int) -> dict[str, float]:
    """Microseconds a message: processor time over all, and the median batch by the wall clock."""
    batch()
    cpu: list[float] = []
    walls: list[float] = []
    for _ in range(ROUNDS):
        until_projected(mesh)
        began = time.process_time()
        for _ in range(max(1, batches // ROUNDS)):
            at = time.perf_counter()
            batch()
            walls.append((time.perf_counter() - at) / BATCH)
        until_projected(mesh)
        cpu.append((time.process_time() - began) / (max(1, batches // ROUNDS) * BATCH))
    return {"cpu_us": median(cpu) * 1e6, "wall_us_p50": median(walls) * 1e6}


class Pending:
    """A backlog in the mailbox the traffic goes through."""

    def __init__(self, mesh: Mesh, message: Any) -> None:
        self._mesh = mesh
        self._message = message
        self._sender = mesh.agent("producer")
        self._inbox = mesh.agent("consumer", capacity=CAPACITY, capacity_bytes=CAPACITY_BYTES)
        self._size = 0

    def grow(self, size: int) -> None:
        fill(self._mesh, "consumer", size - self._size, self._message)
        self._size = size

    def batch(self) -> None:
        self._sender.send_many([{"to": "consumer", "content": self._message}] * BATCH)
        self._mesh.ack_many(self._inbox.receive_many(BATCH, timeout=5))


class Mailboxes:
    """Many mailboxes, one message waiting in each; every batch goes to another one."""

    def __init__(self, mesh: Mesh, message: Any) -> None:
        self._mesh = mesh
        self._message = message
        self._sender = mesh.agent("producer")
        self._inboxes: list[Any] = []
        self._dice = random.Random(1)

    def grow(self, size: int) -> None:
        while len(self._inboxes) < size:
            name = f"agent-{len(self._inboxes)}"
            self._inboxes.append(self._mesh.agent(name))
            self._sender.send(name, self._message)

    def batch(self) -> None:
        inbox = self._dice.choice(self._inboxes)
        self._sender.send_many([{"to": inbox.name, "content": self._message}] * BATCH)
        self._mesh.ack_many(inbox.receive_many(BATCH, timeout=5))


class Delayed(Pending):
    """Messages that wait for their time in the mailbox; one in ten of the traffic is delayed too."""

    def grow(self, size: int) -> None:
        fill(self._mesh, "consumer", size - self._size, self._message, delay_ms=HOUR_MS)
        self._size = size

    def batch(self) -> None:
        now = {"to": "consumer", "content": self._message}
        soon = {"to": "consumer", "content": self._message, "delay_ms": 1}
        self._sender.send_many([*([now] * (BATCH - BATCH // 10)), *([soon] * (BATCH // 10))])
        left = BATCH
        while left:
            deliveries = self._inbox.receive_many(left, timeout=5)
            self._mesh.ack_many(deliveries)
            left -= len(deliveries)


CURVES: dict[str, Any] = {"pending": Pending, "mailboxes": Mailboxes, "delayed": Delayed}
