"""Bulk is read at one rate for the whole server; a connection that sends little is never held up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from relaymesh.server.security.connections import PacedFlow
from relaymesh.server.security.inflow import AHEAD_S, SMALL_BYTES, WINDOW_S, Inflow, Window

MB = 1_000_000


def test_what_a_connection_sends_now_and_then_is_not_bulk() -> None:
    window = Window()
    assert [window.bulk_of(SMALL_BYTES, now) for now in (1.0, 1.0 + WINDOW_S, 5.0)] == [0, 0, 0]


def test_what_comes_beyond_a_little_in_one_window_is_bulk() -> None:
    window = Window()
    assert window.bulk_of(SMALL_BYTES + 1, 1.0) == 1
    assert window.bulk_of(500, 1.0 + WINDOW_S / 2) == 500
    assert window.bulk_of(500, 1.0 + WINDOW_S) == 0


def test_bulk_of_all_connections_together_comes_at_the_rate() -> None:
    inflow, now, read = Inflow(10 * MB), 100.0, 0
    while now < 110.0:  # one connection after the other, each as soon as it may
        read += 262_144
        now += inflow.pause_s(262_144, now) or 0.000_1
    assert read == pytest.approx(100 * MB, rel=0.02)


def test_a_pause_too_short_to_matter_is_none() -> None:
    inflow = Inflow(10 * MB)
    assert inflow.pause_s(int(9 * MB * AHEAD_S), 1.0) == 0.0
    assert inflow.pause_s(100_000, 1.0) > AHEAD_S


def test_a_rate_of_0_is_no_limit() -> None:
    assert Inflow(0).pause_s(10**12, 1.0) == 0.0


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
