"""Entries, leases and grants are left out of cyclic garbage collection: no cycle may outlive them.

Nor may a queue that nobody empties keep what was settled.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable

import pytest

from relaymesh.kernel.commands import Extend, Reprioritise, Unsubscribe
from tests.kernel.driver import HOUR, MINUTE, SECOND, Driver, names

SIZE = 200_000  # of the content that the messages of one round share: one that is kept shows


def acked(mesh: Driver, box: str, round: str) -> None:
    mesh.send(box, *names(round, 10), content=bytes(SIZE), key="k")
    mesh.send(box, *names(round + "free", 10), content=bytes(SIZE))
    mesh.ack(*mesh.receive(box, 20))


def acked_but_for_one(mesh: Driver, box: str, round: str) -> None:
    """One delivery of each grant stays out, with a lease extended for hours."""
    mesh.send(box, round, content=b"", ttl_ms=0)
    mesh.send(box, *names(round, 20), content=bytes(SIZE))
    first, *rest = mesh.receive(box, 21)
    mesh.do(Extend(first.token, 1000 * HOUR))
    mesh.ack(*rest)


def retried_until_dead(mesh: Driver, box: str, round: str) -> None:
    mesh.send(box, *names(round, 5), content=bytes(SIZE), key="k", max_retries=1)
    for _ in range(10):
        for lease in mesh.receive(box, 1):
            mesh.nack(lease, code="other")
        mesh.advance(MINUTE)
    mesh.drop(*mesh.receive(box, 5))
    forget_letters(mesh)


def expired_unread(mesh: Driver, box: str, round: str) -> None:
    for i in range(20):
        mesh.send(box, f"{round}{i}", content=bytes(SIZE), ttl_ms=1, task=f"{round}{i}" if i % 2 else None)
    mesh.advance(MINUTE)
    forget_letters(mesh)


def leased_and_lost(mesh: Driver, box: str, round: str) -> None:
    mesh.send(box, *names(round, 20), content=bytes(SIZE), max_retries=0)
    mesh.receive(box, 20)
    mesh.advance(HOUR)
    forget_letters(mesh)


def forced_from_far_away(mesh: Driver, box: str, round: str) -> None:
    mesh.send(box, *names(round, 20), content=bytes(SIZE), delay_ms=1000 * HOUR)
    mesh.force_delayed()
    mesh.ack(*mesh.receive(box, 20))


def reprioritised(mesh: Driver, box: str, round: str) -> None:
    mesh.send(box, *names(round, 20), content=bytes(SIZE))
    for priority in (1, 2, 3):
        mesh.do(Reprioritise(box, None, priority))
    mesh.ack(*mesh.receive(box, 20))


def overflowed(mesh: Driver, box: str, round: str) -> None:
    subscription = mesh.subscription("t", capacity=1, overflow="dead_letter")
    mesh.publish("t", *names(round, 20), content=bytes(SIZE))
    forget_letters(mesh)
    assert len(mesh.box(subscription).ready) <= 150


def unsubscribed(mesh: Driver, box: str, round: str) -> None:
    subscription = mesh.subscription("t", "short")
    mesh.publish("t", *names(round, 20), content=bytes(SIZE), key="k")
    mesh.receive(subscription, 5)
    mesh.do(Unsubscribe(subscription))


def forget_letters(mesh: Driver) -> None:
    state = mesh.kernel.state
    for letter in list(state.letters):
        state.letters.remove(letter.mailbox, letter.dead_sequence)


Life = Callable[[Driver, str, str], None]

LIVES: list[Life] = [
    acked,
    acked_but_for_one,
    retried_until_dead,
    expired_unread,
    leased_and_lost,
    forced_from_far_away,
    reprioritised,
    overflowed,
    unsubscribed,
]


@pytest.mark.parametrize("live", LIVES)
def test_what_is_settled_is_freed(live: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relaymesh.kernel.timers.SWEEP_MIN", 50)
    mesh = Driver()
    box = mesh.agent()

    def rounds(first: int, count: int) -> int:
        for i in range(first, first + count):
            live(mesh, box, f"r{i}-")
            mesh.records.clear()
            mesh.step = None  # type: ignore[assignment]
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = rounds(0, 20)
        grown = rounds(20, 40) - before
    finally:
        tracemalloc.stop()
    assert grown < 40 * SIZE / 4, f"40 rounds with {SIZE} bytes each kept {grown} bytes"


def test_a_settled_delivery_is_held_by_nobody_but_its_receiver() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m", "held", key="k", ttl_ms=0)
    row, _ = mesh.receive(box, 2)
    lease = mesh.kernel.state.lease(row.token)
    assert lease is not None
    entry = lease.entry
    mesh.ack(row)
    mesh.records.clear()
    mesh.step = None  # type: ignore[assignment]
    assert sys.getrefcount(lease) == 2, "the variable and the call"
    assert sys.getrefcount(entry) == 3, "the variable, the call and the lease"
    assert entry.lane is None
    assert entry.lease is None


def test_a_lane_that_is_empty_is_forgotten() -> None:
    mesh = Driver()
    box = mesh.agent()
    for i in range(500):
        mesh.send(box, f"acked {i}", key=f"k{i}")
        mesh.send(box, f"expired {i}", task=f"t{i}", ttl_ms=1)
        mesh.ack(*mesh.receive(box))
        mesh.advance(3 * SECOND)
    assert mesh.box(box).lanes == {}
    assert len(mesh.box(box).ready) <= 70
