"""How long a message of an unrelated mailbox takes, from send to receive, while a fan-out advances."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from bench.meshes import settings
from bench.quantile import percentile
from bench.tasks.workflows import AGENT, WARM_UP, check, fan_out
from relaymesh import Mesh

PAUSE_S = 0.005
QUIET_S = 3.0
RESULT_S = 600.0


def measure(place: Path, *, items: int, quiet_s: float = QUIET_S) -> dict[str, Any]:
    """First the neighbour alone, then beside the fan-out: the same mesh, the same pace."""
    with Mesh(place / "data", settings=settings("synced")) as mesh:

        @mesh.step(AGENT)
        def same(delivery: Any) -> Any:
            return delivery.input

        mesh.submit(WARM_UP, 0).result(RESULT_S)
        neighbour = Neighbour(mesh)
        alone = neighbour.ages_until(lambda: time.sleep(quiet_s))
        input = {"items": list(range(items))}
        began = time.perf_counter()
        beside = neighbour.ages_until(
            lambda: check("fan-out", input, mesh.submit(fan_out(), input).result(RESULT_S))
        )
        rate = items / (time.perf_counter() - began)
        return {"items": items, "rate": rate, "alone": _told(alone), "beside": _told(beside)}


class Neighbour:
    """One agent that sends and one that receives, each in a thread, about 200 messages a second."""

    def __init__(self, mesh: Mesh) -> None:
        self._sender = mesh.agent("neighbour-sender")
        self._receiver = mesh.agent("neighbour")

    def ages_until(self, done: Any) -> list[float]:
        """The age of each message when it is received, until `done` returns."""
        ages: list[float] = []
        ended = threading.Event()
        sends = threading.Thread(target=self._send, args=(ended,))
        receives = threading.Thread(target=self._receive, args=(ended, ages))
        sends.start()
        receives.start()
        try:
            done()
        finally:
            ended.set()
            sends.join()
            receives.join()
        return ages

    def _send(self, ended: threading.Event) -> None:
        while not ended.is_set():
            self._sender.send("neighbour", {"at": time.perf_counter()})
            time.sleep(PAUSE_S)

    def _receive(self, ended: threading.Event, ages: list[float]) -> None:
        while not ended.is_set():
            delivery = self._receiver.receive(timeout=0.2)
            if delivery is not None:
                ages.append(time.perf_counter() - delivery.content["at"])
                delivery.ack()


def _told(ages: list[float]) -> dict[str, float]:
    return {
        "messages": len(ages),
        "p50_ms": percentile(ages, 0.5) * 1000,
        "p99_ms": percentile(ages, 0.99) * 1000,
        "max_ms": max(ages, default=0.0) * 1000,
    }
