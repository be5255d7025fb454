"""The bell that wakes housekeeping, the commit thread and a mirror that trails."""

from __future__ import annotations

import threading
import time

from relaymesh.journal.bell import Bell


def test_a_ring_before_the_wait_is_heard_and_two_are_heard_once() -> None:
    bell = Bell()
    bell.ring()
    bell.ring()
    bell.wait(30)
    began = time.monotonic()
    bell.wait(0.05)
    assert time.monotonic() - began >= 0.04


def test_a_ring_wakes_whoever_waits() -> None:
    bell = Bell()
    heard = threading.Thread(target=bell.wait)
    heard.start()
    bell.ring()
    heard.join(30)
    assert not heard.is_alive()


def test_many_ringers_leave_it_usable() -> None:
    bell = Bell()

    def ring_often() -> None:
        for _ in range(2_000):
            bell.ring()

    ringers = [threading.Thread(target=ring_often) for _ in range(4)]
    for ringer in ringers:
        ringer.start()
    while any(ringer.is_alive() for ringer in ringers):
        bell.wait(0.01)
    bell.wait(0)
    bell.ring()
    bell.wait(30)
