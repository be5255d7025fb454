"""A clock that stands still until it is told otherwise."""

from __future__ import annotations

from datetime import UTC, datetime

from relaymesh.node.clock import Latch

NS = 1_000_000_000


class ManualClock:
    """Time as a test wants it: nothing moves but by `advance`, `suspend` and `jump_wall`.

    It can outlive a mesh: open the next one with the same clock to test what a restart does.
    """

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._wall_ns = round(start.timestamp() * NS)
        self._elapsed_ns = NS
        self._awake_ns = NS

    def advance(self, seconds: float) -> None:
        """Ordinary time: every clock moves on."""
        self.advance_ns(_ns(seconds))

    def advance_ns(self, ns: int) -> None:
        self._awake_ns += ns
        self._elapsed_ns += ns
        self._wall_ns += ns

    def suspend(self, seconds: float) -> None:
        """The machine sleeps so long: no process ran meanwhile."""
        ns = _ns(seconds)
        self._elapsed_ns += ns
        self._wall_ns += ns

    def jump_wall(self, seconds: float) -> None:
        """Set the wall clock, forwards or back; no time passes."""
        self._wall_ns += round(seconds * NS)

    # The Clock port

    def wall_ms(self) -> int:
        return self._wall_ns // 1_000_000

    def elapsed_ns(self) -> int:
        return self._elapsed_ns

    def awake_ns(self) -> int:
        return self._awake_ns

    def wait(self, latch: Latch, seconds: float | None) -> bool:
        """No other thread can open the latch: all of the time passes at once."""
        if not latch.opened and seconds is not None:
            self.advance(max(0.0, seconds))
        return latch.opened


def _ns(seconds: float) -> int:
    if not seconds >= 0:
        raise ValueError(f"time does not go back: {seconds!r} seconds")
    return round(seconds * NS)
