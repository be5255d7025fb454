"""Run 1: steady load at 1.2 times the target rate. The backlog settles, below half of the buffer.

    W >= ceil(lambda_p95 / mu_p50)      workers (seed 001)
    backlog_p95 < buffer / 2            the line to hold

lambda_p95 is the input rate that 95 of 100 seconds stay under; a Poisson process of rate r has it at
r + 1.645 sqrt(r). mu_p50 is what one worker does in a second at the median, measured first.
"""

from __future__ import annotations

import math
import threading
import time
from itertools import pairwise
from pathlib import Path

from acceptance.arrivals import Arrivals, Backlog
from acceptance.verdict import Verdict, percentile
from relaymesh import Mesh
from relaymesh.sdk.delivery import Delivery

TOPIC, NAME = "order.created", "billing"
ADDRESS = f"default/{TOPIC}:{NAME}"
OVERLOAD = 1.2
WORK_S = 0.004
"""What a handler does, besides the mesh's own part: a call to something near."""
CALIBRATION = 100
DRAIN_S = 10.0


def run(place: Path, *, seconds: float, rate: float, capacity: int) -> Verdict:
    verdict = Verdict("steady", f"{seconds:.0f} s at {OVERLOAD}× of {rate:.0f} messages/s")
    wanted = rate * OVERLOAD
    mu = calibrate(place / "calibration")
    expected_p95 = wanted + 1.645 * math.sqrt(wanted)
    workers = math.ceil(expected_p95 / mu)
    handled: set[int] = set()
    with Mesh(place / "steady", workers=(workers, workers)) as mesh:

        @mesh.on(TOPIC, NAME, capacity=capacity)
        def billing(delivery: Delivery) -> None:
            time.sleep(WORK_S)
            handled.add(delivery.content["n"])

        arrivals = Arrivals(lambda n: mesh.publish(TOPIC, {"n": n}), wanted)
        backlog = Backlog(lambda: mesh.stats().mailboxes[ADDRESS].pending, max(0.01, seconds / 1000))
        arrivals.start()
        time.sleep(seconds)
        arrivals.stop()
        backlog.stop()
        drained = drain(mesh, DRAIN_S)
        stats = mesh.stats().mailboxes[ADDRESS]
    values = backlog.values()
    middle = backlog.values(seconds / 3, seconds * 2 / 3)
    last = backlog.values(seconds * 2 / 3)
    verdict.numbers = {
        "workers": workers,
        "mu_p50": mu,
        "lambda_p95": arrivals.rate_p95(),
        "published": len(arrivals.accepted),
        "rate": len(arrivals.accepted) / seconds,
        "kept": arrivals.kept,
        "refused": sum(arrivals.refused.values()),
        "buffer": capacity,
        "backlog_p50": percentile(values, 0.5),
        "backlog_p95": percentile(values, 0.95),
        "backlog_max": max(values, default=0.0),
        "publish_p99_ms": percentile(arrivals.took_s, 0.99) * 1000,
    }
    verdict.check("backlog_p95 < buffer / 2", percentile(values, 0.95) < capacity / 2)
    settled = percentile(last, 0.5) <= 2 * percentile(middle, 0.5) + 2 * workers + 10
    verdict.check("the backlog settles: the last third is no higher than the middle one", settled)
    verdict.check("the publisher kept its schedule: 95 % of what was due", arrivals.kept >= 0.95)
    verdict.check("every publish was accepted", not arrivals.refused)
    verdict.check("every message was handled", drained and handled == set(arrivals.accepted))
    verdict.check("accepted = acked, none dead", stats.accepted == stats.acked and stats.dead == 0)
    return verdict


def calibrate(place: Path) -> float:
    """Messages a second that one worker handles, at the median."""
    done: list[float] = []
    finished = threading.Event()
    with Mesh(place, workers=(1, 1)) as mesh:
        subscription = mesh.subscribe(TOPIC, NAME)
        mesh.publish_many(TOPIC, [{"content": {"n": n}} for n in range(CALIBRATION)])

        @subscription.handle
        def billing(_: Delivery) -> None:
            time.sleep(WORK_S)
            done.append(time.monotonic())
            if len(done) == CALIBRATION:
                finished.set()

        if not finished.wait(60):
            raise TimeoutError(f"one worker handled {len(done)} of {CALIBRATION} messages in 60 s")
    gaps = [later - earlier for earlier, later in pairwise(done)]
    return 1 / percentile(gaps, 0.5)


def drain(mesh: Mesh, timeout_s: float) -> bool:
    """Wait until nothing is pending."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if mesh.stats().pending == 0:
            return True
        time.sleep(0.02)
    return False
