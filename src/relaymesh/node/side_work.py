"""Background work of a node, in a thread for which its close can wait."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["SideWork"]


class SideWork:
    """Does one piece of work at a time. `name`: that of its thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ended = False

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def begin(self, work: Callable[[], object]) -> None:
        """Begin it, unless some work is under way or `end` was called."""
        with self._lock:  # `end` sees either no thread or one that runs
            if self.running or self._ended:
                return
            self._thread = threading.Thread(target=work, name=self._name, daemon=True)
            self._thread.start()

    def end(self, seconds: float) -> None:
        """Start nothing more, and wait up to this time for running work."""
        with self._lock:
            self._ended = True
        if self._thread is not None:
            self._thread.join(seconds)
