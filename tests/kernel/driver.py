"""A kernel, a clock that stands still until it is moved, and short words for the commands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from relaymesh.kernel.address import agent_address, pattern_address, subscription_address, topic_address
from relaymesh.kernel.commands import (
    Ack,
    ForceDelayed,
    Nack,
    OpenMailbox,
    Publish,
    Receive,
    Redrive,
    Release,
    Send,
    Start,
    Subscribe,
    Tick,
)
from relaymesh.kernel.dead_letters import DeadLetter
from relaymesh.kernel.decision import Encoders
from relaymesh.kernel.deliveries import DeliveryRow
from relaymesh.kernel.entry import Entry
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.kernel import PLAIN_ENCODERS, Kernel
from relaymesh.kernel.mailbox import Mailbox
from relaymesh.kernel.records import AnyRecord
from relaymesh.kernel.request import Command
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.kernel.snapshot import AnyPiece, Snapshot, restore
from relaymesh.kernel.state import State
from relaymesh.kernel.step import Ended, Receipt, Step
from relaymesh.kernel.waiter import Waiter

SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
NOON = 1_700_000_000_000


def through_the_journal(records: Iterable[AnyRecord]) -> list[AnyRecord]:
    """The records as a journal gives them back."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(list(records)), type=list[AnyRecord])


def through_a_checkpoint(pieces: Iterable[AnyPiece]) -> list[AnyPiece]:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(list(pieces)), type=list[AnyPiece])


def replay(records: Iterable[AnyRecord], state: State | None = None) -> State:
    state = State() if state is None else state
    for record in through_the_journal(records):
        state.apply(record)
    return state


def ids(deliveries: Iterable[DeliveryRow | Entry | Receipt]) -> list[str]:
    return [item.id if isinstance(item, Receipt) else item.envelope.id for item in deliveries]


class Driver:
    """Raises what a step refuses, keeps the records, and remembers the last step."""

    def __init__(
        self,
        *,
        chance: float = 0.0,
        state: State | None = None,
        now: int = NOON,
        encoders: Encoders = PLAIN_ENCODERS,
    ) -> None:
        self.chance = chance
        self.encoders = encoders
        self.now = now
        self.records: list[AnyRecord] = []
        self.start(state)

    def start(self, state: State | None = None) -> Step:
        self.kernel = Kernel(lambda: self.chance, state, self.encoders)
        return self.do(Start(self.kernel.state.epoch + 1))

    def do(self, command: Command[Any]) -> Step:
        self.step = step = self.kernel.step(command, self.now)
        self.records += step.records
        if step.error is not None:
            raise step.error
        return step

    # -- mailboxes

    def agent(self, name: str = "a", **settings: Any) -> str:
        address = agent_address(name)
        self.do(OpenMailbox(address, MailboxSettings(**settings) if settings else None))
        return address

    def subscription(self, pattern: str, name: str = "s", **settings: Any) -> str:
        address = subscription_address(pattern, name)
        self.do(Subscribe(pattern_address(pattern), address, MailboxSettings(**settings)))
        return address

    def box(self, address: str) -> Mailbox:
        return self.kernel.state.mailboxes[address]

    def pending(self, address: str) -> list[str]:
        return ids(self.box(address).entries.values())

    def entry(self, address: str, id: str) -> Entry:
        return next(entry for entry in self.box(address).entries.values() if entry.envelope.id == id)

    # -- sending

    def send(self, to: str, *names: str, **fields: Any) -> list[Receipt]:
        receipts: list[Receipt] = self.do(Send([(to, [letter(name, **fields) for name in names])])).result
        return receipts

    def publish(self, topic: str, *names: str, **fields: Any) -> list[Receipt]:
        envelopes = [letter(name, **fields) for name in names]
        receipts: list[Receipt] = self.do(Publish(topic_address(topic), envelopes)).result
        return receipts

    # -- receiving and settling

    def receive(self, mailbox: str, max: int = 1, holder: str = "worker", **waiter: Any) -> list[DeliveryRow]:
        """What is ready now; nobody is left waiting."""
        delivered = self.do(Receive(mailbox, Waiter(holder, max, **waiter), wait=False)).delivered
        return list(delivered[0].deliveries.rows()) if delivered else []

    def wait(self, mailbox: str, max: int = 1, holder: str = "worker", **waiter: Any) -> Waiter:
        waiting = Waiter(holder, max, **waiter)
        self.do(Receive(mailbox, waiting))
        return waiting

    def ack(self, *leases: DeliveryRow) -> list[int]:
        stale: list[int] = self.do(Ack([lease.token for lease in leases])).result
        return stale

    def drop(self, *leases: DeliveryRow) -> list[int]:
        stale: list[int] = self.do(Ack([lease.token for lease in leases], drop=True)).result
        return stale

    def release(self, *leases: DeliveryRow) -> None:
        self.do(Release([lease.token for lease in leases]))

    def nack(self, lease: DeliveryRow, *, code: str = "other", **fields: Any) -> str:
        outcome: str = self.do(Nack(lease.token, code, **fields)).result
        return outcome

    def die(self, mailbox: str, *names: str) -> None:
        """The named messages, and no others, are ready: each is delivered once and refused for good."""
        for lease in self.receive(mailbox, len(names)):
            assert lease.envelope.id in names
            self.nack(lease, code="fatal")

    def redrive(self, *letters: DeadLetter, **fields: Any) -> list[int | None]:
        names = [(letter.mailbox, letter.dead_sequence) for letter in letters]
        sequences: list[int | None] = self.do(Redrive(names, **fields)).result
        return sequences

    @property
    def letters(self) -> list[DeadLetter]:
        return list(self.kernel.state.letters)

    @property
    def ended(self) -> list[Ended]:
        return self.step.ended or []

    # -- time and crashes

    def advance(self, ms: int) -> Step:
        self.now += ms
        return self.do(Tick())

    def force_delayed(self, mailbox: str | None = None) -> int:
        forced: int = self.do(ForceDelayed(mailbox)).result
        return forced

    def restart(self, *, losing: int = 0) -> Step:
        """The process dies; the last `losing` records were never synced. Another one starts."""
        if losing:
            del self.records[-losing:]
        return self.start(replay(self.records))

    def restart_from_snapshot(self) -> Step:
        return self.start(restore(through_a_checkpoint(Snapshot(self.kernel.state).pieces())))


def letter(name: str = "m", content: bytes = b"x", sender: str = "default/sender", **fields: Any) -> Envelope:
    return Envelope(name, sender, content, **fields)


def names(prefix: str, count: int) -> Sequence[str]:
    return [f"{prefix}{i}" for i in range(count)]
