"""Dedup at admission: the same id to the same target within the window is the same message.

While a message is unsettled its entry answers for it, content and all. Once settled, a `Seen`
of some 100 bytes stays in its place for the window (24 h). The newest of them are kept in
memory; older ones may be forgotten here once the store has them, and then the shell looks an
id up in the store before the step. `horizon` says which ids need that: everything accepted
after it is still in memory, so an id made after it cannot be known to the store alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec
import xxhash

from relaymesh.kernel.entry import Entry

WINDOW_MS = 86_400_000
REMEMBERED_MAX = 100_000


digest_of: Callable[[bytes], bytes] = xxhash.xxh3_128_digest
"""Tells equal content from other content. Not a signature: a sender can only fool itself."""


class Seen(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What is left of an admitted message: enough to give its receipt again."""

    sequence: int
    at: int
    digest: bytes
    targets: int = 1
    due: int = 0


class Admitted:
    """Every id admitted within the window, by target (a mailbox or a topic)."""

    __slots__ = ("_by_target", "_order", "horizon", "remembered_max", "stored_through")

    def __init__(self, remembered_max: int = REMEMBERED_MAX) -> None:
        self._by_target: dict[str, dict[str, Entry | Seen]] = {}
        self._order: deque[tuple[Seen, str, str]] = deque()
        self.horizon = -1
        self.remembered_max = remembered_max
        self.stored_through = 0
        """While replaying: what was settled below this sequence is in the store, and not remembered here."""

    def of(self, target: str) -> dict[str, Entry | Seen]:
        """The ids of one target, to be read and added to in a loop."""
        known = self._by_target.get(target)
        if known is None:
            known = self._by_target[target] = {}
        return known

    def settle(self, target: str, entries: list[Entry]) -> None:
        """The entries are gone; their ids stay."""
        known = self.of(target)
        order = self._order
        stored_through = self.stored_through
        for entry in entries:
            envelope, at = entry.envelope, entry.accepted_at
            id, delay = envelope.id, envelope.delay_ms
            if entry.sequence < stored_through:
                del known[id]
                self.horizon = max(self.horizon, at)
                continue
            due = at + delay if delay > 0 else at
            seen = known[id] = Seen(entry.sequence, at, digest_of(envelope.content), 1, due)
            order.append((seen, target, id))

    def remember(self, target: str, id: str, seen: Seen) -> None:
        self.of(target)[id] = seen
        self._order.append((seen, target, id))

    def forget(self, stored_through: int, now: int) -> None:
        """Drop what is past the window, and what the store has beyond the newest `remembered_max`."""
        order = self._order
        while order:
            seen, target, id = order[0]
            expired = seen.at + WINDOW_MS <= now
            if not expired and (len(order) <= self.remembered_max or seen.sequence >= stored_through):
                return
            order.popleft()
            if not expired:
                self.horizon = max(self.horizon, seen.at)
            known = self._by_target[target]
            if known.get(id) is seen:
                del known[id]
                if not known:
                    del self._by_target[target]

    def remembered(self) -> list[tuple[str, str, Seen]]:
        """Settled ids, but for those admitted again, in the order they were settled: for a checkpoint."""
        by_target = self._by_target
        return [
            (target, id, seen)
            for seen, target, id in self._order
            if by_target.get(target, {}).get(id) is seen
        ]
