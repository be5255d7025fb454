"""Parcels: messages that were accepted together stay together until one of them goes its own way.

Most messages come in batches, are delivered in order, and are acked as they came. Nothing is decided about
those that differs from one to the next, so they stand in their mailbox as one `Parcel`: one item in the
ready queue, one grant, one settle. Whoever needs one of them by itself asks for its entry, and the parcel
is unpacked: from then on each of its messages is an `Entry` like any other. That may happen at any time and
changes nothing about what the mailbox means, so nothing but speed depends on how long a parcel lasts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast
from weakref import ref

from relaymesh.kernel.entry import Entry, Grant, Lease
from relaymesh.kernel.envelope import Envelope, size_of
from relaymesh.kernel.pending import LEASED, READY

PARCEL_MIN = 2
"""A batch of fewer messages is not worth a parcel."""
CUT_MIN = 4
"""Whoever takes fewer of a parcel takes them one by one: so small a parcel costs more than its entries."""


def alike(envelopes: list[Envelope]) -> bool:
    """Whether these may be one parcel: all rules are the same for them, and none is a lane's or a time's."""
    if len(envelopes) < PARCEL_MIN:
        return False
    first = envelopes[0]
    priority, ttl_ms = first.priority, first.ttl_ms
    for envelope in envelopes:
        if (
            envelope.priority != priority
            or envelope.ttl_ms != ttl_ms
            or envelope.delay_ms > 0
            or envelope.key is not None
            or envelope.task is not None
            or envelope.requires_ack
        ):
            return False
    return True


class Parcel:
    """Consecutive messages of one mailbox, all ready or all leased to one holder by one grant."""

    __slots__ = (
        "_home",
        "_leases",
        "accepted_at",
        "admitted",
        "bytes",
        "count",
        "envelopes",
        "first",
        "grant",
        "leased",
        "priority",
        "queued",
        "sender",
        "token",
        "topic",
        "ttl_ms",
        "unpacked",
    )

    lane = None
    completed = False

    def __init__(
        self, home: Entries, first: int, accepted_at: int, envelopes: list[Envelope], topic: str | None = None
    ) -> None:
        """`topic`: which they were published to, if that brought them here."""
        self._home = ref(home)  # a lease that is out leads here, and must not keep the mailbox
        self._leases: list[Lease] | None = None
        self.first = first
        self.accepted_at = accepted_at
        self.topic = topic
        self.admitted = topic is None
        """Whether their ids are this mailbox's to remember; those of copies from a topic are not."""
        self.count = len(envelopes)
        self.envelopes = envelopes
        self.bytes = size_of(envelopes)
        senders = {envelope.sender for envelope in envelopes}
        self.sender = senders.pop() if len(senders) == 1 else None
        """Of all of them; None when they have several."""
        self.priority = envelopes[0].priority
        self.ttl_ms = envelopes[0].ttl_ms
        self.queued = 0
        self.unpacked = False
        self.leased = False
        self.token = 0
        self.grant: Grant | None = None

    @property
    def sequences(self) -> range:
        return range(self.first, self.first + self.count)

    @property
    def tokens(self) -> range:
        return range(self.token, self.token + self.count)

    @property
    def due_at(self) -> int:
        return self.accepted_at

    @property
    def expires_at(self) -> int:
        """When they expire if still pending; 0 for never."""
        return self.accepted_at + self.ttl_ms if self.ttl_ms else 0

    @property
    def ids(self) -> list[str]:
        return [envelope.id for envelope in self.envelopes]

    @property
    def ready_sequence(self) -> int:
        """The last event that made one of them deliverable."""
        return self.first + self.count - 1

    def cut(self, count: int) -> Parcel:
        """The first `count` of them, ready like the rest, as a parcel of their own."""
        home = self._home()
        assert home is not None
        envelopes = self.envelopes[:count]
        front = Parcel(home, self.first, self.accepted_at, envelopes, self.topic)
        front.queued = self.queued
        del self.envelopes[:count]
        self.first += count
        self.count -= count
        self.bytes -= front.bytes
        home.enter(front)
        return front

    def lend(self, token: int, grant: Grant) -> None:
        """All are leased: tokens from `token` on, in order."""
        self.leased = True
        self.token, self.grant = token, grant

    @property
    def leases(self) -> list[Lease]:
        """The leases of a parcel that is lent; the same ones each time."""
        if self._leases is None:
            grant = self.grant
            assert grant is not None
            deadline, shift = grant.deadline, self.first - self.token
            self._leases = [
                Lease(token, self, envelope, 1, deadline, grant, token + shift)
                for token, envelope in enumerate(self.envelopes, self.token)
            ]
        return self._leases

    def end(self) -> None:
        """All are settled. Cuts the links between the parcel and its leases, which no collector knows."""
        self.leased = False
        self._leases = self.grant = None
        self.envelopes = []

    def look(self, sequence: int) -> Entry:
        """One of them as an entry to be looked at; changing it changes nothing."""
        at = self.accepted_at
        envelope = self.envelopes[sequence - self.first]
        state = LEASED if self.leased else READY
        entry = Entry(envelope, sequence, at, at, at, sequence, self.priority, state, int(self.leased))
        entry.queued = self.queued
        if self.topic is not None:
            entry.topic = self.topic
        if self.leased:
            entry.lease = self.leases[sequence - self.first]
        return entry

    def unpack(self) -> None:
        """Each goes its own way from here on; what is handed out already stays good."""
        home = self._home()
        assert home is not None
        assert self.envelopes, "a parcel that has ended, or was unpacked, has nothing in it"
        for sequence in self.sequences:
            entry = home.held[sequence] = self.look(sequence)
            if entry.lease is not None:
                entry.lease.place = entry
        self.unpacked = True
        self._leases = self.grant = None
        self.envelopes = []


class Entries:
    """The unsettled messages of one mailbox, by sequence, in the order in which they came."""

    __slots__ = ("__weakref__", "held")

    def __init__(self) -> None:
        self.held: dict[int, Entry | Parcel] = {}
        """A parcel stands here once for each of its messages."""

    def __len__(self) -> int:
        return len(self.held)

    def __contains__(self, sequence: int) -> bool:
        return sequence in self.held

    def __iter__(self) -> Iterator[int]:
        return iter(self.held)

    def __getitem__(self, sequence: int) -> Entry:
        """The entry itself, to be changed: the parcel it is in is unpacked."""
        item = self.held[sequence]
        if not isinstance(item, Entry):
            item.unpack()
            item = self.held[sequence]
            assert isinstance(item, Entry)
        return item

    def get(self, sequence: int) -> Entry | None:
        item = self.held.get(sequence)
        return self[sequence] if isinstance(item, Parcel) else item

    def __setitem__(self, sequence: int, entry: Entry) -> None:
        self.held[sequence] = entry

    def __delitem__(self, sequence: int) -> None:
        del self.held[sequence]

    def look(self, sequence: int) -> Entry | None:
        """An entry to be looked at; nothing is unpacked."""
        item = self.held.get(sequence)
        return item.look(sequence) if isinstance(item, Parcel) else item

    def values(self) -> Iterator[Entry]:
        """All, to be looked at one after the other; nothing is unpacked."""
        for sequence, item in self.held.items():
            yield item if isinstance(item, Entry) else item.look(sequence)

    def every(self) -> list[Entry]:
        """All at once, to be looked at; nothing is unpacked."""
        if self._holds_parcels():
            return list(self.values())
        return cast("list[Entry]", list(self.held.values()))

    def _holds_parcels(self) -> bool:
        return Parcel in set(map(type, self.held.values()))

    def enter(self, parcel: Parcel) -> None:
        self.held.update(dict.fromkeys(parcel.sequences, parcel))

    def leave(self, parcel: Parcel) -> None:
        held = self.held
        for sequence in parcel.sequences:
            del held[sequence]

    def unpack(self) -> list[Entry]:
        """Each message by itself from here on; returns all, in the order in which they came."""
        if self._holds_parcels():
            for parcel in {item for item in self.held.values() if isinstance(item, Parcel)}:
                parcel.unpack()
        return cast("list[Entry]", list(self.held.values()))

    def ready_parts(self, sequences: list[int]) -> list[Entry | Parcel]:
        """What waits under these sequences: parcels, or fronts of parcels, that they name in order."""
        return self._parts(sequences, leased=False)

    def leased_parts(self, sequences: list[int]) -> list[Entry | Parcel]:
        """What is leased under these sequences: parcels that they name whole and in order."""
        return self._parts(sequences, leased=True)

    def _parts(self, sequences: list[int], *, leased: bool) -> list[Entry | Parcel]:
        held = self.held
        parts: list[Entry | Parcel] = []
        start, end = 0, len(sequences)
        while start < end:
            item = held[sequences[start]]
            if isinstance(item, Parcel):
                count = min(item.count, end - start)
                whole = count == item.count
                named = sequences[start : start + count] == list(item.sequences[:count])
                if named and item.leased is leased and (whole or (not leased and count >= CUT_MIN)):
                    parts.append(item if whole else item.cut(count))
                    start += count
                    continue
            parts.append(self[sequences[start]])
            start += 1
        return parts


def entries_of(parts: Iterable[Entry | Parcel], home: Entries) -> list[Entry]:
    """Each message of these by itself: parcels are unpacked."""
    return [home[sequence] for sequence in sequences_of(parts)]


def sequences_of(parts: Iterable[Entry | Parcel]) -> list[int]:
    sequences: list[int] = []
    for part in parts:
        if isinstance(part, Parcel):
            sequences += part.sequences
        else:
            sequences.append(part.sequence)
    return sequences
