"""Records: past facts, in the order in which they happened. The journal holds nothing else.

A record is a batch of events of one kind. `count` is its number of events; event i of a record has sequence
base + i, where base continues from the record before. From then on a message is named by the sequence of the
event that accepted it, together with its mailbox.

Encoding: MessagePack arrays `[operation, count, at_ms, ...]`. Fields are only appended, with defaults. A
reader must understand an operation below 128, or stop; from 128 on it may skip the record (its `count` still
consumes sequences).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.settings import MailboxSettings

FAILURE_BYTES = 128
"""Memory of a failure beside its texts."""


class Record(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The first fields of every record: how many events, and when (mesh time, ms)."""

    count: int
    at: int


class Failure(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Why one attempt failed."""

    attempt: int
    at: int
    code: str
    reason: str = ""
    stack: str = ""

    @property
    def size(self) -> int:
        """Its size while it is kept with a message: the bytes of its texts, and 128."""
        return FAILURE_BYTES + sum([_bytes(text) for text in (self.code, self.reason, self.stack)])


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


FAILURES_MAX = 32
"""Failures kept with a message."""


def failures_size(failures: list[Failure] | None) -> int:
    return sum([failure.size for failure in failures]) if failures else 0


def with_failure(failures: list[Failure] | None, failure: Failure) -> list[Failure]:
    """One failure more: of many, the first and the last are kept. Their attempt numbers show the missing
    ones.
    """
    if not failures:
        return [failure]
    if len(failures) < FAILURES_MAX:
        return [*failures, failure]
    return [failures[0], *failures[2 - FAILURES_MAX :], failure]


class EpochStarted(Record, tag=1, frozen=True):
    """A process opened this partition; its tokens carry this epoch."""

    epoch: int
    partition: int = 0


class MailboxOpened(Record, tag=2, frozen=True):
    """A mailbox was opened, or its settings changed."""

    mailbox: str
    settings: MailboxSettings


class Subscribed(Record, tag=3, frozen=True):
    """Messages on topics that match `pattern` also go to `mailbox`, even if it was suspended.

    `owner` is the agent that pays for what is kept in it, up to `owner_budget` bytes of all it pays for (0:
    no limit); without an owner the senders pay.
    """

    pattern: str
    mailbox: str
    settings: MailboxSettings
    owner: str = ""
    owner_budget: int = 0


class Unsubscribed(Record, tag=4, frozen=True):
    """The subscription and its mailbox are gone; its messages were dropped before."""

    pattern: str
    mailbox: str


class Accepted(Record, tag=5, frozen=True):
    """Messages entered one mailbox; event i is `envelopes[i]`."""

    mailbox: str
    envelopes: list[Envelope]


class Published(Record, tag=6, frozen=True):
    """Messages entered every mailbox subscribed to `topic` at this point: `targets` of them."""

    topic: str
    targets: int
    envelopes: list[Envelope]


class Granted(Record, tag=7, frozen=True):
    """Deliveries: lease `token + i` on message `sequences[i]`, one attempt each."""

    mailbox: str
    holder: str
    token: int
    sequences: list[int]
    remote: bool = False
    lease_ms: int = 0


class Acked(Record, tag=8, frozen=True):
    """Settled: done."""

    mailbox: str
    sequences: list[int]


class Dropped(Record, tag=9, frozen=True):
    """Settled: given up without a dead letter, and counted."""

    mailbox: str
    sequences: list[int]
    code: str = ""


ReturnCause = Literal["nack", "expired", "deferred", "released", "restart"]
BURNING = frozenset({"nack", "expired", "restart"})
"""Returns that count the attempt."""


class Returned(Record, tag=10, frozen=True):
    """Deliveries that ended without settling their message, which waits again until `due[i]`.

    `nack`, `expired` and `restart` count the attempt; `deferred` and `released` do not.
    """

    mailbox: str
    cause: ReturnCause
    sequences: list[int]
    due: list[int]
    failures: list[Failure | None]


class DeadLettered(Record, tag=11, frozen=True):
    """Settled: kept apart with a reason. The event's own sequence names the dead letter."""

    mailbox: str
    sequences: list[int]
    reason: str
    failures: list[Failure | None]
    alert: bool = False


class Redriven(Record, tag=12, frozen=True):
    """A dead letter went back into a mailbox as a new entry, named by this event's sequence."""

    source: str
    dead_sequence: int
    mailbox: str
    envelope: Envelope


class DeadLettersPurged(Record, tag=13, frozen=True):
    """Dead letters were removed for good."""

    mailbox: str
    dead_sequences: list[int]


class Reprioritised(Record, tag=14, frozen=True):
    """Pending messages changed their priority."""

    mailbox: str
    sequences: list[int]
    priority: int


class DelayedForced(Record, tag=15, frozen=True):
    """Delayed messages became due at once."""

    mailbox: str
    sequences: list[int]


class Completed(Record, tag=16, frozen=True):
    """A handler finished after it had lost its lease: the next delivery is acked unseen."""

    mailbox: str
    sequences: list[int]


class Suspended(Record, tag=17, frozen=True):
    """A subscription gets nothing from here on: a publish skips it. It keeps what it holds."""

    mailbox: str
    reason: str


class Resumed(Record, tag=18, frozen=True):
    """A suspended subscription gets what is published from here on."""

    mailbox: str


class AgentRegistered(Record, tag=128, frozen=True):
    """An agent joined, or its description changed. `role` is empty when it declared none.

    A reader may skip it: no message depends on it, and an earlier record opened its mailbox.
    """

    mailbox: str
    role: str = ""
    capabilities: tuple[str, ...] = ()
    protocol: str = ""
    metadata: bytes = b"{}"
    draining: bool = False


AnyRecord = (
    EpochStarted
    | MailboxOpened
    | Subscribed
    | Unsubscribed
    | Accepted
    | Published
    | Granted
    | Acked
    | Dropped
    | Returned
    | DeadLettered
    | Redriven
    | DeadLettersPurged
    | Reprioritised
    | DelayedForced
    | Completed
    | Suspended
    | Resumed
    | AgentRegistered
)
