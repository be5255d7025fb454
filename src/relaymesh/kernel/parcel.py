"""Parcels: messages that were accepted together stay together until one of them is needed alone.

Most messages come in batches, are delivered in order, and are acked as they came. Every decision about them
is the same, so they form one `Parcel` in their mailbox: one item in the ready queue, one grant, one settle,
and no lease per message. When one of them is needed alone, the parcel is unpacked: from then on each of its
messages is an ordinary `Entry`. That may happen at any time and changes nothing about the meaning of the
mailbox: only speed depends on how long a parcel lasts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import ref

from relaymesh.kernel.entry import Entry, Grant, Lease, Leases
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.pending import LEASED, READY

if TYPE_CHECKING:
    from relaymesh.kernel.entries import Entries

PARCEL_MIN = 2
"""A batch of fewer messages is not worth a parcel."""
CUT_MIN = 4
"""A receiver that takes fewer of a parcel gets entries: a parcel this small costs more than its entries."""


def alike(envelopes: list[Envelope]) -> bool:
    """Whether these may form a parcel: the same rules apply to all, and none has a lane, a time or a file."""
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
            or envelope.encoding > 1  # in a file
        ):
            return False
    return True


class Parcel:
    """Consecutive messages of one mailbox, all ready or all leased to one holder by one grant."""

    __slots__ = (
        "_grant",
        "_home",
        "_leases",
        "accepted_at",
        "admitted",
        "bytes",
        "count",
        "envelopes",
        "first",
        "leased",
        "priority",
        "queued",
        "sender",
        "token",
        "topic",
        "ttl_ms",
        "unpacked",
    )

    completed = False

    def __init__(
        self, home: Entries, first: int, accepted_at: int, envelopes: list[Envelope], topic: str | None = None
    ) -> None:
        """`topic`: what they were published to, if they came by a publish."""
        self._home = ref(home)  # the leases that are out lead here, and must not keep the mailbox
        self._leases: Leases | None = None
        self.first = first
        self.accepted_at = accepted_at
        self.topic = topic
        self.admitted = topic is None
        """Whether this mailbox remembers their ids; those of copies from a topic it does not."""
        self.count = len(envelopes)
        self.envelopes = envelopes
        self.bytes = sum([len(e.content) if e.extra is None else e.size for e in envelopes])
        senders = {envelope.sender for envelope in envelopes}
        self.sender = senders.pop() if len(senders) == 1 else None
        """The sender of all of them; None when there are several."""
        self.priority = envelopes[0].priority
        self.ttl_ms = envelopes[0].ttl_ms
        self.queued = 0
        self.unpacked = False
        self.leased = False
        self.token = 0
        self._grant: Grant | None = None

    @property
    def state(self) -> int:
        return LEASED if self.leased else READY

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
    def ready_at(self) -> int:
        return self.accepted_at

    @property
    def sequence(self) -> int:
        """That of the first one: its place in the queue."""
        return self.first

    @property
    def expires_at(self) -> int:
        """When they expire if still pending; 0: never."""
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

    def lend(self, token: int, grant: Grant, leases: Leases | None) -> None:
        """Lease all: tokens from `token` on, in order."""
        self.leased = True
        self.token, self._grant, self._leases = token, grant, leases
        if leases is not None:
            leases.update(dict.fromkeys(self.tokens, self))

    @property
    def grant(self) -> Grant:
        """The grant that leases them."""
        assert self._grant is not None, "a parcel has a grant while it is lent"
        return self._grant

    def named_in(self, tokens: Sequence[int], start: int) -> Entry | Parcel:
        """What the tokens from `start` on settle first: the whole parcel, if they name all of it in order."""
        if tokens[start : start + self.count] == list(self.tokens):
            return self
        return self.lease_of(tokens[start]).entry

    def lease_of(self, token: int) -> Lease:
        """The lease of one of them: the parcel is unpacked."""
        leases = self._leases
        assert leases is not None
        self.unpack()
        lease = leases[token]
        assert isinstance(lease, Lease)
        return lease

    def end(self) -> None:
        """All are settled."""
        if self._leases is not None:
            self.grant.held -= self.count
            leases = self._leases
            for token in self.tokens:
                del leases[token]
        self.leased = False
        self._leases = self._grant = None
        self.envelopes = []

    def look(self, sequence: int) -> Entry:
        """One of them as an entry, read only: changing it changes nothing.

        Its lease leads to a second such entry, which has none: so the three form no cycle.
        """
        entry = self._entry(sequence)
        if self.leased:
            entry.lease = self._lease(self._entry(sequence))
        return entry

    def _entry(self, sequence: int) -> Entry:
        at = self.accepted_at
        envelope = self.envelopes[sequence - self.first]
        attempts = int(self.leased)
        entry = Entry(envelope, sequence, at, at, at, sequence, self.priority, self.state, attempts)
        entry.queued = self.queued
        if self.topic is not None:
            entry.topic = self.topic
        return entry

    def _lease(self, entry: Entry) -> Lease:
        token = self.token + entry.sequence - self.first
        return Lease(token, entry, 1, self.grant.deadline, self.grant)

    def unpack(self) -> None:
        """Unpack: each is an entry from here on; tokens given out stay valid."""
        home, leases = self._home(), self._leases
        assert home is not None
        assert self.envelopes, "a parcel that has ended, or was unpacked, has nothing in it"
        for sequence in self.sequences:
            entry = home.by_sequence[sequence] = self._entry(sequence)
            if self.leased:
                entry.lease = lease = self._lease(entry)
                if leases is not None:
                    leases[lease.token] = lease
        self.unpacked = True
        self._leases = self._grant = None
        self.envelopes = []


Part = Entry | Parcel
"""Messages that are delivered or settled together: one, or a parcel of them.

Both have `count`, `sequences`, `state`, `priority`, `expires_at`, `ready_sequence` and `completed`, and are
lent with `lend`. What is leased under a token, a `Lease` or a lent `Parcel`, has a `grant`, and `named_in`
says what a list of tokens settles of it.
"""
