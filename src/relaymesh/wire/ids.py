"""Message ids: UUIDv7, so that they sort by the time they were made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

_COUNTS = [f"{count:03x}" for count in range(0x1000)]


class Bits(Protocol):
    """Where the random part comes from."""

    def getrandbits(self, k: int, /) -> int:
        """A number of `k` random bits."""


class IdMint:
    """Makes ids that are unique and rising within one process. Not thread-safe: call under a lock.

    Milliseconds (48 bits), a counter that starts at random below 1024 (12 bits), and 62 random bits that
    are drawn anew for each millisecond (RFC 9562, method 1). When a millisecond's counter is used up,
    the next one is begun early.
    """

    __slots__ = ("_count", "_head", "_ms", "_rng", "_tail")

    def __init__(self, rng: Bits) -> None:
        self._rng = rng
        self._ms = -1
        self._count = 0x1000
        self._head = self._tail = ""

    def mint(self, now_ms: int, count: int) -> list[str]:
        """So many new ids."""
        if now_ms > self._ms:
            self._begin(now_ms)
        if count == 1 and self._count < 0x1000:
            self._count += 1
            return [self._head + _COUNTS[self._count - 1] + self._tail]
        ids: list[str] = []
        while count:
            if self._count == 0x1000:
                self._begin(max(now_ms, self._ms + 1))
            counts = _COUNTS[self._count : self._count + count]
            head, tail = self._head, self._tail
            ids += [head + each + tail for each in counts]
            self._count += len(counts)
            count -= len(counts)
        return ids

    def _begin(self, ms: int) -> None:
        self._ms = ms
        self._count = self._rng.getrandbits(10)
        time = f"{ms & 0xFFFFFFFFFFFF:012x}"
        random = f"{self._rng.getrandbits(62) | 1 << 63:016x}"
        self._head = f"{time[:8]}-{time[8:]}-7"
        self._tail = f"-{random[:4]}-{random[4:]}"


def uuid7_ms(id: str) -> int | None:
    """When a UUIDv7 was made; None for any other id."""
    if len(id) != 36 or id[14] != "7" or id[8] != "-" or id[13] != "-":
        return None
    try:
        return int(id[:8] + id[9:13], 16)
    except ValueError:
        return None


def made_otherwise(ids: Iterable[str], after: int, through: int) -> list[str]:
    """Those that are no UUIDv7 made after one moment and not after another.

    Ids made together begin alike, so that few beginnings need a closer look.
    """
    beginnings: dict[str, bool] = {}
    found: list[str] = []
    for id in ids:
        beginning = id[:15] if len(id) == 36 else ""
        sound = beginnings.get(beginning)
        if sound is None:
            made = uuid7_ms(id)
            sound = beginnings[beginning] = made is not None and after < made <= through
        if not sound:
            found.append(id)
    return found
