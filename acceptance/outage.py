"""Run 2: one of two subscribers times out for a while (5 of 30 minutes in seed 001, scaled).

The subscriber's downstream hangs, so each attempt takes its whole timeout and then fails with `timeout`. Two
things bound the retries, both by contract and not by luck:

- The worker pool is bounded. W workers that each hang for `timeout_s` try W / timeout_s messages a second,
  however many wait. The timeout is chosen as W / (rate / 2): attempts come at half of the input rate, so
  that there is something to bound.
- A retry backs off: base = outage / 10, doubling (30 s, 60 s, 120 s at full length), 3 retries. Without
  either, each message of the outage would be retried 3 times: 3·F/T / (1 + 3·F/T) = 33 % of
  deliveries with F/T = 5/30. With them it is at most (F/2T) / (1 + F/2T) = 8 %, and the bound is 15 %.

retry rate = retried / delivered, over the run and the subscription (seed 001's retry_rate). What used up
its retries during the outage is a dead letter with an alert; the operator redrives it afterwards, as
the run does, and then every message has had its effect.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path

from acceptance.arrivals import Arrivals, Backlog
from acceptance.heard import heard
from acceptance.plan import OutageTimes
from acceptance.steady import drain
from acceptance.verdict import Verdict, percentile
from relaymesh import Mesh
from relaymesh.sdk.delivery import Delivery
from relaymesh.sdk.options import MailboxOptions
from relaymesh.wire.stats import MailboxStats

TOPIC = "order.created"
SICK, WELL = "inventory", "billing"
WORKERS = 8
RETRY_RATE_MAX = 0.15
PUBLISH_S_MAX = 1.0
"""No publish may take longer; the disk of a shared machine stalls for tenths of a second by itself."""
CALM = 10
"""A backlog of so many, or twice what was normal before, counts as fallen back."""
WELL_S_MIN, WELL_TIMES = 0.1, 3
"""The subscriber that is well: publish to handled, 99th percentile, may grow to three times what it was
before the outage, or to a tenth of a second where that is more (a shared machine does that by itself)."""
ISOLATED = f"{WELL} is not delayed by {SICK}: p99 < 100 ms, or 3 times what it was before"


class Subscribers:
    """Two handlers that note their effects; one fails while `sick` is set."""

    def __init__(self, timeout_s: float) -> None:
        self.sick = threading.Event()
        self._timeout_s = timeout_s
        self.effects: dict[str, list[int]] = {SICK: [], WELL: []}
        self.well_ages: list[tuple[float, float]] = []

    def inventory(self, delivery: Delivery) -> None:
        if self.sick.is_set():
            time.sleep(self._timeout_s)
            raise TimeoutError(f"the stock system did not answer within {self._timeout_s:.2f} s")
        self.effects[SICK].append(delivery.content["n"])

    def well_p99(self, began: float, sick_from_s: float, sick_until_s: float) -> tuple[float, float]:
        """Publish to handled at the subscriber that is well: before the outage, and during it."""
        before = [age for at, age in self.well_ages if at - began < sick_from_s]
        during = [age for at, age in self.well_ages if sick_from_s <= at - began < sick_until_s]
        return percentile(before, 0.99), percentile(during, 0.99)

    def billing(self, delivery: Delivery) -> None:
        now = time.monotonic()
        self.well_ages.append((now, now - delivery.content["at"]))
        self.effects[WELL].append(delivery.content["n"])


@dataclass(frozen=True)
class Observed:
    """What the run has seen, to be judged once it is over."""

    arrivals: Arrivals
    backlog: Backlog
    subscribers: Subscribers
    sick: MailboxStats
    well: MailboxStats
    began: float
    outage_end_s: float
    redriven: int
    drained: bool
    retries_said: int


def run(place: Path, *, times: OutageTimes, rate: float, capacity: int) -> Verdict:
    timeout_s = WORKERS / (rate / 2)
    backoff_ms = max(10, int(times.outage_s * 100))
    seen = _observe(place, times, rate, capacity, timeout_s, backoff_ms)
    verdict = Verdict("outage", f"{SICK} times out for {times.outage_s:.1f} of {times.whole_s:.0f} s")
    _judge(verdict, seen, times)
    verdict.numbers |= {"timeout_s": timeout_s, "backoff_ms": backoff_ms}
    return verdict


def _observe(
    place: Path, times: OutageTimes, rate: float, capacity: int, timeout_s: float, backoff_ms: int
) -> Observed:
    subscribers = Subscribers(timeout_s)
    cap_ms = min(300_000, backoff_ms * 8)
    sick, well = (f"default/{TOPIC}:{name}" for name in (SICK, WELL))
    options: MailboxOptions = {
        "capacity": capacity,
        "breaker_window_ms": times.breaker_window_ms,
        "breaker_open_ms": times.breaker_open_ms,
    }
    sickly: MailboxOptions = {**options, "backoff_ms_base": backoff_ms, "backoff_ms_cap": cap_ms}
    with (
        heard("relaymesh.delivery") as said,
        heard("relaymesh.alert"),
        Mesh(place / "outage", workers=(WORKERS, WORKERS)) as mesh,
    ):
        mesh.on(TOPIC, SICK, **sickly)(subscribers.inventory)
        mesh.on(TOPIC, WELL, **options)(subscribers.billing)
        arrivals = Arrivals(lambda n: mesh.publish(TOPIC, {"n": n, "at": time.monotonic()}), rate)
        every_s = max(0.005, times.whole_s / 2000)
        backlog = Backlog(lambda: mesh.stats().mailboxes[sick].pending, every_s)
        began = time.monotonic()
        arrivals.start()
        time.sleep(times.before_s)
        subscribers.sick.set()
        time.sleep(times.outage_s)
        subscribers.sick.clear()
        outage_end_s = time.monotonic() - began
        redriven = _redrive(mesh)
        time.sleep(times.after_s)
        arrivals.stop()
        backlog.stop()
        redriven += _redrive(mesh)
        drained = drain(mesh, times.recovery_s + 10)
        boxes = mesh.stats().mailboxes
    retries = sum(1 for record in said.records if getattr(record, "final_state", "") == "retrying")
    return Observed(
        arrivals,
        backlog,
        subscribers,
        boxes[sick],
        boxes[well],
        began,
        outage_end_s,
        redriven,
        drained,
        retries,
    )


def _judge(verdict: Verdict, seen: Observed, times: OutageTimes) -> None:
    arrivals, backlog, sick = seen.arrivals, seen.backlog, seen.sick
    normal = percentile(backlog.values(0, times.before_s), 0.95)
    fell_back_s = _fell_back(backlog, seen.outage_end_s, max(CALM, 2 * normal))
    before, during = seen.subscribers.well_p99(seen.began, times.before_s, seen.outage_end_s)
    verdict.numbers = {
        "published": len(arrivals.accepted),
        "refused": sum(arrivals.refused.values()),
        "publish_max_ms": max(arrivals.took_s, default=0.0) * 1000,
        "delivered": sick.delivered,
        "retried": sick.retried,
        "retry_rate": sick.retry_rate,
        "backlog_before_p95": normal,
        "backlog_max": max(backlog.values(), default=0.0),
        "fell_back_s": -1.0 if fell_back_s is None else fell_back_s,
        "bound_s": times.recovery_s,
        "redriven": seen.redriven,
        "other_before_p99_ms": before * 1000,
        "other_p99_ms": during * 1000,
    }
    answered = 0 < max(arrivals.took_s, default=0.0) < PUBLISH_S_MAX
    verdict.check(f"every publish was answered within {PUBLISH_S_MAX} s", answered)
    verdict.check("none was refused: the buffer holds an outage", not arrivals.refused)
    verdict.check("attempts failed, and were retried", sick.retried > 0)
    verdict.check(f"retry rate < {RETRY_RATE_MAX:.0%}", sick.retry_rate < RETRY_RATE_MAX)
    verdict.check("every retry has its line in the log", seen.retries_said == sick.retried)
    in_time = fell_back_s is not None and fell_back_s <= times.recovery_s
    verdict.check(f"the backlog fell back within {times.recovery_s:.1f} s", in_time)
    bound = max(WELL_S_MIN, WELL_TIMES * before)
    verdict.check(ISOLATED, 0 < during < bound)
    _check_nothing_lost(verdict, seen.subscribers, arrivals, seen.drained)
    balanced = _balanced(sick) and _balanced(seen.well)
    verdict.check("accepted = acked + dropped + dead + pending", balanced)


def _redrive(mesh: Mesh) -> int:
    """What an operator does after an outage: send back what used up its retries."""
    return len(mesh.redrive(status="pending"))


def _fell_back(backlog: Backlog, outage_end: float, calm: float) -> float | None:
    """Seconds from the end of the outage until the backlog is calm; None if it never is."""
    for at, value in backlog.samples:
        if at >= outage_end and value <= calm:
            return at - outage_end
    return None


def _check_nothing_lost(
    verdict: Verdict, subscribers: Subscribers, arrivals: Arrivals, drained: bool
) -> None:
    published = set(arrivals.accepted)
    for name in (SICK, WELL):
        effects = subscribers.effects[name]
        claim = f"{name}: every message had its effect, none twice"
        verdict.check(claim, drained and set(effects) == published and len(effects) == len(published))


def _balanced(box: MailboxStats) -> bool:
    """What was accepted, redriven messages among it, is in exactly one of the places it can be in."""
    return box.accepted == box.acked + box.dropped + box.dead + box.pending
