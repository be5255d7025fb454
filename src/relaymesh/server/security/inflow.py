"""How fast large bodies and frames are read, by all connections together. Pure: `now` is passed in, in s.

Reading costs the event loop about two milliseconds a megabyte, whether or not the bytes are refused later. A
connection that sends little is never held up. One that sends more than `SMALL_BYTES` in a tenth of a second
is bulk: what it sends is read at `rate` bytes a second, which all such connections share.
"""

from __future__ import annotations

WINDOW_S = 0.1
SMALL_BYTES = 65_536
"""What a connection may send in one window before it is bulk: a batch of 100 messages fits in."""
AHEAD_S = 0.05
"""How far ahead of its rate bulk may be read: a pause shorter than this is not worth a timer."""


class Inflow:
    """The rate of one server."""

    __slots__ = ("_paid_until", "_rate")

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._paid_until = 0.0
        """When everything read so far is paid for."""

    def pause_s(self, size: int, now: float) -> float:
        """Count so many bytes of bulk. Returns how long their connection is not to be read."""
        if not self._rate:
            return 0.0
        self._paid_until = max(self._paid_until, now) + size / self._rate
        ahead = self._paid_until - now
        return ahead if ahead > AHEAD_S else 0.0


class Window:
    """What one connection sent lately."""

    __slots__ = ("_bytes", "_ends")

    def __init__(self) -> None:
        self._bytes = 0
        self._ends = 0.0

    def bulk_of(self, size: int, now: float) -> int:
        """How many of these bytes are bulk."""
        if now >= self._ends:
            self._ends = now + WINDOW_S
            self._bytes = 0
        self._bytes += size
        return max(0, min(size, self._bytes - SMALL_BYTES))
