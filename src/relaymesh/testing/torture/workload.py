"""What a tortured worker does, and writes down: sends of every kind, receives, failures, replies."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from relaymesh.errors import Closed, Conflict, LeaseLost, MailboxFull, Refused
from relaymesh.sdk.endings import Reject, Retry
from relaymesh.testing.torture.ledger import Ledger, awake_ms, digest_of, elapsed_ms, wall_ms
from relaymesh.testing.torture.ports import Messages, Port

LANES, FLAKY, ASKS, ANSWERS = "torture-lanes", "torture-flaky", "torture-asks", "torture-answers"
TOPIC = "torture.orders"
BILLING, AUDIT = f"{TOPIC}:billing", "torture.*:audit"
AGENTS = (LANES, FLAKY, ASKS, ANSWERS)
SUBSCRIPTIONS = (BILLING, AUDIT)
MAILBOXES = (*AGENTS, *SUBSCRIPTIONS)

LEASE_MS = 400
CAPACITY = 300
"""Small, so that senders also meet a full mailbox."""
OPTIONS: dict[str, Any] = {
    "lease_ms": LEASE_MS,
    "capacity": CAPACITY,
    "backoff_ms_base": 1,
    "backoff_ms_cap": 50,
    "breaker": False,
}
"""No breaker: a pause fails hundreds of leases in a row, and half a minute of rest would prove nothing."""
RETRIES_MANY = 1_000_000
RETRIES_FEW = 2
LANES_PER_SENDER = 3
NUMBERS_PER_RUN = 1_000_000
RECENT = 40
SEND_WAIT_S = 2.0
NO_KEY = "-"


@dataclass(frozen=True, slots=True)
class Order:
    """One message to send. Its content follows from these fields, so another worker can send it again."""

    id: str
    to: str
    key: str
    number: int
    fate: str
    size: int
    delay_ms: int = 0

    @property
    def max_retries(self) -> int:
        return RETRIES_FEW if self.fate in ("poison", "reject") else RETRIES_MANY

    @property
    def mailboxes(self) -> str:
        return ",".join(SUBSCRIPTIONS) if self.to == TOPIC else self.to

    def content(self) -> dict[str, Any]:
        pad = blake2b(self.id.encode(), digest_size=32).hexdigest()
        return {"number": self.number, "fate": self.fate, "pad": (pad * (self.size // 64 + 1))[: self.size]}

    def message(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"id": self.id, "content": self.content(), "ttl": 0}
        fields["max_retries"] = self.max_retries
        if self.key != NO_KEY:
            fields["key"] = self.key
        if self.delay_ms:
            fields["delay_ms"] = self.delay_ms
        if self.to != TOPIC:
            fields["to"] = self.to
        if self.to == ASKS:
            fields.update(type="question", reply_to=ANSWERS)
        return fields

    def line(self) -> tuple[object, ...]:
        key = None if self.key == NO_KEY else self.key
        return (
            "I", self.id, self.mailboxes, self.key, self.number, digest_of(self.id, key, self.content()),
            self.delay_ms, self.max_retries, self.fate, self.size, elapsed_ms(), wall_ms(),
        )  # fmt: skip


def order_of(words: list[str]) -> Order:
    """The order that an intent line of the ledger tells of."""
    _, id, mailboxes, key, number, _, delay, _, fate, size, _, _ = words
    to = TOPIC if "," in mailboxes else mailboxes
    return Order(id, to, key, int(number), fate, int(size), int(delay))


class Pace:
    """Lets so many messages a second through, in bursts of 0.1 s; full speed if it is never met."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._began = time.monotonic()
        self._passed = 0

    def owed_s(self, count: int) -> float:
        """Count them in; answers how long to wait before the next."""
        self._passed += count
        return max(0.0, self._passed / self._per_second - (time.monotonic() - self._began) - 0.1)


class Sender:
    """Numbers its messages; its lanes are its own, so that their order is known."""

    def __init__(
        self, port: Port, ledger: Ledger, pace: Pace, *, tag: str, run: int, number: int, seed: str
    ) -> None:
        self._port = port
        self._ledger = ledger
        self._pace = pace
        self._rng = random.Random(f"{seed}/{run}/{number}")
        self._prefix = f"{tag}.{number}"
        self._lanes = [f"k{number}-{lane}" for lane in range(LANES_PER_SENDER)]
        self._next = run * NUMBERS_PER_RUN
        self._recent: deque[Order] = deque(maxlen=RECENT)

    async def work(self, unknown: Iterable[Order]) -> None:
        """First what an earlier worker left without an outcome, in order; then new ones until the end."""
        try:
            for order in unknown:
                await self._send_unknown(order)
            while True:
                orders = self._orders()
                self._ledger.write(*[order.line() for order in orders])
                await self._send_new(orders)
                if self._recent and self._rng.random() < 0.08:
                    await self._send_twice(self._rng.choice(self._recent))
                owed = self._pace.owed_s(len(orders))
                if owed:
                    await self._port.pause(owed)
        except Closed:
            return  # the outcome of the last send is not known

    def _orders(self) -> list[Order]:
        """One send: to one agent or one topic."""
        rng = self._rng
        to = rng.choices([LANES, FLAKY, ASKS, TOPIC], [6, 2, 1, 2])[0]
        count = 1 if to == ASKS else rng.choice([1, 1, 5, 20])
        return [self._order(to) for _ in range(count)]

    def _order(self, to: str) -> Order:
        rng = self._rng
        self._next += 1
        number = self._next
        size = rng.choices([rng.randrange(300), rng.randrange(20_000)], [99, 1])[0]
        key, fate, delay = NO_KEY, "ok", 0
        if to != ASKS and rng.random() < 0.7:
            key = rng.choice(self._lanes)
        if to == LANES and key == NO_KEY and rng.random() < 0.4:
            delay = rng.choice([rng.randrange(1, 50), rng.randrange(50, 1_500)])
        if to == FLAKY:
            fate = rng.choices(["ok", "once", "poison", "reject"], [6, 3, 1, 1])[0]
        elif to == LANES:
            fate = rng.choices(["ok", "once", "reject"], [95, 4, 1])[0]
        return Order(f"{self._prefix}.{number}", to, key, number, fate, size, delay)

    async def _send_new(self, orders: list[Order]) -> None:
        try:
            await self._deliver(orders)
        except Refused as error:
            self._ledger.write(*[("X", order.id) for order in orders])
            if not isinstance(error, MailboxFull):
                await self._port.pause(0.05)
        else:
            self._recent.extend(orders[-2:])

    async def _send_unknown(self, order: Order) -> None:
        """Until it is receipted. A refusal says nothing: at a node the first try may still wait for room."""
        while True:
            try:
                await self._send_again([order])
                return
            except Refused:
                await self._port.pause(0.05)

    async def _send_twice(self, order: Order) -> None:
        """It is receipted already; a mesh that takes nothing for the moment says nothing about that."""
        try:
            await self._send_again([order])
        except Refused:
            await self._port.pause(0.05)

    async def _send_again(self, orders: list[Order]) -> None:
        self._ledger.write(*[("A", order.id) for order in orders])
        try:
            await self._deliver(orders)
        except Conflict as error:
            self._ledger.write(("F", "CONFLICT for the same content again:", error))

    async def _deliver(self, orders: list[Order]) -> None:
        messages: Messages = [order.message() for order in orders]
        wait_s = SEND_WAIT_S if self._rng.random() < 0.8 else 0.0
        if orders[0].to == TOPIC:
            receipts = await self._port.publish(TOPIC, messages, wait_s)
        else:
            receipts = await self._port.send(messages, wait_s)
        self._ledger.write(*[receipt_line(receipt) for receipt in receipts])


def receipt_line(receipt: Any) -> tuple[object, ...]:
    return ("R", receipt.id, receipt.sequence, int(receipt.duplicate), receipt.targets)


def name_of(delivery: Any) -> str:
    return str(delivery.receiver).removeprefix("default/")


def delivery_line(delivery: Any, lease_ms: int) -> tuple[object, ...]:
    return (
        "H", delivery.id, name_of(delivery), delivery.sequence, delivery.attempt, delivery.token,
        digest_of(delivery.id, delivery.key, delivery.content), lease_ms, awake_ms(), elapsed_ms(), wall_ms(),
    )  # fmt: skip


def done_line(delivery: Any, reply: str = "-") -> tuple[object, ...]:
    return ("T", delivery.id, name_of(delivery), delivery.token, reply)


def settle_line(delivery: Any, outcome: str, begun: int) -> tuple[object, ...]:
    return ("S", delivery.id, name_of(delivery), delivery.token, outcome, begun)


class Receiver:
    """Takes under bare leases, which are not renewed: after a long pause its settles must be refused."""

    def __init__(self, port: Port, ledger: Ledger, *, run: int, number: int, seed: str) -> None:
        self._port = port
        self._ledger = ledger
        self._rng = random.Random(f"{seed}/{run}/receiver/{number}")
        self._number = number

    async def work(self, mailbox: str) -> None:
        try:
            while True:
                await self._take(mailbox)
        except Closed:
            return

    async def _take(self, mailbox: str) -> None:
        rng = self._rng
        deliveries = await self._port.receive(mailbox, rng.choice([1, 5, 20, 50]), 0.2)
        if not deliveries:
            return
        self._ledger.write(*[delivery_line(each, LEASE_MS) for each in deliveries])
        if rng.random() < 0.1:
            await self._port.pause(rng.random() * 0.05)
        if mailbox == ASKS:
            for each in deliveries:
                await self._answer(each)
            return
        failing = [each for each in deliveries if fails(each)]
        nacks_first = rng.random() < 0.5  # a nack takes back what was handed out behind it in its lane
        if nacks_first:
            await self._nack_all(failing)
        await self._ack([each for each in deliveries if not fails(each)], durable=rng.random() < 0.3)
        if not nacks_first:
            await self._nack_all(failing)

    async def _nack_all(self, deliveries: list[Any]) -> None:
        for each in deliveries:
            await self._nack(each)

    async def _ack(self, deliveries: list[Any], *, durable: bool) -> None:
        if not deliveries:
            return
        self._ledger.write(*[done_line(each) for each in deliveries])
        begun = awake_ms()
        try:
            await self._port.ack(deliveries, durable)
        except LeaseLost:
            pass  # each of them knows whether it is meant
        self._ledger.write(
            *[settle_line(each, "acked" if each.settled else "lost", begun) for each in deliveries]
        )

    async def _nack(self, delivery: Any) -> None:
        begun = awake_ms()
        try:
            outcome = await self._port.nack(delivery, "on purpose", delivery.content["fate"] != "reject")
        except LeaseLost:
            outcome = "lost"
        self._ledger.write(settle_line(delivery, outcome, begun))

    async def _answer(self, delivery: Any) -> None:
        """Ack and reply in one step. The reply names the lease it was sent under."""
        id, content = f"re-{delivery.id}", {"fate": "reply", "token": delivery.token}
        digest = digest_of(id, None, content)
        self._ledger.write(
            (
                "I", id, ANSWERS, NO_KEY, 0, digest, 0, RETRIES_MANY,
                f"reply-{delivery.token}", 0, elapsed_ms(), wall_ms(),
            ),
            done_line(delivery, id),
        )  # fmt: skip
        begun = awake_ms()
        try:
            receipt = await self._port.answer(delivery, content, id)
        except LeaseLost:
            self._ledger.write(settle_line(delivery, "lost", begun))
        except MailboxFull:
            self._ledger.write(settle_line(delivery, "refused", begun))
        except Conflict as error:
            self._ledger.write(("F", "a second answer got through:", error))
        else:
            self._ledger.write(settle_line(delivery, "answered", begun), receipt_line(receipt))


def fails(delivery: Any) -> bool:
    fate = delivery.content["fate"]
    return fate in ("poison", "reject") or (fate == "once" and delivery.attempt == 1)


def handler_of(ledger: Ledger) -> Any:
    """For `handle`: the lease is renewed, the settle is the pool's."""

    def handle(delivery: Any) -> None:
        ledger.write(delivery_line(delivery, 0))
        if delivery.content["fate"] == "reject":
            raise Reject("on purpose")
        if fails(delivery):
            raise Retry("on purpose") if delivery.content["number"] % 2 else ValueError("on purpose")
        ledger.write(done_line(delivery))

    return handle


async def open_mailboxes(port: Port) -> None:
    for name in AGENTS:
        await port.open_agent(name, **OPTIONS)
    for mailbox in SUBSCRIPTIONS:
        topic, _, name = mailbox.partition(":")
        await port.subscribe(topic, name, **OPTIONS)
