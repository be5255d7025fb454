"""Timers: entries that fall due, entries that expire, leases that expire, mailboxes to wake.

The first three delete lazily: a settled item stays in its structure until its time comes, or until settled
items outnumber the rest and are swept out. They hold names, never entries, so that a settled entry is freed.

Each has `next`, the time of its first item: an attribute, because every step looks at it.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from relaymesh.kernel.entry import Entry, Grant, Lease, Leases
from relaymesh.kernel.moment import NEVER
from relaymesh.kernel.parcel import Parcel
from relaymesh.kernel.pending import DELAYED, LEASED

if TYPE_CHECKING:
    from relaymesh.kernel.mailbox import Mailbox

EXPIRY_BUCKET_BITS = 10
SWEEP_MIN = 4_096


class DueTimes:
    """Delayed entries by the time they may next be delivered; equal times in send order."""

    __slots__ = ("_gone", "_heap", "_ties", "next")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, Mailbox]] = []
        """Ready time, sequence, tie, mailbox."""
        self.next = NEVER
        self._ties = 0
        self._gone = 0

    def add(self, mailbox: Mailbox, entry: Entry) -> None:
        self._ties += 1
        heappush(self._heap, (entry.ready_at, entry.sequence, self._ties, mailbox))
        self.next = self._heap[0][0]

    def gone(self, count: int) -> None:
        """Count entries here that no longer wait: they are settled, or were forced."""
        self._gone += count
        if self._gone > SWEEP_MIN and self._gone * 2 > len(self._heap):
            self._heap = [item for item in self._heap if _waiting(item[3], item[1], item[0]) is not None]
            heapify(self._heap)
            self._gone = 0
            self.next = self._heap[0][0] if self._heap else NEVER

    def pop_due(self, now: int) -> Iterator[tuple[Mailbox, Entry]]:
        while self._heap and self._heap[0][0] <= now:
            when, sequence, _, mailbox = heappop(self._heap)
            self.next = self._heap[0][0] if self._heap else NEVER
            entry = _waiting(mailbox, sequence, when)
            if entry is None:
                self._gone -= 1
            else:
                yield mailbox, entry

    def __len__(self) -> int:
        return len(self._heap)


def _waiting(mailbox: Mailbox, sequence: int, when: int) -> Entry | None:
    """The entry, if it still waits for that time."""
    entry = mailbox.entries.alone(sequence)
    if entry is not None and entry.state == DELAYED and entry.ready_at == when:
        return entry
    return None


class Expiry:
    """Entries with a TTL, in buckets of about a second each, by the end of the bucket."""

    __slots__ = ("_buckets", "_keys", "_listed", "_settled", "next")

    def __init__(self) -> None:
        self._buckets: dict[int, dict[Mailbox, list[int]]] = {}
        """Sequences, by mailbox, by the number of the bucket."""
        self._keys: list[int] = []
        self.next = NEVER
        self._listed = 0
        self._settled = 0

    def add(self, mailbox: Mailbox, entries: list[Entry]) -> None:
        last_key = -1
        bucket: list[int] = []
        listed = 0
        for entry in entries:
            ttl = entry.envelope.ttl_ms
            if ttl:
                key = (entry.due_at + ttl >> EXPIRY_BUCKET_BITS) + 1
                if key != last_key:
                    bucket = self._bucket(key, mailbox)
                    last_key = key
                bucket.append(entry.sequence)
                listed += 1
        self._listed += listed

    def add_parcel(self, mailbox: Mailbox, parcel: Parcel) -> None:
        if parcel.ttl_ms:
            key = (parcel.accepted_at + parcel.ttl_ms >> EXPIRY_BUCKET_BITS) + 1
            self._bucket(key, mailbox).extend(parcel.sequences)
            self._listed += parcel.count

    def _bucket(self, key: int, mailbox: Mailbox) -> list[int]:
        by_mailbox = self._buckets.get(key)
        if by_mailbox is None:
            by_mailbox = self._buckets[key] = {}
            heappush(self._keys, key)
            self._look()
        return by_mailbox.setdefault(mailbox, [])

    def settled(self, count: int) -> None:
        """Count entries that are gone, with or without a TTL; sweep before they are most of the list."""
        self._settled += count
        if self._settled > SWEEP_MIN and self._settled * 2 > self._listed:
            self._sweep()

    def _sweep(self) -> None:
        buckets: dict[int, dict[Mailbox, list[int]]] = {}
        self._listed = self._settled = 0
        for key, by_mailbox in self._buckets.items():
            for mailbox, bucket in by_mailbox.items():
                kept = [sequence for sequence in bucket if sequence in mailbox.entries.by_sequence]
                if kept:
                    buckets.setdefault(key, {})[mailbox] = kept
                    self._listed += len(kept)
        self._buckets = buckets
        self._keys = sorted(buckets)
        self._look()

    def returned(self, mailbox: Mailbox, entry: Entry, now: int) -> None:
        """An entry came back: add it again if its bucket may have been emptied meanwhile."""
        ttl = entry.envelope.ttl_ms
        if ttl and _bucket_of(entry.due_at + ttl) << EXPIRY_BUCKET_BITS <= now:
            self._add_again(mailbox, entry)

    def _add_again(self, mailbox: Mailbox, entry: Entry) -> None:
        self._bucket(_bucket_of(entry.expires_at), mailbox).append(entry.sequence)
        self._listed += 1

    def _look(self) -> None:
        self.next = self._keys[0] << EXPIRY_BUCKET_BITS if self._keys else NEVER

    def pop_expired(self, now: int) -> list[tuple[Mailbox, list[Entry]]]:
        """What waits in the buckets that are over, once each. A leased entry is checked when it returns."""
        expired: dict[Mailbox, dict[int, Entry]] = {}
        while self._keys and self._keys[0] << EXPIRY_BUCKET_BITS <= now:
            key = heappop(self._keys)
            for mailbox, bucket in self._buckets.pop(key).items():
                self._listed -= len(bucket)
                put_off: dict[int, Entry] = {}
                for sequence in bucket:
                    entry = mailbox.entries.look(sequence)
                    if entry is None or entry.state == LEASED:
                        continue
                    if _bucket_of(entry.expires_at) > key:  # by a nack, after it was added
                        put_off[sequence] = entry
                    else:
                        expired.setdefault(mailbox, {})[sequence] = mailbox.entries.take_out(sequence)
                for entry in put_off.values():
                    self._add_again(mailbox, entry)
        self._look()
        return [(mailbox, list(entries.values())) for mailbox, entries in expired.items()]

    def __len__(self) -> int:
        return self._listed


def _bucket_of(expires: int) -> int:
    """The number of the next bucket to end after this time."""
    return (expires >> EXPIRY_BUCKET_BITS) + 1


class LeaseClock:
    """Grants, and extended leases, by their deadlines."""

    __slots__ = ("_heap", "_leases", "_limit", "_ties", "next")

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        """The state's own table, by token: a missing token is no longer held."""
        self._heap: list[tuple[int, int, Grant | int]] = []
        """Deadline, tie, and a grant or the token of a lease."""
        self.next = NEVER
        self._ties = 0
        self._limit = SWEEP_MIN

    def add(self, grant: Grant) -> None:
        self._push(grant.deadline, grant)

    def extend(self, lease: Lease) -> None:
        """The lease has a new deadline."""
        self._push(lease.deadline, lease.token)

    def _push(self, deadline: int, item: Grant | int) -> None:
        heap = self._heap
        while heap and not self._held(heap[0][0], heap[0][2]):
            heappop(heap)
        if len(heap) >= self._limit:
            self._heap = heap = [item for item in heap if self._held(item[0], item[2])]
            heapify(heap)
            self._limit = max(SWEEP_MIN, 2 * len(heap))
        self._ties += 1
        heappush(heap, (deadline, self._ties, item))
        self.next = heap[0][0]

    def _held(self, deadline: int, item: Grant | int) -> bool:
        """Whether the item may have a lease that expires at that deadline."""
        if isinstance(item, Grant):
            return item.held > 0
        lease = self._leases.get(item)
        return isinstance(lease, Lease) and lease.deadline == deadline

    def pop_expired(self, now: int) -> list[Lease]:
        """Leases whose deadline has passed, in the order of their deadlines."""
        expired: list[Lease] = []
        while self._heap and self._heap[0][0] <= now:
            deadline, _, item = heappop(self._heap)
            tokens = item.tokens if isinstance(item, Grant) else [item]
            for token in tokens:
                lease = self._leases.get(token)
                if isinstance(lease, Parcel):
                    lease = lease.lease_of(token)
                if lease is not None and lease.deadline == deadline:
                    expired.append(lease)
        self.next = self._heap[0][0] if self._heap else NEVER
        return expired

    def __len__(self) -> int:
        return len(self._heap)


class Wakes:
    """Mailboxes that hold deliveries back, by the time they may deliver again."""

    __slots__ = ("_heap", "_ties", "next")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Mailbox]] = []
        self._ties = 0
        self.next = NEVER

    def add(self, mailbox: Mailbox, when: int) -> None:
        self._ties += 1
        heappush(self._heap, (when, self._ties, mailbox))
        self.next = self._heap[0][0]

    def pop_due(self, now: int) -> list[Mailbox]:
        """Each once, in the order of their times."""
        due: dict[Mailbox, None] = {}
        while self._heap and self._heap[0][0] <= now:
            due[heappop(self._heap)[2]] = None
        self.next = self._heap[0][0] if self._heap else NEVER
        return list(due)

    def __len__(self) -> int:
        return len(self._heap)
