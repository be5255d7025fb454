"""Histories and journals written by hand, in short words, to be judged by the checkers."""

from __future__ import annotations

from typing import Any

from relaymesh.kernel.settings import MailboxSettings
from relaymesh.node.settings import MeshSettings
from relaymesh.testing.simulation.checkers import (
    check_admission,
    check_deliveries,
    check_fate,
    check_settles,
)
from relaymesh.testing.simulation.history import Delivery, End, History, Life, Message, Sent, Settled
from relaymesh.testing.simulation.ledger import EPOCH_SHIFT, Ledger
from relaymesh.testing.simulation.plan import MailboxPlan, Plan

BOX = "default/a"
NEWS = "default/news.a:s0"
NOON = 1_700_000_000_000


def plan_of(**settings: Any) -> Plan:
    boxes = [
        MailboxPlan(BOX, MailboxSettings(**settings)),
        MailboxPlan(NEWS, MailboxSettings(), "default/news.a"),
    ]
    return Plan(0, 0, MeshSettings(), {box.address: box for box in boxes}, {}, {}, 0.0, False, 0.0)


class Story:
    """What clients saw and what the journal holds. Each word writes both, unless told otherwise."""

    def __init__(self, **settings: Any) -> None:
        self.history = History(plan_of(**settings))
        self.records: list[list[Any]] = []
        self.sequence = 1
        self.now = NOON
        self.token = 0
        self.start()
        self.record(2, 1, BOX, [])
        self.record(3, 1, "default/news.a", NEWS, [])

    def record(self, operation: int, count: int, *fields: Any) -> int:
        """A record in the journal; its first sequence."""
        base = self.sequence
        self.records.append([operation, count, self.now, *fields])
        self.sequence += count
        return base

    def start(self, epoch: int | None = None, *, after: End = "kill", ended: bool = True) -> None:
        lives = self.history.lives
        if lives and ended:
            lives[-1].end, lives[-1].ended = after, self.history.next_order()
            lives[-1].last_at = self.now
        epoch = epoch or len(lives) + 1
        self.token = epoch << EPOCH_SHIFT
        lives.append(Life(len(lives), epoch, self.history.next_order(), self.now))
        self.record(1, 1, epoch, 0)

    @property
    def life(self) -> int:
        return len(self.history.lives) - 1

    def message(self, id: str, content: bytes = b"x", target: str = BOX, **fields: Any) -> Message:
        return Message(id, target, content, **fields)

    def envelope(self, message: Message) -> list[Any]:
        m = message
        head = [m.id, "default/s", m.content, 0, "message", m.priority, m.ttl_ms, m.delay_ms]
        return [*head, None, m.key, None, None, False, [], None, m.max_retries]

    def asked(self, message: Message, **answer: Any) -> Sent:
        sent = Sent(message, self.history.next_order(), self.now, self.life, **answer)
        sent.answered = self.history.next_order()
        self.history.sent.append(sent)
        return sent

    def accept(self, id: str = "m", content: bytes = b"x", *, journal: bool = True, **fields: Any) -> int:
        """Sent, receipted, and in the journal."""
        message = self.message(id, content, **fields)
        due = self.now + message.delay_ms if message.delay_ms else 0
        sequence = self.record(5, 1, BOX, [self.envelope(message)]) if journal else self.sequence
        self.asked(message, answer="done", sequence=sequence, due=due)
        return sequence

    def grant(self, sequence: int, *, remote: bool = False, holder: str = "h", lease_ms: int = 1_000) -> int:
        """In the journal only; the token."""
        self.token += 1
        self.record(7, 1, BOX, holder, self.token, [sequence], remote, lease_ms)
        return self.token

    def hand(
        self,
        sequence: int,
        token: int,
        *,
        id: str = "m",
        attempt: int = 1,
        remote: bool = False,
        **changed: Any,
    ) -> Delivery:
        """To the client only."""
        fields: dict[str, Any] = {
            "token": token,
            "mailbox": BOX,
            "sequence": sequence,
            "id": id,
            "content": b"x",
            "attempt": attempt,
            "deadline": self.now + 1_000,
            "holder": "h",
            "remote": remote,
            "order": self.history.next_order(),
            "at": self.now,
            "life": self.life,
            "lease_ms": 1_000,
        }
        delivery = Delivery(**{**fields, **changed})
        self.history.deliveries.append(delivery)
        return delivery

    def deliver(self, sequence: int, *, id: str = "m", attempt: int = 1, remote: bool = False) -> Delivery:
        return self.hand(sequence, self.grant(sequence, remote=remote), id=id, attempt=attempt, remote=remote)

    def settled(self, delivery: Delivery, how: str, **answer: Any) -> Settled:
        """Asked and answered, as far as the client knows."""
        details: dict[str, Any] = {"answer": "done", **answer}
        asked = Settled(delivery, how, self.history.next_order(), self.now, self.life, **details)
        asked.answered = self.history.next_order()
        self.history.settles.append(asked)
        return asked

    def ack(self, delivery: Delivery, **answer: Any) -> None:
        self.record(8, 1, BOX, [delivery.sequence])
        self.settled(delivery, "ack", **answer)

    def returned(
        self, delivery: Delivery, cause: str = "nack", *, code: str = "other", after: int = 0
    ) -> None:
        failure = [delivery.attempt, self.now, code]
        self.record(10, 1, BOX, cause, [delivery.sequence], [self.now + after], [failure])

    def nack(self, delivery: Delivery, **answer: Any) -> None:
        self.returned(delivery)
        self.settled(delivery, "nack", result="retrying", **answer)

    def die(self, sequence: int, reason: str, *, code: str = "other") -> int:
        return self.record(11, 1, BOX, [sequence], reason, [[1, self.now, code]], False)

    def finish(self, sequence: int, *, id: str = "m", attempt: int = 1) -> None:
        """Delivered and acked."""
        self.ack(self.deliver(sequence, id=id, attempt=attempt))

    def wait(self, ms: int) -> None:
        self.now += ms

    def ledger(self) -> Ledger:
        ledger = Ledger(self.history.plan)
        sequence = 1
        for record in self.records:
            ledger.read(sequence, [record])
            sequence += record[1]
        return ledger

    def check(self) -> None:
        ledger = self.ledger()
        check_admission(self.history, ledger)
        check_deliveries(self.history, ledger)
        check_settles(self.history, ledger)
        check_fate(self.history, ledger)
