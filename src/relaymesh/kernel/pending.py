"""Pending messages as values for callers: they hold no kernel objects."""

from __future__ import annotations

import msgspec

from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.records import Failure, failures_size

DELAYED, READY, LEASED, SETTLED = range(4)
STATE_NAMES = ("delayed", "ready", "leased", "settled")


class Pending(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One message that is not settled. Over a WebSocket, a row of `peek` is exactly this."""

    envelope: Envelope
    """Everything that the sender gave, in the form of the journal."""
    sequence: int
    """The sequence under which it was accepted."""
    accepted_at: int
    """When it was accepted. All times are mesh time, in milliseconds."""
    due_at: int
    """When it may first be seen: the base of its TTL."""
    ready_at: int
    """When it may next be delivered: `due_at`, or the time of its next retry."""
    ready_sequence: int
    """The event that made it deliverable."""
    priority: int
    """1 CRITICAL to 5 BACKGROUND: its present priority."""
    state: int
    """0 delayed, 1 ready, 2 leased."""
    attempts: int
    """Deliveries so far that count as attempts."""
    deferrals: int
    """How often it was deferred without counting an attempt."""
    redrives: int
    """How often it was redriven from the dead letters."""
    completed: bool
    """Its work was done under a lease that was lost: it is acked unseen when its turn comes."""
    failures: list[Failure] | None
    """Its failed attempts; None when none failed, and over HTTP."""
    waited_ms: int = 0
    """How long it waits for times that nacks set: its TTL does not count that."""

    @property
    def topic(self) -> str | None:
        """The topic that it was published to. Only a node in this process provides it."""
        return None

    @property
    def size(self) -> int:
        """Its size against the mailbox's capacity in bytes."""
        return self.envelope.size + failures_size(self.failures)

    @property
    def scheduled_at(self) -> int:
        """When it was to be delivered according to its receipt, forced or not."""
        return self.accepted_at + max(0, self.envelope.delay_ms)

    @property
    def expires_at(self) -> int:
        """When it expires if still pending; 0: never."""
        ttl = self.envelope.ttl_ms
        return self.due_at + ttl + self.waited_ms if ttl else 0


class PublishedPending(Pending, array_like=True, frozen=True, gc=False):
    """One that came by a publish. It stays in this process: over a WebSocket it is a plain row."""

    came_from: str = ""

    @property
    def topic(self) -> str | None:
        return self.came_from
