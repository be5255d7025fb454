"""Deliveries that one receiver gets together, as values: columns, one row per delivery.

This value leaves the kernel, and code outside knows nothing else of a delivery. A receiver may keep or change
it freely: it holds no reference to kernel objects. A caller asks by the token whether a lease is still held.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

import msgspec

from relaymesh.kernel.envelope import Envelope

NO_LANE = -1


class DeliveryRow(msgspec.Struct, frozen=True, gc=False):
    """One delivery, for callers that take them one by one."""

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
    """Columns of the same length. Empty columns: nothing came, or nothing will ever come."""

    mailbox: str
    tokens: Sequence[int]
    sequences: Sequence[int]
    attempts: Sequence[int]
    deadlines: Sequence[int]
    envelopes: Sequence[Envelope]
    lanes: Sequence[int] | None = None
    """Rows with the same number must be worked on one after the other; -1: no lane. None: no lanes at all."""
    topics: Sequence[str | None] | None = None
    """Of a subscription: the topic that each was published to; a single one is that of all rows."""
    settled: bool = False
    """Settled before they left (at_most_once): nothing is left to settle."""
    lane_keys: Sequence[str] = ()
    """The key of each lane, by its number, if the node provides it."""
    accepted: Sequence[int] | None = None
    """When each was accepted; a remote node does not send it. The same is true of the next two."""
    priorities: Sequence[int] | None = None
    """Their present priorities, which may differ from what their senders gave."""
    expires: Sequence[int] | None = None
    """When each expires if it is pending again by then; 0: never."""

    def __len__(self) -> int:
        return len(self.tokens)

    def first(self, count: int) -> Deliveries:
        """The first `count` rows."""
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
        """One by one. Unknown values are 0; the priority is then the sender's."""
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
