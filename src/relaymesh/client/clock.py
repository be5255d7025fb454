"""Mesh time as a client knows it: the node's time, continued by a clock of this machine."""

from __future__ import annotations

import time
from typing import Protocol

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", None)


class Elapsed(Protocol):
    """A clock that never goes back; `relaymesh.node.clock.Clock` is one."""

    def elapsed_ns(self) -> int:
        """Nanoseconds since an arbitrary moment, counting suspended time."""


class MachineClock:
    def elapsed_ns(self) -> int:
        return time.monotonic_ns() if _BOOTTIME is None else time.clock_gettime_ns(_BOOTTIME)


class RemoteTime:
    """The node's time. Before the node's first answer, the wall clock of this machine."""

    __slots__ = ("_clock", "_origin_ms", "_origin_ns")

    def __init__(self, clock: Elapsed | None = None) -> None:
        self._clock = clock or MachineClock()
        self.heard(time.time_ns() // 1_000_000)

    def heard(self, now_ms: int) -> None:
        """Set the time: the node has just sent it."""
        self._origin_ms = now_ms
        self._origin_ns = self._clock.elapsed_ns()

    def now(self) -> int:
        return self._origin_ms + (self._clock.elapsed_ns() - self._origin_ns) // 1_000_000
