"""Commands: what the shell asks of the kernel. Imperatives; each becomes one `Step`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from relaymesh.kernel.dedup import Seen
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.mailbox import Waiter
from relaymesh.kernel.settings import MailboxSettings


class Command(msgspec.Struct, gc=False, eq=False):
    pass


class Start(Command):
    """First of all: a new epoch. Leases of the process that died are void."""

    epoch: int
    partition: int = 0


class Stop(Command):
    """Last of all: in-process deliveries come back unburned; delayed ones go out if so set."""

    deliver_delayed: bool = False


class Tick(Command):
    """Let time pass: what is due falls due, what has expired expires. Answers how many fell due."""


class OpenMailbox(Command):
    mailbox: str
    settings: MailboxSettings | None = None


class RegisterAgent(Command):
    """An agent joins: `metadata` is a JSON object of its own. Answers its `Registration`.

    `settings` are for its mailbox, if it has none yet.
    """

    agent: str
    role: str = ""
    capabilities: tuple[str, ...] = ()
    protocol: str = ""
    metadata: bytes = b"{}"
    settings: MailboxSettings | None = None


class DrainAgent(Command):
    """A registered agent is to get no new tasks until it registers again. Answers its `Registration`."""

    agent: str


class Subscribe(Command):
    pattern: str
    mailbox: str
    settings: MailboxSettings


class Unsubscribe(Command):
    mailbox: str


class Send(Command):
    """Accept messages, all or none. `minted`: every id was made here just now, so none can be known."""

    groups: Sequence[tuple[str, Sequence[Envelope]]]
    minted: bool = False
    known: Mapping[tuple[str, str], Seen] | None = None


class Publish(Command):
    topic: str
    envelopes: Sequence[Envelope]
    minted: bool = False
    known: Mapping[tuple[str, str], Seen] | None = None


class Receive(Command):
    """Take what is ready now, or leave the waiter to be served by a later step."""

    mailbox: str
    waiter: Waiter
    wait: bool = True


class Forgo(Command):
    """The waiter no longer waits. Answers whether it was still waiting."""

    mailbox: str
    waiter: Waiter


class Expect(Command):
    """Keep answers with this correlation id apart for whoever asks for them by it."""

    mailbox: str
    correlation_id: str


class Unexpect(Command):
    mailbox: str
    correlation_id: str


class Ack(Command):
    """Settle as done. Answers the tokens that were stale."""

    tokens: Sequence[int]
    drop: bool = False


class Nack(Command):
    """Settle as failed: tried again, put off, or given up, by the mailbox's failure contract."""

    token: int
    code: str = "other"
    reason: str = ""
    stack: str = ""
    retryable: bool = True
    delay_ms: int | None = None
    until: int | None = None


class Settle(Command):
    """Ack and send in one step: either both happen or neither."""

    token: int
    groups: Sequence[tuple[str, Sequence[Envelope]]]
    minted: bool = False
    known: Mapping[tuple[str, str], Seen] | None = None


class Release(Command):
    """Deliveries that nobody received: back as if never granted."""

    tokens: Sequence[int]


class Extend(Command):
    """A later deadline. Writes no record. Answers the deadline."""

    token: int
    ms: int


class Complete(Command):
    """The work of a lost lease is done all the same: its next delivery is acked unseen."""

    mailbox: str
    sequence: int


class Redrive(Command):
    """Put dead letters back, by (mailbox, dead sequence). Answers the new sequences; None: done before."""

    letters: Sequence[tuple[str, int]]
    to: str | None = None
    edit: Callable[[Envelope], Envelope] | None = None


class PurgeDeadLetters(Command):
    letters: Sequence[tuple[str, int]]


class Reprioritise(Command):
    """Give pending messages of a mailbox, named by id, another priority. Answers how many changed."""

    mailbox: str
    ids: frozenset[str] | None
    priority: int


class SetBreaker(Command):
    """Open a mailbox's circuit breaker until it is closed by hand, or close it. Writes no record."""

    mailbox: str
    open: bool


class ForceDelayed(Command):
    """Make delayed messages due now. Answers how many."""

    mailbox: str | None = None


Outcome = Literal["retrying", "deferred", "dead_letter", "dropped", "success"]
