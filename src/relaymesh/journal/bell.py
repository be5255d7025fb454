"""How one thread wakes another, on the way of every commit."""

from __future__ import annotations

import threading

__all__ = ["Bell"]


class Bell:
    """Any thread may ring it; one thread waits for the next ring.

    A plain lock: `threading.Event` and `Condition` take theirs in Python code, and an interrupt (Ctrl-C) that
    falls into it leaves the lock taken for ever.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def ring(self) -> None:
        if self._lock.locked():
            try:
                self._lock.release()
            except RuntimeError:
                return  # another thread rang it just now

    def wait(self, seconds: float | None = None) -> None:
        timeout = -1 if seconds is None else max(0.0, min(seconds, threading.TIMEOUT_MAX))
        self._lock.acquire(timeout=timeout)
