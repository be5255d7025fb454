"""The trace: one line for everything that happens, and a hash over all of them.

Two runs of one seed have the same hash, in any process. So no line may hold what differs between
processes: no addresses of objects, no order of sets, no wall time.
"""

from __future__ import annotations

import hashlib
from collections import deque

KEPT_LINES = 20


class Trace:
    """The hash of every line, and the newest lines, or all of them when asked."""

    def __init__(self, *, keep_all: bool = False) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._lines: deque[str] = deque(maxlen=None if keep_all else KEPT_LINES)
        self.count = 0

    def line(self, text: str) -> None:
        self.count += 1
        self._hash.update(text.encode())
        self._hash.update(b"\n")
        self._lines.append(text)

    @property
    def lines(self) -> list[str]:
        """Numbered, oldest first."""
        first = self.count - len(self._lines) + 1
        return [f"{number:5d}  {text}" for number, text in enumerate(self._lines, first)]

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


def combined(digests: list[str]) -> str:
    """One hash for many runs, given in the order of their seeds."""
    return hashlib.blake2b("\n".join(digests).encode(), digest_size=16).hexdigest()
