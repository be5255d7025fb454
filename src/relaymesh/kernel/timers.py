"""What must happen later: entries that fall due, entries that expire, leases that run out.

All three delete lazily: what is settled stays in its structure until its time comes, or until it
outnumbers the rest and is swept out.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from relaymesh.kernel.entry import DELAYED, LEASED, SETTLED, Entry, Grant, Lease

if TYPE_CHECKING:
    from relaymesh.kernel.mailbox import Mailbox

NEVER = 1 << 62
EXPIRY_BUCKET_BITS = 10
SWEEP_MIN = 4_096


class DueTimes:
    """Delayed entries by the time they may next be delivered; equal times in send order."""

    __slots__ = ("_gone", "_heap", "_ties")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, Mailbox, Entry]] = []
        self._ties = 0
        self._gone = 0

    def add(self, mailbox: Mailbox, entry: Entry) -> None:
        self._ties += 1
        heappush(self._heap, (entry.ready_at, entry.sequence, self._ties, mailbox, entry))

    def gone(self, count: int) -> None:
        """So many entries that stand here no longer wait: they are settled, or were forced."""
        self._gone += count
        if self._gone > SWEEP_MIN and self._gone * 2 > len(self._heap):
            self._heap = [item for item in self._heap if _waits_for(item[4], item[0])]
            heapify(self._heap)
            self._gone = 0

    @property
    def next(self) -> int:
        return self._heap[0][0] if self._heap else NEVER

    def pop_due(self, now: int) -> Iterator[tuple[Mailbox, Entry]]:
        while self._heap and self._heap[0][0] <= now:
            when, _, _, mailbox, entry = heappop(self._heap)
            if _waits_for(entry, when):
                yield mailbox, entry
            else:
                self._gone -= 1

    def __len__(self) -> int:
        return len(self._heap)


def _waits_for(entry: Entry, when: int) -> bool:
    return entry.state == DELAYED and entry.ready_at == when


class Expiry:
    """Entries with a TTL, in buckets of about a second each, by the time a bucket is over."""

    __slots__ = ("_buckets", "_held", "_keys", "_settled")

    def __init__(self) -> None:
        self._buckets: dict[int, dict[Mailbox, list[Entry]]] = {}
        self._keys: list[int] = []
        self._held = 0
        self._settled = 0

    def add(self, mailbox: Mailbox, entries: list[Entry]) -> None:
        last_key = -1
        bucket: list[Entry] = []
        held = 0
        for entry in entries:
            ttl = entry.envelope.ttl_ms
            if ttl:
                key = (entry.due_at + ttl >> EXPIRY_BUCKET_BITS) + 1
                if key != last_key:
                    bucket = self._bucket(key, mailbox)
                    last_key = key
                bucket.append(entry)
                held += 1
        self._held += held

    def _bucket(self, key: int, mailbox: Mailbox) -> list[Entry]:
        by_mailbox = self._buckets.get(key)
        if by_mailbox is None:
            by_mailbox = self._buckets[key] = {}
            heappush(self._keys, key)
        return by_mailbox.setdefault(mailbox, [])

    def settled(self, count: int) -> None:
        """So many entries are gone, with or without a TTL; sweep before they are most of what is held."""
        self._settled += count
        if self._settled > SWEEP_MIN and self._settled * 2 > self._held:
            self._sweep()

    def _sweep(self) -> None:
        buckets: dict[int, dict[Mailbox, list[Entry]]] = {}
        self._held = self._settled = 0
        for key, by_mailbox in self._buckets.items():
            for mailbox, bucket in by_mailbox.items():
                kept = [entry for entry in bucket if entry.state != SETTLED]
                if kept:
                    buckets.setdefault(key, {})[mailbox] = kept
                    self._held += len(kept)
        self._buckets = buckets
        self._keys = sorted(buckets)

    @staticmethod
    def passed(entry: Entry, now: int) -> bool:
        """Whether the entry's bucket was emptied already, so that it must be added again."""
        expires = entry.expires_at
        return bool(expires) and (expires >> EXPIRY_BUCKET_BITS) + 1 << EXPIRY_BUCKET_BITS <= now

    @property
    def next(self) -> int:
        return self._keys[0] << EXPIRY_BUCKET_BITS if self._keys else NEVER

    def pop_expired(self, now: int) -> list[tuple[Mailbox, list[Entry]]]:
        """What still waits in the buckets that are over, once each; a leased entry is looked at when it returns."""
        expired: dict[Mailbox, dict[int, Entry]] = {}
        while self._keys and self._keys[0] << EXPIRY_BUCKET_BITS <= now:
            for mailbox, bucket in self._buckets.pop(heappop(self._keys)).items():
                self._held -= len(bucket)
                for entry in bucket:
                    if entry.state != SETTLED and entry.state != LEASED:
                        expired.setdefault(mailbox, {})[entry.sequence] = entry
        return [(mailbox, list(entries.values())) for mailbox, entries in expired.items()]

    def __len__(self) -> int:
        return self._held


class LeaseClock:
    """Grants, and leases that were extended, by their deadlines."""

    __slots__ = ("_heap", "_limit", "_ties")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Grant | Lease]] = []
        self._ties = 0
        self._limit = SWEEP_MIN

    def add(self, grant: Grant) -> None:
        self._push(grant.deadline, grant)

    def extend(self, lease: Lease) -> None:
        """The lease has a new deadline."""
        self._push(lease.deadline, lease)

    def _push(self, deadline: int, item: Grant | Lease) -> None:
        heap = self._heap
        while heap and not _held(heap[0][0], heap[0][2]):
            heappop(heap)
        if len(heap) >= self._limit:
            self._heap = heap = [item for item in heap if _held(item[0], item[2])]
            heapify(heap)
            self._limit = max(SWEEP_MIN, 2 * len(heap))
        self._ties += 1
        heappush(heap, (deadline, self._ties, item))

    @property
    def next(self) -> int:
        return self._heap[0][0] if self._heap else NEVER

    def pop_expired(self, now: int) -> list[Lease]:
        """Leases whose deadline has come, in the order of their deadlines."""
        expired: list[Lease] = []
        while self._heap and self._heap[0][0] <= now:
            _, _, item = heappop(self._heap)
            leases = [item] if isinstance(item, Lease) else item.leases.values()
            expired.extend(lease for lease in leases if lease.entry.lease is lease and lease.deadline <= now)
        return list(dict.fromkeys(expired))

    def __len__(self) -> int:
        return len(self._heap)


def _held(deadline: int, item: Grant | Lease) -> bool:
    """Whether the item may have a lease that runs out at that deadline."""
    if isinstance(item, Grant):
        return bool(item.leases)
    return item.entry.lease is item and item.deadline == deadline
