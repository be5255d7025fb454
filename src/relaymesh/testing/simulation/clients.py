"""The clients: senders, publishers and receivers with all their bad habits.

Each habit is one action: it asks the node for something and writes into the history what it asked and,
when the answer comes, what it was told. A client knows nothing but its own history.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import Any

from relaymesh.errors import Conflict, MeshError, Refused
from relaymesh.kernel.commands import (
    Ack,
    Complete,
    Extend,
    ForceDelayed,
    Nack,
    Publish,
    PurgeDeadLetters,
    Redrive,
    Release,
    Reprioritise,
    Send,
    Settle,
)
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.request import Command
from relaymesh.kernel.step import Receipt
from relaymesh.kernel.waiter import Waiter
from relaymesh.node.core import Receiver
from relaymesh.testing.simulation.history import Delivery, Message, Redriven, Sent, Settled
from relaymesh.testing.simulation.plan import KEYS, TOPICS
from relaymesh.testing.simulation.reading import with_payloads
from relaymesh.testing.simulation.world import World

TOPIC = "topic:"
NACK_CODES = ("other", "other", "timeout", "rate_limited", "invalid", "conflict")


class SimReceiver(Receiver, kw_only=True):
    """A receiver that hands its deliveries to the clients as soon as they may leave."""

    clients: Any
    mailbox: str
    waits: bool = False

    def release(self, error: MeshError | None) -> None:
        self.error = error
        self.clients.handed(self, error)


class Clients:
    """Every client that uses the mesh in one run."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.plan = world.plan
        self.rng = random.Random(f"clients-{world.plan.seed}")
        self.history = world.history
        self.trace = world.trace
        self.held: list[Delivery] = []
        """Deliveries in clients' hands, not yet settled as far as their holders know."""
        self.finished: list[Delivery] = []
        """Deliveries that were let go: their tokens should be worth nothing."""
        self.waiting: list[SimReceiver] = []
        self._put_off: set[tuple[str, int]] = set()
        self._sent_count = 0
        self.habits: dict[str, Callable[[], None]] = {
            "send": self.send,
            "send_batch": self.send_batch,
            "send_alike": self.send_alike,
            "publish": self.publish,
            "send_again": self.send_again,
            "send_conflict": self.send_conflict,
            "receive": self.receive,
            "wait": self.wait,
            "forgo": self.forgo,
            "ack": self.ack,
            "ack_durable": self.ack_durable,
            "ack_batch": self.ack_batch,
            "drop": self.drop,
            "nack": self.nack,
            "nack_fatal": self.nack_fatal,
            "nack_until": self.nack_until,
            "settle": self.settle,
            "extend": self.extend,
            "release": self.release,
            "forget": self.forget,
            "stale": self.stale,
            "complete": self.complete,
            "redrive": self.redrive,
            "purge": self.purge,
            "force": self.force,
            "reprioritise": self.reprioritise,
            "sweep": self.sweep,
        }

    # -- sending ------------------------------------------------------------------------------

    def new_message(self, target: str) -> Message:
        rng = self.rng
        self._sent_count += 1
        number = self._sent_count
        content = b'{"n":%d,"x":"%s"}' % (number, b"x" * rng.choice((0, 10, 60, 150)))
        return Message(
            f"m{number}",
            target,
            content,
            key=rng.choice((None, None, *KEYS)),
            priority=rng.choice((1, 2, 3, 3, 3, 4, 5)),
            delay_ms=rng.choice((0, 0, 0, 0, 1, 40, 40, 500, 20_000)),
            ttl_ms=rng.choice((0, 3_600_000, 3_600_000, 1_000, 50)),
            max_retries=rng.choice((None, None, None, 0, 2)),
        )

    def send(self) -> None:
        self.ask_to_accept([self.new_message(self.rng.choice(self.plan.agents))])

    def send_batch(self) -> None:
        agents = self.plan.agents
        self.ask_to_accept([self.new_message(self.rng.choice(agents)) for _ in range(self.rng.randint(2, 5))])

    def send_alike(self) -> None:
        """Messages that differ in id and content alone: the kernel may keep them together."""
        first = replace(self.new_message(self.rng.choice(self.plan.agents)), key=None, delay_ms=0)
        more = [self.new_message(first.target) for _ in range(self.rng.randint(1, 7))]
        alike = [replace(first, id=each.id, content=each.content) for each in more]
        self.ask_to_accept([first, *alike])

    def publish(self) -> None:
        topic = TOPIC + self.rng.choice(TOPICS)
        self.ask_to_accept([self.new_message(topic) for _ in range(self.rng.choice((1, 1, 3)))])

    def send_again(self) -> None:
        """A retry: the outcome was unknown, or the sender is just careless."""
        recent = self.history.sent[-12:] if self.rng.random() < 0.7 else self.history.sent
        if recent:
            self.ask_to_accept([self.rng.choice(recent).message])

    def send_conflict(self) -> None:
        """The same id, other content."""
        if self.history.sent:
            old = self.rng.choice(self.history.sent).message
            self.ask_to_accept([Message(old.id, old.target, old.content + b" ", old.key)])

    def ask_to_accept(self, messages: Sequence[Message]) -> None:
        """Send (or publish) in one call, which is accepted whole or not at all."""
        now = self.world.now()
        history = self.history
        asked = [Sent(each, history.next_order(), now, self.world.life.number) for each in messages]
        history.sent += asked
        self.trace.line(f"{now} send {' '.join([f'{m.id}>{m.target}' for m in messages])}")
        try:
            command = self.command_for(messages)
        except MeshError as error:
            self.answered(asked, None, error)
            return
        self.world.submit(command, lambda result, error: self.answered(asked, result, error))

    def command_for(self, messages: Sequence[Message]) -> Command[Any]:
        target = messages[0].target
        node = self.world.node
        if target.startswith(TOPIC):
            envelopes = [self.envelope(each) for each in messages]
            publish = Publish(target.removeprefix(TOPIC), envelopes)
            node.prepare(publish)
            return publish
        groups = [
            (target, [self.envelope(each) for each in group])
            for target, group in groupby(messages, key=attrgetter("target"))
        ]
        send = Send(groups)
        node.prepare(send)
        return send

    def envelope(self, message: Message) -> Envelope:
        return Envelope(
            message.id,
            self.plan.sender_names[len(message.id) % 2],
            message.content,
            key=message.key,
            priority=message.priority,
            delay_ms=message.delay_ms,
            ttl_ms=message.ttl_ms,
            max_retries=message.max_retries,
        )

    def answered(self, asked: list[Sent], receipts: list[Receipt] | None, error: MeshError | None) -> None:
        order = self.history.next_order()
        for i, sent in enumerate(asked):
            sent.answered = order
            if self.world.up:
                sent.answered_at = self.world.now()
            if error is not None:
                sent.code = error.code
                sent.answer = "refused" if isinstance(error, Refused | Conflict) else "unknown"
                self.trace.line(f"receipt {sent.message.id}: {error.code}")
            else:
                assert receipts is not None
                self._receipted(sent, receipts[i])

    def _receipted(self, sent: Sent, receipt: Receipt) -> None:
        sent.answer = "done"
        sent.sequence = receipt.sequence
        sent.duplicate = receipt.duplicate
        sent.targets = receipt.targets
        sent.due = receipt.due
        self.trace.line(
            f"receipt {receipt.id}: {receipt.sequence} due {receipt.due}"
            f"{' duplicate' if receipt.duplicate else ''}"
        )
        self._note_if_early(f"the receipt of {receipt.id}", receipt.sequence)

    def _note_if_early(self, what: str, sequence: int | None) -> None:
        if sequence is not None and not self.world.witness.is_safe(sequence):
            self.history.early.append(f"{what} (sequence {sequence})")

    # -- receiving ----------------------------------------------------------------------------

    def _receiver(self, mailbox: str, max: int, *, waits: bool) -> SimReceiver:
        rng = self.rng
        remote = rng.random() < self.plan.remote
        kind = "remote" if remote else "local"
        waiter = Waiter(f"{kind}-{rng.randrange(3)}", max, None, remote, rng.choice((0, 0, 700)))
        return SimReceiver(waiter, clients=self, mailbox=mailbox, waits=waits)

    def receive(self) -> None:
        mailbox = self.rng.choice(list(self.plan.mailboxes))
        self.take(mailbox, self.rng.choice((1, 1, 3, 8)))

    def take(self, mailbox: str, max: int) -> None:
        receiver = self._receiver(mailbox, max, waits=False)
        self.trace.line(f"{self.world.now()} receive {mailbox} {max} {receiver.waiter.holder}")
        self.world.receive(mailbox, receiver, wait=False)

    def wait(self) -> None:
        """Wait for what will come; a later step of another client serves those who wait."""
        mailbox = self.rng.choice(list(self.plan.mailboxes))
        receiver = self._receiver(mailbox, self.rng.choice((1, 2)), waits=True)
        self.trace.line(f"{self.world.now()} wait {mailbox} {receiver.waiter.holder}")
        self.waiting.append(receiver)
        self.world.receive(mailbox, receiver)

    def forgo(self) -> None:
        """The receiver went away: what it was granted meanwhile goes back unburned."""
        if self.waiting:
            receiver = self.waiting.pop(self.rng.randrange(len(self.waiting)))
            self.trace.line(f"{self.world.now()} forgo {receiver.mailbox}")
            self.world.forgo(receiver.mailbox, receiver)
            if receiver.deliveries:
                tokens, receiver.deliveries = receiver.deliveries.tokens, None
                self.world.submit(Release(tokens), no_answer)

    def handed(self, receiver: SimReceiver, error: MeshError | None) -> None:
        if receiver in self.waiting:
            self.waiting.remove(receiver)
        if error is not None:
            return
        now = self.world.now()
        life = self.world.life.number
        waiter = receiver.waiter
        for row in receiver.deliveries.rows() if receiver.deliveries is not None else ():
            delivery = Delivery(
                row.token,
                receiver.mailbox,
                row.sequence,
                row.envelope.id,
                with_payloads(row.envelope.content, self.world.disk.content),
                row.attempt,
                row.deadline,
                waiter.holder,
                waiter.remote,
                self.history.next_order(),
                now,
                life,
                waiter.lease_ms or self.history.settings_of(receiver.mailbox).lease_ms(row.priority),
                row.envelope.type == "task_assign",
                row.envelope.sender.endswith("/relaymesh"),
                row.envelope.type == "question",
            )
            self.history.deliveries.append(delivery)
            self.held.append(delivery)
            self.trace.line(
                f"{now} delivery {delivery.id} in {delivery.mailbox}"
                f" token {delivery.token} attempt {delivery.attempt}"
            )
            self._note_if_early(f"the delivery of {delivery.id}", delivery.sequence)

    # -- settling -----------------------------------------------------------------------------

    def _pick(self) -> Delivery | None:
        """Most receivers work in order; some do not. One that holds nothing receives."""
        if not self.held:
            self.receive()
            return None
        index = 0 if self.rng.random() < 0.7 else self.rng.randrange(len(self.held))
        return self.held[index]

    def _ask(self, delivery: Delivery, how: str, command: Command[Any], **details: Any) -> Settled:
        asked = self._about(delivery, how, **details)
        self.world.submit(
            command,
            lambda result, error: self._settled(asked, result, error),
            durable=asked.durable,
        )
        return asked

    def _about(self, delivery: Delivery, how: str, **details: Any) -> Settled:
        if how not in ("extend", "report") and delivery in self.held:
            self.held.remove(delivery)
            self.finished.append(delivery)
        asked = Settled(
            delivery, how, self.history.next_order(), self.world.now(), self.world.life.number, **details
        )
        self.history.settles.append(asked)
        self.trace.line(f"{asked.at} {how} {delivery.id} token {delivery.token}")
        return asked

    def _settled(self, asked: Settled, result: Any, error: MeshError | None) -> None:
        asked.answered = self.history.next_order()
        if error is not None:
            asked.code = error.code
            known = error.code in ("LEASE_LOST", "CONFLICT") or isinstance(error, Refused)
            asked.answer = "refused" if known else "unknown"
        elif asked.how in ("ack", "drop") and result:
            asked.answer, asked.code = "refused", "LEASE_LOST"
        else:
            asked.answer = "done"
            asked.result = result if isinstance(result, str) else "waits" if result is True else ""
            if asked.how == "extend":
                asked.deadline = result
        self.trace.line(f"answer {asked.how} {asked.delivery.id}: {asked.answer} {asked.code}{asked.result}")

    def ack(self) -> None:
        delivery = self._pick()
        if delivery is not None:
            self.finish(delivery)

    def ack_durable(self) -> None:
        delivery = self._pick()
        if delivery is not None:
            self.finish(delivery, durable=True)

    def ack_batch(self) -> None:
        """Some of what is held, in the order in which it came, in one command."""
        if not self.held:
            self.receive()
            return
        start = self.rng.choice((0, 0, self.rng.randrange(len(self.held))))
        chosen = self.held[start : start + self.rng.randint(1, 8)]
        asked = [self._about(delivery, "ack") for delivery in chosen]

        def answered(stale: Any, error: MeshError | None) -> None:
            for each in asked:
                lost = error is None and each.delivery.token in stale
                self._settled(each, [each.delivery.token] if lost else [], error)

        self.world.submit(Ack([delivery.token for delivery in chosen]), answered)

    def finish(self, delivery: Delivery, *, durable: bool = False) -> None:
        self._ask(delivery, "ack", Ack([delivery.token]), durable=durable)

    def drop(self) -> None:
        delivery = self._pick()
        if delivery is not None:
            self._ask(delivery, "drop", Ack([delivery.token], drop=True))

    def nack(self) -> None:
        delivery = self._pick()
        if delivery is None:
            return
        code = self.rng.choice(NACK_CODES)
        delay = self.rng.choice((None, None, 0, 700))
        command = Nack(delivery.token, code, "asked to fail", delay_ms=delay)
        self._ask(delivery, "nack", command, not_before=self.world.now() + (delay or 0), code_given=code)

    def nack_fatal(self) -> None:
        delivery = self._pick()
        if delivery is not None:
            command = Nack(delivery.token, "other", "cannot be done", retryable=False)
            self._ask(delivery, "fatal", command, code_given="other")

    def nack_until(self) -> None:
        """A client that put a message off once is likely to do so again."""
        again = [each for each in self.held if (each.mailbox, each.sequence) in self._put_off]
        delivery = again[0] if again else self._pick()
        if delivery is not None:
            self._put_off.add((delivery.mailbox, delivery.sequence))
            until = self.world.now() + self.rng.choice((0, 300, 5_000))
            command = Nack(delivery.token, "rate_limited", "later", until=until)
            self._ask(delivery, "defer", command, not_before=until)

    def settle(self) -> None:
        """Ack and send in one step."""
        delivery = self._pick()
        if delivery is None or self.world.doing == "sync":
            return
        message = self.new_message(self.rng.choice(self.plan.agents))
        sent = Sent(message, self.history.next_order(), self.world.now(), self.world.life.number)
        groups = [(message.target, [self.envelope(message)])]
        try:
            command = Settle(delivery.token, groups)
            self.world.node.prepare(command)
        except MeshError:
            return
        self.history.sent.append(sent)
        self.held.remove(delivery)
        self.finished.append(delivery)
        asked = Settled(delivery, "settle", self.history.next_order(), self.world.now(), sent.life)
        self.history.settles.append(asked)
        self.trace.line(f"{asked.at} settle {delivery.id} token {delivery.token} sending {message.id}")

        def answered(receipts: list[Receipt] | None, error: MeshError | None) -> None:
            self._settled(asked, receipts, error)
            self.answered([sent], receipts, error)
            if error is not None and error.code == "LEASE_LOST":
                sent.answer = "refused"

        self.world.submit(command, answered)

    def extend(self) -> None:
        delivery = self._pick()
        if delivery is not None:
            self._ask(delivery, "extend", Extend(delivery.token, self.rng.choice((500, 5_000))))

    def release(self) -> None:
        delivery = self._pick()
        if delivery is not None:
            self._ask(delivery, "release", Release([delivery.token]))

    def forget(self) -> None:
        """The receiver crashed and never says so."""
        delivery = self._pick()
        if delivery is not None:
            self.held.remove(delivery)
            self.finished.append(delivery)
            self.world.counts["client_crash"] += 1
            self.trace.line(f"{self.world.now()} forgotten {delivery.id} token {delivery.token}")

    def stale(self) -> None:
        """A receiver that was paused comes back with an old token."""
        if not self.finished:
            return
        delivery = self.rng.choice(self.finished[-15:])
        self.world.counts["stale_settle"] += 1
        how = self.rng.choice(("ack", "nack", "settle", "extend"))
        if how == "nack":
            self._ask(delivery, "nack", Nack(delivery.token, "other"), code_given="other")
        elif how == "extend":
            self._ask(delivery, "extend", Extend(delivery.token, 1_000))
        else:
            self._ask(delivery, "ack", Ack([delivery.token]))

    def complete(self) -> None:
        """The work was done although the lease was lost: the next delivery is acked unseen."""
        if self.finished:
            delivery = self.rng.choice(self.finished[-5:])
            self._ask(delivery, "complete", Complete(delivery.mailbox, delivery.sequence))

    # -- looking after it ---------------------------------------------------------------------

    def letters(self) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = self.world.core.read(
            lambda kernel: [
                (x.mailbox, x.dead_sequence) for x in kernel.state.letters if x.status == "pending"
            ]
        )
        return found

    def redrive(self) -> None:
        self._deal_with_letters(purge=False)

    def purge(self) -> None:
        self._deal_with_letters(purge=True)

    def _deal_with_letters(self, *, purge: bool) -> None:
        letters = self.letters()
        if letters:
            chosen = self.rng.sample(letters, min(len(letters), self.rng.choice((1, 3))))
            self.put_back(chosen, purge=purge)

    def put_back(self, letters: list[tuple[str, int]], *, purge: bool) -> None:
        life = self.world.life.number
        asked = [Redriven(box, dead, purge, self.history.next_order(), life) for box, dead in letters]
        self.history.redrives += asked
        self.trace.line(f"{self.world.now()} {'purge' if purge else 'redrive'} {letters}")

        def answered(result: Any, error: MeshError | None) -> None:
            for i, each in enumerate(asked):
                each.code = "" if error is None else error.code
                known = isinstance(error, Refused) or each.code == "NOT_FOUND"
                each.answer = "done" if error is None else "refused" if known else "unknown"
                if error is None and not purge:
                    each.sequence = result[i]
                    self._note_if_early(f"the answer to redriving {each.dead_sequence}", each.sequence)

        command: Command[Any] = PurgeDeadLetters(letters) if purge else Redrive(letters)
        self.world.submit(command, answered)

    def force(self) -> None:
        mailbox = self.rng.choice(list(self.plan.mailboxes))
        self.history.forced.add(mailbox)
        self.trace.line(f"{self.world.now()} force {mailbox}")
        self.world.submit(ForceDelayed(mailbox), no_answer)

    def sweep(self) -> None:
        """An hour passes, and files that nothing names go: not a habit of clients, but of the node."""
        self.world.clock.advance(self.rng.choice((10, 3_601)))
        try:
            removed = self.world.node.sweep_payloads()
        except OSError as error:
            self.trace.line(f"{self.world.now()} no sweep: {error}")
            return
        self.world.counts["payload_swept"] += len(removed)
        self.trace.line(f"{self.world.now()} sweep {len(removed)}")

    def reprioritise(self) -> None:
        mailbox = self.rng.choice(list(self.plan.mailboxes))
        self.trace.line(f"{self.world.now()} reprioritise {mailbox}")
        self.world.submit(Reprioritise(mailbox, None, self.rng.randint(1, 5)), no_answer)

    # -- lives --------------------------------------------------------------------------------

    def node_ended(self) -> None:
        """In-process receivers died with the node; remote ones keep what they hold."""
        self.waiting.clear()
        lost = [each for each in self.held if not each.remote]
        self.finished += lost
        self.held = [each for each in self.held if each.remote]


def no_answer(result: Any, error: MeshError | None) -> None:
    """For clients that do not wait for an answer."""
