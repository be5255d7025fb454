"""One message at a time, synced: against the disk's own rate, and against other queues.

All take turns in one process, a slice of time each, round after round, so that a slow minute of a shared
machine is everybody's. Within a slice, bursts of five calls alternate with bursts of five syncs of the bare
disk, each timed by itself: a share of the disk's rate compares two things that are milliseconds apart. Slices
of a quarter of a second were too far apart for that; a disk that stalled in its own slice alone made round
trips look faster than the sync each of them waits for.

    send            one producer sends, one after the other; each call waits for its sync
    lock_step       a producer and a consumer thread: the next is sent when the last is acked
    flowing         the same two, but the producer does not wait for the consumer
    same_thread     send, receive, ack in one thread: what the other queues are made to do
    durable_ack     the same, each ack waiting for a sync of its own
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.contents import content
from bench.disk_sync import RawDisk
from bench.meshes import CAPACITY, settings, until_projected
from bench.profiled import Profile
from bench.quantile import median
from bench.queues import open_peers
from relaymesh import Mesh

RECEIVE_S = 0.2
BURST = 5
PROFILED = ("send", "same_thread")
"""What runs in one thread alone."""


def measure(
    place: Path,
    *,
    rounds: int,
    slice_s: float,
    size: int = 200,
    peers: bool = True,
    profile: bool = False,
) -> dict[str, Any]:
    rates: dict[str, list[float]] = {"disk": []}
    shares: dict[str, list[float]] = {}
    others, missing = open_peers(place, size) if peers else ([], [])
    tracer = Profile(profile)
    with RawDisk(place / "disk") as disk, Mesh(place / "data", settings=settings("synced")) as mesh:
        pair = Pair(mesh, size)
        slices: list[tuple[str, Callable[[], None], Callable[[], None]]] = [
            ("send", pair.send, pair.clear),
            ("same_thread", pair.same_thread, pair.clear),
            ("durable_ack", pair.durable_ack, pair.clear),
            *((f"{other.name}: put", other.put, other.empty) for other in others),
            *((f"{other.name}: round trip", other.round_trip, other.empty) for other in others),
        ]

        def note(name: str, call: Callable[[], None]) -> None:
            with tracer.running() if name in PROFILED else nullcontext():
                rate, alone = beside(disk, call, slice_s)
            rates.setdefault(name, []).append(rate)
            rates["disk"].append(alone)
            shares.setdefault(name, []).append(rate / alone)

        for _ in range(rounds):
            for name, call, clear in slices:
                note(name, call)
                clear()
            with Consumer(mesh, "lock_step") as consumer:
                note("lock_step", lambda consumer=consumer: pair.lock_step(consumer))  # type: ignore[misc]
            rates.setdefault("flowing", []).append(pair.flowing(slice_s))
            pair.clear()
        summary = disk.summary()
    for other in others:
        other.close()
    return {
        "size": size,
        "rounds": rounds,
        "slice_s": slice_s,
        "rates": {name: median(values) for name, values in rates.items()},
        "every_rate": {name: [round(each, 1) for each in values] for name, values in rates.items()},
        "of_disk": {name: median(values) for name, values in shares.items()},
        "every_share": {name: [round(each, 3) for each in values] for name, values in shares.items()},
        "peers": [{"name": other.name, "synced": other.synced, "durable": other.durable} for other in others],
        "missing": missing,
        "disk": summary,
        "profile": tracer.top(),
    }


def beside(disk: RawDisk, call: Callable[[], None], seconds: float) -> tuple[float, float]:
    """Calls a second and bare syncs a second, in turns; each by the time it took itself."""
    ours = theirs = 0.0
    bursts = 0
    began = time.perf_counter()
    while time.perf_counter() - began < seconds or bursts == 0:
        at = time.perf_counter()
        for _ in range(BURST):
            disk.once()
        then = time.perf_counter()
        for _ in range(BURST):
            call()
        ours += time.perf_counter() - then
        theirs += then - at
        bursts += 1
    return bursts * BURST / ours, bursts * BURST / theirs


class Pair:
    """One producer and one consumer."""

    def __init__(self, mesh: Mesh, size: int) -> None:
        self._mesh = mesh
        self._message = content("json", size)
        self._producer = mesh.agent("producer")
        self._consumer = mesh.agent("consumer", capacity=CAPACITY)

    def send(self) -> None:
        self._producer.send("consumer", self._message)

    def same_thread(self) -> None:
        self._producer.send("consumer", self._message)
        self._consumer.receive(timeout=RECEIVE_S).ack()

    def same_thread_many(self, count: int) -> None:
        self._producer.send_many([{"to": "consumer", "content": self._message}] * count)
        while count > 0:
            deliveries = self._consumer.receive_many(count, timeout=RECEIVE_S)
            for delivery in deliveries:
                _ = delivery.content
            self._mesh.ack_many(deliveries)
            count -= len(deliveries)

    def durable_ack(self) -> None:
        self._producer.send("consumer", self._message)
        self._consumer.receive(timeout=RECEIVE_S).ack(durable=True)

    def lock_step(self, consumer: Consumer) -> None:
        self._producer.send("consumer", self._message)
        consumer.told.acquire()

    def flowing(self, seconds: float) -> float:
        """Messages acked a second, from the first send to the last ack."""
        with Consumer(self._mesh, "flowing") as consumer:
            began = time.perf_counter()
            sent = 0
            while time.perf_counter() - began < seconds:
                self._producer.send("consumer", self._message)
                sent += 1
            while consumer.acked < sent:
                time.sleep(0.0005)
            return sent / (consumer.last_at - began)

    def clear(self) -> None:
        """Take out what was only sent, and let the store catch up: the next slice has the machine alone."""
        while deliveries := self._consumer.receive_many(1000):
            self._mesh.ack_many(deliveries)
        until_projected(self._mesh)


class Consumer:
    """A thread that receives and acks one by one, and says so each time."""

    def __init__(self, mesh: Mesh, name: str) -> None:
        self._agent = mesh.agent("consumer")
        self._stopping = False
        self.told = threading.Semaphore(0)
        self.acked = 0
        self.last_at = 0.0
        self._thread = threading.Thread(target=self._run, name=name)

    def _run(self) -> None:
        while not self._stopping:
            for delivery in self._agent.receive_many(1, timeout=RECEIVE_S):
                delivery.ack()
                self.last_at = time.perf_counter()
                self.acked += 1
                self.told.release()

    def __enter__(self) -> Consumer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping = True
        self._thread.join()
