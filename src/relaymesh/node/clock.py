"""Clocks. Mesh time is the `now` of the kernel.

It starts at max(wall clock, last record). From then on it follows a clock that counts suspended time
(`CLOCK_BOOTTIME` where there is one). A jump of the wall clock therefore changes nothing while the process
runs, and mesh time never goes back over a restart.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Protocol

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", None)


class Clock(Protocol):
    """The source of time."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, by the wall clock of this machine."""

    def elapsed_ns(self) -> int:
        """Nanoseconds since an arbitrary moment. Never goes back; counts suspended time."""

    def awake_ns(self) -> int:
        """The same without suspended time: the difference to `elapsed_ns` is the time suspended."""

    def wait(self, latch: Latch, seconds: float | None) -> bool:
        """Wait for the latch, up to the timeout. Returns whether it opened."""


class Latch:
    """Opened once, by another thread. Half the cost of a `threading.Event`."""

    __slots__ = ("_lock", "opened")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self.opened = False

    def open(self) -> None:
        if not self.opened:
            self.opened = True
            self._lock.release()

    def wait(self, seconds: float | None) -> bool:
        if self.opened:
            return True
        if self._lock.acquire(
            timeout=-1 if seconds is None else max(0.0, min(seconds, threading.TIMEOUT_MAX))
        ):
            self._lock.release()
        return self.opened


class SystemClock:
    """The machine's clocks."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    # These run several times per message, so they are bound directly, without a function of their own.
    elapsed_ns = staticmethod(
        time.monotonic_ns if _BOOTTIME is None else partial(time.clock_gettime_ns, _BOOTTIME)
    )
    awake_ns = staticmethod(time.monotonic_ns)

    def wait(self, latch: Latch, seconds: float | None) -> bool:
        return latch.wait(seconds)


class MeshTime:
    """Mesh time in milliseconds, anchored once."""

    __slots__ = ("_clock", "_elapsed_ns", "_origin_ms", "_origin_ns")

    def __init__(self, clock: Clock, last_record_ms: int = 0) -> None:
        self._clock = clock
        self._elapsed_ns = clock.elapsed_ns
        self._origin_ns = clock.elapsed_ns()
        self._origin_ms = max(clock.wall_ms(), last_record_ms)

    def now(self) -> int:
        return self._origin_ms + (self._elapsed_ns() - self._origin_ns) // 1_000_000

    def wall_ns(self) -> int:
        """The wall clock, for timestamps in files: retention compares them with each other."""
        return self._clock.wall_ms() * 1_000_000

    def drift_ms(self) -> int:
        """How far the wall clock has moved away from mesh time since the start."""
        return self._clock.wall_ms() - self.now()


class SuspendGuard:
    """Detects, between two calls, that the machine was suspended or its wall clock was changed."""

    def __init__(self, clock: Clock, mesh_time: MeshTime, threshold_ms: int = 5_000) -> None:
        self._clock = clock
        self._mesh_time = mesh_time
        self._threshold_ms = threshold_ms
        self._slept_ns = clock.elapsed_ns() - clock.awake_ns()
        self._drift_ms = mesh_time.drift_ms()

    def look(self) -> str | None:
        """What happened since the last call, in words; None if nothing did."""
        slept_ns = self._clock.elapsed_ns() - self._clock.awake_ns()
        drift_ms = self._mesh_time.drift_ms()
        suspended = (slept_ns - self._slept_ns) // 1_000_000
        jumped = drift_ms - self._drift_ms
        self._slept_ns, self._drift_ms = slept_ns, drift_ms
        if suspended > self._threshold_ms:
            return f"the machine was suspended for {suspended / 1000:.1f} s"
        if abs(jumped) > self._threshold_ms:
            return f"the wall clock jumped by {jumped / 1000:+.1f} s"
        return None
