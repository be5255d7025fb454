"""An entry: one message in one mailbox, from acceptance until it is settled.

`TRANSITIONS` holds every change of state. Entries, leases and grants point at each other and are excluded
from cyclic garbage collection (`gc=False`), so the code that settles an entry cuts those links.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import msgspec

from relaymesh.kernel.bounds import DURATION_MS_MAX
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.pending import DELAYED, LEASED, READY, SETTLED
from relaymesh.kernel.records import Failure, failures_size, with_failure

if TYPE_CHECKING:
    from relaymesh.kernel.lane import Lane
    from relaymesh.kernel.parcel import Parcel

Leases = dict[int, "Lease | Parcel"]
"""What is leased, by token. A lent parcel is listed once for each of its messages."""


TRANSITIONS: dict[tuple[int, str], tuple[int, ...]] = {
    (DELAYED, "due"): (READY,),
    (DELAYED, "forced"): (READY,),
    (DELAYED, "expired"): (SETTLED,),
    (DELAYED, "overflowed"): (SETTLED,),
    (DELAYED, "dropped"): (SETTLED,),
    (DELAYED, "already_done"): (SETTLED,),
    (READY, "granted"): (LEASED,),
    (READY, "expired"): (SETTLED,),
    (READY, "overflowed"): (SETTLED,),
    (READY, "dropped"): (SETTLED,),
    (READY, "already_done"): (SETTLED,),
    (LEASED, "acked"): (SETTLED,),
    (LEASED, "dropped"): (SETTLED,),
    (LEASED, "dead_lettered"): (SETTLED,),
    (LEASED, "retried"): (DELAYED, READY),
    (LEASED, "deferred"): (DELAYED, READY),
    (LEASED, "lease_expired"): (DELAYED, READY),
    (LEASED, "holder_lost"): (READY,),
    (LEASED, "abandoned"): (DELAYED, READY),
    (LEASED, "released"): (READY,),
}
"""The states that each event may lead to. Two of them: wait for a time, or be ready at once.

`docs/explanation/lifecycle.md` draws this table.
"""


class Entry(msgspec.Struct, gc=False, eq=False):
    """A message in a mailbox. Only `State.apply` and its parts change it.

    It shares with a `Parcel` all that code needs for messages delivered or settled together: count,
    sequences, state, priority, expires_at, ready_sequence, completed, lend.
    """

    count: ClassVar[int] = 1

    envelope: Envelope
    sequence: int
    accepted_at: int
    due_at: int
    """When it may first be seen: the base of its TTL and of its position in its lane."""
    ready_at: int
    """When it may next be delivered: `due_at`, or the time of its next retry."""
    ready_sequence: int
    """The event that made it deliverable. It must be synced before a delivery leaves."""
    priority: int
    state: int = READY
    attempts: int = 0
    deferrals: int = 0
    redrives: int = 0
    completed: bool = False
    failures: list[Failure] | None = None
    lane: Lane | None = None
    lease: Lease | None = None
    queued: int = 0
    """Volatile. Its priority in the ready queues, or 1 while it waits in its lane."""
    waited_ms: int = 0
    """How long it waits for times that nacks set: its TTL does not count that."""
    topic: str | None = None
    """The topic that it was published to, if it came by a publish."""

    @property
    def size(self) -> int:
        """Its size against the mailbox's capacity in bytes: the message and its failures."""
        size = self.envelope.size
        return size + failures_size(self.failures) if self.failures else size

    def fail(self, failure: Failure) -> int:
        """Keep one more failure. Returns by how much the size grew: negative if others were dropped."""
        before = failures_size(self.failures)
        self.failures = with_failure(self.failures, failure)
        return failures_size(self.failures) - before

    @property
    def scheduled_at(self) -> int:
        """When it was to be delivered according to its receipt, forced or not."""
        return self.accepted_at + max(0, self.envelope.delay_ms)

    @property
    def expires_at(self) -> int:
        """When it expires if still pending; 0: never."""
        ttl = self.envelope.ttl_ms
        return self.due_at + ttl + self.waited_ms if ttl else 0

    def wait_for(self, ms: int) -> None:
        """A nack defers it by this many milliseconds."""
        self.waited_ms = min(self.waited_ms + max(0, ms), DURATION_MS_MAX)

    @property
    def sequences(self) -> tuple[int]:
        return (self.sequence,)

    def lend(self, token: int, grant: Grant, leases: Leases | None) -> None:
        """Lease it under this token. `leases`: the table to enter it in; None while replaying."""
        self.attempts += 1
        self.state = LEASED
        self.lease = lease = Lease(token, self, self.attempts, grant.deadline, grant)
        if leases is not None:
            leases[token] = lease
            if self.lane is not None:
                self.lane.send_out(lease)


def new_entries(envelopes: Sequence[Envelope], sequence: int, at: int, topic: str | None) -> list[Entry]:
    """Messages that come in at one time, with sequences from this one on."""
    entries: list[Entry] = []
    for envelope in envelopes:
        if envelope.delay_ms > 0:
            due = at + envelope.delay_ms
            entry = Entry(envelope, sequence, at, due, due, sequence, envelope.priority, DELAYED)
        else:
            entry = Entry(envelope, sequence, at, at, at, sequence, envelope.priority)
        entries.append(entry)
        sequence += 1
    if topic is not None:
        for entry in entries:
            entry.topic = topic
    return entries


class Lease(msgspec.Struct, gc=False, eq=False):
    """One delivery of one entry: the holder that may settle it, and the deadline."""

    token: int
    entry: Entry
    attempt: int
    deadline: int
    grant: Grant

    @property
    def held(self) -> bool:
        """Whether it is neither settled nor given back."""
        return self.entry.lease is self

    def named_in(self, tokens: Sequence[int], start: int) -> Entry:  # noqa: ARG002 - as a parcel has it
        """What the tokens from `start` on settle first: the entry of this one."""
        return self.entry


class Grant(msgspec.Struct, gc=False, eq=False):
    """Leases given out together, to one holder, for one length of time."""

    mailbox: str
    holder: str
    deadline: int
    length: int
    remote: bool = False
    tokens: Sequence[int] = ()
    """Volatile, as is `held`: the tokens given out together, and how many of them are still held."""
    held: int = 0
