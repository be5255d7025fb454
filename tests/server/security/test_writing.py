"""Whether a reader reads, as the transport's buffer tells."""

from __future__ import annotations

from asyncio import Transport
from typing import cast

from relaymesh.server.security.limits import SecuritySettings
from relaymesh.server.security.writing import PROGRESS_BYTES, Outgoing

SETTINGS = SecuritySettings(write_seconds=10.0, write_buffer_bytes_max=1_000_000)


class Buffer:
    """Stands in for a transport: so much waits in it."""

    def __init__(self, size: int) -> None:
        self.size = size

    def get_write_buffer_size(self) -> int:
        return self.size


def outgoing(buffer: Buffer) -> Outgoing:
    return Outgoing(cast(Transport, buffer), SETTINGS)


def test_a_reader_who_takes_nothing_is_stuck_after_its_time() -> None:
    reader = outgoing(Buffer(500_000))
    assert not reader.is_stuck(100.0)
    assert not reader.is_stuck(110.0)
    assert reader.is_stuck(110.1)


def test_a_reader_who_takes_enough_is_given_more_time() -> None:
    buffer = Buffer(500_000)
    reader = outgoing(buffer)
    reader.is_stuck(100.0)
    buffer.size -= PROGRESS_BYTES
    assert not reader.is_stuck(110.1)
    buffer.size -= 1
    assert reader.is_stuck(120.2)


def test_a_reader_who_took_all_starts_anew() -> None:
    buffer = Buffer(10)
    reader = outgoing(buffer)
    reader.is_stuck(100.0)
    buffer.size = 0
    assert not reader.is_stuck(200.0)
    buffer.size = 10
    assert not reader.is_stuck(300.0)
    reader.moved()
    assert not reader.is_stuck(400.0)
    assert reader.is_stuck(410.1)


def test_more_than_may_wait_is_too_much_at_once() -> None:
    assert not outgoing(Buffer(1_000_000)).is_too_much()
    assert outgoing(Buffer(1_000_001)).is_too_much()
