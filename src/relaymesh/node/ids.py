"""Message ids: UUIDv7, so that they sort by the time they were made."""

from __future__ import annotations

from relaymesh.node.rng import Rng

_COUNTER_MAX = 0xFFF


class IdMint:
    """Makes ids that are unique and rising within one process. Not thread-safe: call under a lock."""

    __slots__ = ("_counter", "_ms", "_prefix", "_rng")

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self._ms = -1
        self._counter = 0
        self._prefix = ""

    def mint(self, now_ms: int, count: int) -> list[str]:
        """So many new ids. The 12 bits after the time count, the last 62 are random (RFC 9562, method 1)."""
        bits = self._rng.getrandbits
        ids = []
        for _ in range(count):
            if now_ms > self._ms or self._counter == _COUNTER_MAX:
                self._start(max(now_ms, self._ms + 1))
            self._counter += 1
            tail = f"{bits(62) | 1 << 63:016x}"
            ids.append(f"{self._prefix}{self._counter:03x}-{tail[:4]}-{tail[4:]}")
        return ids

    def _start(self, ms: int) -> None:
        self._ms = ms
        self._counter = self._rng.getrandbits(10)
        text = f"{ms & 0xFFFFFFFFFFFF:012x}"
        self._prefix = f"{text[:8]}-{text[8:]}-7"


def uuid7_ms(id: str) -> int | None:
    """When a UUIDv7 was made; None for any other id."""
    if len(id) != 36 or id[14] != "7" or id[8] != "-" or id[13] != "-":
        return None
    try:
        return int(id[:8] + id[9:13], 16)
    except ValueError:
        return None
