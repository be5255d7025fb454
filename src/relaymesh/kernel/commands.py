"""Commands: what the shell asks of the kernel. Imperatives; each becomes one `Step`.

A command checks its types and ranges when it is built, by `relaymesh.kernel.bounds`. A command that exists is
legal, and every record that a decision makes of it can be written and read back. Envelopes are checked where
they are built (`relaymesh.wire.envelope`); a command checks only that they are envelopes.

A command names the type of its result, which is what `execute` of a session returns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from relaymesh.errors import InvalidEnvelope, InvalidSettings, InvalidValue
from relaymesh.kernel.bounds import (
    ADDRESS_LENGTH_MAX,
    BYTES_MAX,
    CODE_LENGTH_MAX,
    DURATION_MS_MAX,
    LEASE_MS_MAX,
    RECEIVE_MAX,
    TEXT_LENGTH_MAX,
    TOKEN_MAX,
    flag,
    plain_text,
    shown,
    sound,
    text,
    whole,
)
from relaymesh.kernel.dedup import NONE_EQUAL, Differing, Seen
from relaymesh.kernel.envelope import Envelope, size_of
from relaymesh.kernel.failure_text import cut_reason, cut_stack
from relaymesh.kernel.registration import Registration
from relaymesh.kernel.request import Command
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.kernel.step import Receipt
from relaymesh.kernel.waiter import Waiter

EPOCH_MAX = (1 << 23) - 1
"""So that a token, made of an epoch and 40 bits, fits a signed 64-bit number."""
PARTITION_MAX = (1 << 31) - 1


class Start(Command[None]):
    """The first command: begins a new epoch. Leases of the process that died are void."""

    epoch: int
    partition: int = 0

    def __post_init__(self) -> None:
        self.epoch = whole(self.epoch, "epoch", 0, EPOCH_MAX)
        self.partition = whole(self.partition, "partition", 0, PARTITION_MAX)


class Stop(Command[None]):
    """The last command: local deliveries come back, no attempt counted; delayed ones go out if so set."""

    deliver_delayed: bool = False

    def __post_init__(self) -> None:
        flag(self.deliver_delayed, "deliver_delayed")


class Tick(Command[int]):
    """Let time pass: deliver what is due, expire what has expired. Returns how many fell due."""


class OpenMailbox(Command[None]):
    """`may_reject`: whether the settings of a subscription may choose `reject`: see `Subscribe`."""

    mailbox: str
    settings: MailboxSettings | None = None
    budget: int = 0
    may_reject: bool = True

    def __post_init__(self) -> None:
        self.mailbox = _address(self.mailbox)
        _check_settings(self.settings, optional=True)


class RegisterAgent(Command[Registration]):
    """An agent joins: `metadata` is a JSON object of its own. Returns its `Registration`.

    `settings` apply to its mailbox, if it has none yet. `settles`: it ends a step with a result; else its ack
    of one means that the step is taken.
    """

    agent: str
    role: str = ""
    capabilities: tuple[str, ...] = ()
    protocol: str = ""
    metadata: bytes = b"{}"
    settings: MailboxSettings | None = None
    budget: int = 0
    settles: bool = True

    def __post_init__(self) -> None:
        self.agent = _address(self.agent, "agent")
        flag(self.settles, "settles")
        self.role = text(self.role, "role", 0, TEXT_LENGTH_MAX)
        self.capabilities = tuple(
            [text(each, "capability", 1, TEXT_LENGTH_MAX) for each in self.capabilities]
        )
        self.protocol = text(self.protocol, "protocol", 0, TEXT_LENGTH_MAX)
        if type(self.metadata) is not bytes:
            raise InvalidValue(f"metadata must be the bytes of a JSON object, not {shown(self.metadata)}")
        _check_settings(self.settings, optional=True)


class DrainAgent(Command[Registration]):
    """Give a registered agent no new tasks until it registers again. Returns its `Registration`."""

    agent: str

    def __post_init__(self) -> None:
        self.agent = _address(self.agent, "agent")


class Subscribe(Command[None]):
    """`owner` pays for what is kept in it, up to `budget` bytes of all it pays for; without an owner, senders
    pay.

    Without `may_reject`, a new subscription that is full never refuses a publish: `overflow` is
    `dead_letter` whatever the settings say. One that already rejects keeps doing so if nothing else changes.
    """

    pattern: str
    mailbox: str
    settings: MailboxSettings
    owner: str = ""
    budget: int = 0
    may_reject: bool = True

    def __post_init__(self) -> None:
        self.pattern = _address(self.pattern, "topic pattern")
        self.mailbox = _address(self.mailbox)
        _check_settings(self.settings)
        self.owner = text(self.owner, "owner", 0, ADDRESS_LENGTH_MAX)
        self.budget = whole(self.budget, "budget", 0, BYTES_MAX)
        flag(self.may_reject, "may_reject")


class Unsubscribe(Command[int]):
    mailbox: str

    def __post_init__(self) -> None:
        self.mailbox = _address(self.mailbox)


class Send(Command[list[Receipt]]):
    """Accept messages, all or none. `minted`: every id was just generated here, so none can be known.

    `budget`: bytes that may be kept for each sender, including these messages; 0: no limit.
    `equal`: those messages that an earlier step named as differing and that mean what their originals mean.
    """

    groups: Sequence[tuple[str, Sequence[Envelope]]]
    minted: bool = False
    known: Mapping[tuple[str, str], Seen] | None = None
    budget: int = 0
    equal: frozenset[Differing] = NONE_EQUAL
    size: int = 0
    """Bytes of all messages: computed here, whatever the caller passes."""

    def __post_init__(self) -> None:
        self.size = _checked_size(self.groups)


class Publish(Command[list[Receipt]]):
    """The same for a topic: every subscription gets a copy."""

    topic: str
    envelopes: Sequence[Envelope]
    minted: bool = False
    known: Mapping[tuple[str, str], Seen] | None = None
    budget: int = 0
    equal: frozenset[Differing] = NONE_EQUAL
    size: int = 0
    """As of `Send`."""

    def __post_init__(self) -> None:
        _address(self.topic, "topic")
        _check_envelopes(self.envelopes)
        self.size = size_of(self.envelopes)


class Receive(Command[bool]):
    """Take what is ready now, or leave the waiter for a later step."""

    mailbox: str
    waiter: Waiter
    wait: bool = True

    def __post_init__(self) -> None:
        if self.mailbox.__class__ is not str:
            self.mailbox = _address(self.mailbox)
        waiter = self.waiter
        most, lease_ms, holder = waiter.max, waiter.lease_ms, waiter.holder
        if most.__class__ is not int or not 0 <= most <= RECEIVE_MAX:
            waiter.max = whole(most, "the number of deliveries to receive", 0, RECEIVE_MAX)
        if lease_ms.__class__ is not int or not 0 <= lease_ms <= LEASE_MS_MAX:
            waiter.lease_ms = whole(lease_ms, "lease_ms", 0, LEASE_MS_MAX)
        if holder.__class__ is not str or not holder.isascii() or not 1 <= len(holder) <= ADDRESS_LENGTH_MAX:
            waiter.holder = text(holder, "holder", 1, ADDRESS_LENGTH_MAX)
        if waiter.correlation_id is not None:
            waiter.correlation_id = _correlation(waiter.correlation_id)
        if waiter.remote is not False:
            flag(waiter.remote, "remote")


class Forgo(Command[bool]):
    """The waiter stops waiting. Returns whether it was still waiting."""

    mailbox: str
    waiter: Waiter

    def __post_init__(self) -> None:
        self.mailbox = _address(self.mailbox)


class Expect(Command[None]):
    """Keep messages with this correlation id apart for receives by it, including those that already wait.

    `minted`: the id was just generated, so no message can have it yet, and no search is made.
    """

    mailbox: str
    correlation_id: str
    budget: int = 0
    minted: bool = False

    def __post_init__(self) -> None:
        self.mailbox = _address(self.mailbox)
        self.correlation_id = _correlation(self.correlation_id)
        flag(self.minted, "minted")


class Unexpect(Command[None]):
    mailbox: str
    correlation_id: str

    def __post_init__(self) -> None:
        self.mailbox = _address(self.mailbox)
        self.correlation_id = _correlation(self.correlation_id)


class Ack(Command[list[int]]):
    """Settle as done. Returns the tokens that were stale.

    `taken_ms`: a step of an agent that did not register with `settles` is taken, and its lease lasts so long
    from here on; 0: the holder settles with results, whatever the agent registered with.
    """

    tokens: Sequence[int]
    drop: bool = False
    taken_ms: int = 0

    def __post_init__(self) -> None:
        _check_tokens(self.tokens)
        if self.drop is not False:
            flag(self.drop, "drop")
        if self.taken_ms:
            self.taken_ms = whole(self.taken_ms, "taken_ms", 0, LEASE_MS_MAX)


class KeepTaken(Command[int]):
    """These agents live: renew the leases of the steps that they took. Returns how many. Writes no record."""

    agents: Sequence[str]

    def __post_init__(self) -> None:
        self.agents = [_address(agent, "agent") for agent in self.agents]


class Nack(Command[str]):
    """Settle as failed: tried again, deferred, or given up, by the mailbox's failure contract."""

    token: int
    code: str = "other"
    reason: str = ""
    stack: str = ""
    retryable: bool = True
    delay_ms: int | None = None
    until: int | None = None

    def __post_init__(self) -> None:
        self.token = whole(self.token, "token", 0, TOKEN_MAX)
        self.code = text(self.code, "code", 1, CODE_LENGTH_MAX)
        self.reason = cut_reason(sound(plain_text(self.reason, "reason")))
        self.stack = cut_stack(sound(plain_text(self.stack, "stack")))
        flag(self.retryable, "retryable")
        if self.delay_ms is not None:
            self.delay_ms = whole(self.delay_ms, "delay_ms", 0, DURATION_MS_MAX)
        if self.until is not None:
            self.until = whole(self.until, "until (in ms)", 0, DURATION_MS_MAX)


class Settle(Command[list[Receipt]]):
    """Ack and send in one step: either both happen or neither."""

    token: int
    groups: Sequence[tuple[str, Sequence[Envelope]]]
    minted: bool = False
    known: Mapping[tuple[str, str], Seen] | None = None
    budget: int = 0
    equal: frozenset[Differing] = NONE_EQUAL
    size: int = 0
    """As of `Send`."""
    taken_ms: int = 0
    """As of `Ack`."""

    def __post_init__(self) -> None:
        self.token = whole(self.token, "token", 0, TOKEN_MAX)
        self.taken_ms = whole(self.taken_ms, "taken_ms", 0, LEASE_MS_MAX)
        self.size = _checked_size(self.groups)


class Release(Command[None]):
    """Return deliveries that no caller received, as if never granted."""

    tokens: Sequence[int]

    def __post_init__(self) -> None:
        _check_tokens(self.tokens)


class Extend(Command[int]):
    """Extend a deadline. Writes no record. Returns the deadline."""

    token: int
    ms: int

    def __post_init__(self) -> None:
        self.token = whole(self.token, "token", 0, TOKEN_MAX)
        self.ms = whole(self.ms, "the extension in ms", 0, LEASE_MS_MAX)


class ExtendAll(Command[list[int | None]]):
    """The same for many, as (token, ms). Returns the deadlines; None for a lease that is lost."""

    extends: Sequence[tuple[int, int]]

    def __post_init__(self) -> None:
        self.extends = [
            (whole(token, "token", 0, TOKEN_MAX), whole(ms, "the extension in ms", 0, LEASE_MS_MAX))
            for token, ms in self.extends
        ]


class Complete(Command[bool]):
    """The work of a lost lease is done nevertheless: its next delivery is acked unseen."""

    mailbox: str
    sequence: int

    def __post_init__(self) -> None:
        self.mailbox = _address(self.mailbox)
        self.sequence = whole(self.sequence, "sequence", 0, TOKEN_MAX)


class Redrive(Command[list[int | None]]):
    """Put dead letters back, by (mailbox, dead sequence). Returns the new sequences; None: redriven before.

    `edited`: for each letter the message that replaces its own, or None to keep it.
    """

    letters: Sequence[tuple[str, int]]
    to: str | None = None
    edited: Sequence[Envelope | None] | None = None

    def __post_init__(self) -> None:
        self.letters = _letters(self.letters)
        if self.to is not None:
            self.to = _address(self.to, "recipient")
        if self.edited is not None:
            _check_envelopes([each for each in self.edited if each is not None])
            if len(self.edited) != len(self.letters):
                raise InvalidEnvelope(f"{len(self.letters)} letters are named and {len(self.edited)} edited")


class PurgeDeadLetters(Command[int]):
    letters: Sequence[tuple[str, int]]

    def __post_init__(self) -> None:
        self.letters = _letters(self.letters)


class Reprioritise(Command[int]):
    """Give pending messages of a mailbox, named by id, another priority. Returns how many changed."""

    mailbox: str
    ids: frozenset[str] | None
    priority: int

    def __post_init__(self) -> None:
        self.mailbox = _address(self.mailbox)
        self.priority = whole(self.priority, "priority", 1, 5)
        if self.ids is not None:
            self.ids = frozenset([plain_text(id, "id") for id in self.ids])


class SetBreaker(Command[None]):
    """Open a mailbox's circuit breaker until it is closed by hand, or close it. Writes no record."""

    mailbox: str
    open: bool

    def __post_init__(self) -> None:
        self.mailbox = _address(self.mailbox)
        flag(self.open, "open")


class ForceDelayed(Command[int]):
    """Make delayed messages due now. Returns how many."""

    mailbox: str | None = None

    def __post_init__(self) -> None:
        if self.mailbox is not None:
            self.mailbox = _address(self.mailbox)


Outcome = Literal["retrying", "deferred", "dead_letter", "dropped", "success"]


def _address(value: Any, what: str = "mailbox") -> str:
    """`relaymesh.kernel.address` makes addresses; this only checks that it is a text of legal length."""
    return text(value, what, 1, ADDRESS_LENGTH_MAX)


def _correlation(value: Any) -> str:
    return text(value, "correlation_id", 1, TEXT_LENGTH_MAX)


def _check_settings(settings: Any, *, optional: bool = False) -> None:
    if not (settings.__class__ is MailboxSettings or (optional and settings is None)):
        raise InvalidSettings(f"settings must be MailboxSettings, not {shown(settings)}")


def _checked_size(groups: Any) -> int:
    """The bytes of messages by recipient, looked at once."""
    size = 0
    for address, envelopes in groups:
        if address.__class__ is not str:
            raise InvalidEnvelope(f"a recipient must be a string, not {shown(address)}")
        for envelope in envelopes:
            if envelope.__class__ is not Envelope:
                _check_envelopes(envelopes)
            size += len(envelope.content)  # it is in no file yet
            if envelope.extra is not None:
                size += len(envelope.extra)
    return size


def _check_envelopes(envelopes: Any) -> None:
    for envelope in envelopes:
        if envelope.__class__ is not Envelope:
            raise InvalidEnvelope(f"a message must be an envelope, not {shown(envelope)}")


def _check_tokens(tokens: Any) -> None:
    """A token that was never given out is stale and needs no bounds; a value that is no number raises."""
    for token in tokens:
        if token.__class__ is not int:
            raise InvalidValue(f"a lease token must be a whole number, not {shown(token)}")


def _letters(letters: Any) -> list[tuple[str, int]]:
    return [
        (_address(mailbox), whole(dead_sequence, "dead letter", 0, TOKEN_MAX))
        for mailbox, dead_sequence in letters
    ]
