"""Deliveries that one receiver is given together, as values: columns, one row for each.

This is what leaves the kernel, and all there is to a delivery outside of it. A receiver may keep it for as
long as it likes and do with it what it likes: it leads to nothing that the kernel has. Whether a lease is
still held is asked by its token.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

import msgspec

from relaymesh.kernel.envelope import Envelope

NO_LANE = -1


class DeliveryRow(msgspec.Struct, frozen=True, gc=False):
    """One delivery, for those that take them one by one."""

    mailbox: str
    token: int
    sequence: int
    attempt: int
    deadline: int
    envelope: Envelope
    settled: bool
    lane: int
    topic: str | None
    accepted_at: int
    priority: int
    expires_at: int


class Deliveries(msgspec.Struct, frozen=True, gc=False):
    """Columns of the same length. None of them at all: nothing came, or nothing will ever come."""

    mailbox: str
    tokens: Sequence[int]
    sequences: Sequence[int]
    attempts: Sequence[int]
    deadlines: Sequence[int]
    envelopes: Sequence[Envelope]
    lanes: Sequence[int] | None = None
    """Rows with the same number are to be worked on one after the other; -1 is no lane. None: no lanes."""
    topics: Sequence[str | None] | None = None
    """Of a subscription, the topic each was published to; a single one is that of all rows."""
    settled: bool = False
    """Settled before they left (at_most_once): there is nothing to settle."""
    lane_keys: Sequence[str] = ()
    """The key of each lane, by its number, where the node says so."""
    accepted: Sequence[int] | None = None
    """When each was accepted; a node far away does not say. So with the next two."""
    priorities: Sequence[int] | None = None
    """Those they stand under now, which may be others than their senders gave."""
    expires: Sequence[int] | None = None
    """When each expires if it is pending again by then; 0 for never."""

    def __len__(self) -> int:
        return len(self.tokens)

    def first(self, count: int) -> Deliveries:
        """The first so many of them."""
        topics = self.topics
        if topics is not None and len(topics) == len(self.tokens):
            topics = topics[:count]
        return Deliveries(
            self.mailbox,
            self.tokens[:count],
            self.sequences[:count],
            self.attempts[:count],
            self.deadlines[:count],
            self.envelopes[:count],
            None if self.lanes is None else self.lanes[:count],
            topics,
            self.settled,
            self.lane_keys,
            None if self.accepted is None else self.accepted[:count],
            None if self.priorities is None else self.priorities[:count],
            None if self.expires is None else self.expires[:count],
        )

    @property
    def each_topic(self) -> Sequence[str | None] | repeat[str | None]:
        """One for each row, or one without end."""
        topics = self.topics
        if not topics:
            return repeat(None)
        return topics if len(topics) == len(self.sequences) else repeat(topics[0])

    def rows(self) -> list[DeliveryRow]:
        """One by one. What is not known of them is 0; their priority is then their sender's."""
        envelopes = self.envelopes
        priorities = self.priorities
        rows = map(
            DeliveryRow,
            repeat(self.mailbox),
            self.tokens,
            self.sequences,
            self.attempts,
            self.deadlines,
            envelopes,
            repeat(self.settled),
            repeat(NO_LANE) if self.lanes is None else self.lanes,
            self.each_topic,
            repeat(0) if self.accepted is None else self.accepted,
            [envelope.priority for envelope in envelopes] if priorities is None else priorities,
            repeat(0) if self.expires is None else self.expires,
        )
        return list(rows)


def nothing_from(mailbox: str) -> Deliveries:
    return Deliveries(mailbox, (), (), (), (), ())
