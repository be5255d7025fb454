"""What is pending, as a look from outside sees it: values, which lead nowhere."""

from __future__ import annotations

import msgspec

from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.records import Failure, failures_size

DELAYED, READY, LEASED, SETTLED = range(4)
STATE_NAMES = ("delayed", "ready", "leased", "settled")


class Pending(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One message that is not settled. Over a WebSocket a row of `peek` is exactly this."""

    envelope: Envelope
    sequence: int
    accepted_at: int
    due_at: int
    """When it first may be seen: the base of its TTL."""
    ready_at: int
    """When it may next be delivered: `due_at`, or the time of its next retry."""
    ready_sequence: int
    """The event that made it deliverable."""
    priority: int
    state: int
    """By its number: `STATE_NAMES` has the names."""
    attempts: int
    deferrals: int
    redrives: int
    completed: bool
    failures: list[Failure] | None
    waited_ms: int = 0
    """How long it waited, or is to wait, for moments that nacks set: its TTL does not count them."""

    @property
    def topic(self) -> str | None:
        """The topic it was published to; a node far away does not say."""
        return None

    @property
    def size(self) -> int:
        """What it counts for against its mailbox's capacity in bytes."""
        return self.envelope.size + failures_size(self.failures)

    @property
    def scheduled_at(self) -> int:
        """When it was to be delivered according to its receipt, forced or not."""
        return self.accepted_at + max(0, self.envelope.delay_ms)

    @property
    def expires_at(self) -> int:
        """When it expires if still pending; 0 for never."""
        ttl = self.envelope.ttl_ms
        return self.due_at + ttl + self.waited_ms if ttl else 0
