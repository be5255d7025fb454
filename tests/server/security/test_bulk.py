"""Bulk moves at one rate for the whole server, and yields to clients that send little."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from relaymesh.server.security.accounts import Account
from relaymesh.server.security.bulk import (
    AHEAD_S,
    EASE_AT_FIRST,
    EASE_MIN,
    FEEL_S,
    LATE_S,
    LATELY_S,
    SMALL_BYTES,
    WINDOW_S,
    Bulk,
    Window,
)
from relaymesh.server.security.connections import PacedFlow
from relaymesh.server.security.limits import SecuritySettings

MB = 1_000_000


def account(name: str) -> Account:
    return Account(name, SecuritySettings(), 0.0)


GREEDY, VICTIM = account("greedy"), account("victim")


def feel(bulk: Bulk, seconds: float, *, late_s: float, victim: bool, began: float = 1.0) -> float:
    """Bulk comes all the time, the loop is so late, maybe a client sends little. Returns the time then."""
    now = began
    while now < began + seconds:
        bulk.pause_s(1, now, GREEDY)
        if victim:
            bulk.modest(now, VICTIM)
        assert bulk.felt(late_s, now)
        now += FEEL_S
    return now


def test_what_a_connection_sends_now_and_then_is_not_bulk() -> None:
    window = Window()
    assert [window.bulk_of(SMALL_BYTES, now) for now in (1.0, 1.0 + WINDOW_S, 5.0)] == [0, 0, 0]


def test_what_comes_beyond_a_little_in_one_window_is_bulk() -> None:
    window = Window()
    assert window.bulk_of(SMALL_BYTES + 1, 1.0) == 1
    assert window.bulk_of(500, 1.0 + WINDOW_S / 2) == 500
    assert window.bulk_of(500, 1.0 + WINDOW_S) == 0


def test_bulk_of_all_connections_together_comes_at_the_rate() -> None:
    bulk, now, read = Bulk(10 * MB), 100.0, 0
    feel(bulk, LATELY_S, late_s=0.0, victim=False)
    while now < 110.0:  # one connection after the other, each as soon as it may
        read += 262_144
        now += bulk.pause_s(262_144, now, GREEDY) or 0.000_1
    assert read == pytest.approx(100 * MB, rel=0.02)


def test_a_pause_too_short_to_matter_is_none() -> None:
    bulk = Bulk(10 * MB)
    feel(bulk, LATELY_S, late_s=0.0, victim=False)
    assert bulk.pause_s(int(9 * MB * AHEAD_S), 9.0, GREEDY) == 0.0
    assert bulk.pause_s(100_000, 9.0, GREEDY) > AHEAD_S


def test_a_rate_of_0_is_no_limit() -> None:
    assert Bulk(0).pause_s(10**12, 1.0, GREEDY) == 0.0


def test_bulk_begins_carefully_and_has_all_of_the_rate_where_it_disturbs_no_other() -> None:
    bulk = Bulk(10 * MB)
    assert bulk.rate == 10 * MB * EASE_AT_FIRST
    feel(bulk, FEEL_S, late_s=1.0, victim=False)
    assert bulk.rate == 10 * MB


def test_bulk_yields_while_the_loop_is_late_for_others_and_comes_back() -> None:
    bulk = Bulk(10 * MB)
    now = feel(bulk, 1.0, late_s=2 * LATE_S, victim=True)
    assert bulk.rate == 10 * MB * EASE_MIN
    now = feel(bulk, 1.0, late_s=0.0, victim=True, began=now)
    assert EASE_MIN < bulk.rate / (10 * MB) < 0.5
    feel(bulk, 10.0, late_s=0.0, victim=True, began=now)
    assert bulk.rate == 10 * MB


def test_small_frames_of_a_credential_that_sends_bulk_do_not_count_as_others() -> None:
    bulk = Bulk(10 * MB)
    bulk.pause_s(MB, 1.0, GREEDY)
    bulk.modest(1.0, GREEDY)
    bulk.felt(1.0, 1.0)
    assert bulk.rate == 10 * MB


def test_nobody_looks_at_the_loop_when_no_bulk_comes() -> None:
    bulk = Bulk(10 * MB)
    bulk.pause_s(MB, 1.0, GREEDY)
    assert bulk.felt(0.0, 1.0 + LATELY_S / 2)
    assert not bulk.felt(0.0, 1.0 + LATELY_S)


class Transport:
    """Knows whether it is read."""

    def __init__(self) -> None:
        self.read = True

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        assert self.read
        self.read = False

    def resume_reading(self) -> None:
        assert not self.read
        self.read = True


def test_a_request_is_read_when_neither_its_application_nor_its_pace_says_otherwise() -> None:
    async def run() -> None:
        transport: Any = Transport()
        flow = PacedFlow(transport)
        flow.pace()
        flow.pause_reading()
        flow.resume_reading()
        assert not transport.read
        flow.go_on()
        assert transport.read
        flow.pause_reading()
        flow.pace()
        flow.go_on()
        assert not transport.read
        flow.resume_reading()
        assert transport.read

    asyncio.run(run())
