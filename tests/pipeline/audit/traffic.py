"""Random traffic through the real kernel, as rows of bronze.

A story is a list of (what, number): the number decides everything that is left open, so that a story can be
shrunk and told again.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from relaymesh.errors import MeshError
from relaymesh.journal.frame import DATA, Frame
from relaymesh.kernel.commands import Complete, Nack, PurgeDeadLetters, Reprioritise, Unsubscribe
from relaymesh.kernel.contract import Rule
from relaymesh.kernel.deliveries import DeliveryRow
from relaymesh.kernel.records import AnyRecord, EpochStarted
from relaymesh.pipeline.schema.bronze import EVENTS
from relaymesh.pipeline.source.events import EventBatch
from relaymesh.wire.records import encode_records
from tests.kernel.driver import Driver
from tests.pipeline.tables.journal import Row

Story = list[tuple[str, int]]

AGENTS = ("default/a", "default/b", "default/c", "default/d", "default/e")
PATTERNS = ("order.*", "order.made", "order.**", "**")
TOPICS = ("order.made", "order.eu.made", "stock")
CODES = ("timeout", "invalid", "rate_limited", "conflict", "fatal", "other", "odd")


class Teller:
    """Tells one story. What a step refuses is part of the story: nothing happens."""

    def __init__(self) -> None:
        self.kernel = Driver()
        self.held: list[DeliveryRow] = []
        self.lost: list[DeliveryRow] = []
        self.count = 0
        self.kernel.agent("a")
        self.kernel.agent("b", ordered=True)
        self.kernel.agent("c", max_retries=1, contract={"invalid": Rule(2), "odd": Rule(1, "drop")})
        few = {"odd": Rule(1), "rate_limited": Rule(1, default=True)}
        self.kernel.agent("e", max_retries=2, contract=few)
        self.kernel.agent("d", delivery_semantics="at_most_once")
        self.subscriptions = [
            self.kernel.subscription("order.*", "s", overflow="dead_letter", capacity=2, dead_letters_max=2)
        ]

    def tell(self, story: Story) -> list[AnyRecord]:
        for what, number in story:
            chance = random.Random(number)
            self.kernel.chance = chance.random()
            try:
                DEEDS[what](self, chance)
            except MeshError:
                pass
        return self.kernel.records

    def name(self) -> str:
        self.count += 1
        return f"m{self.count}"

    def somewhere(self, chance: random.Random) -> str:
        return chance.choice([*AGENTS, *self.subscriptions])

    def one(self, chance: random.Random) -> DeliveryRow:
        """A lease that somebody was given, good or stale."""
        if not self.held:
            self.receive(chance)
        if not self.held:
            raise MeshError("nobody holds anything")
        lease = self.held.pop(chance.randrange(len(self.held)))
        self.lost.append(lease)
        return lease

    def send(self, chance: random.Random) -> None:
        fields = {
            "key": chance.choice([None, None, "k1", "k2"]),
            "task": chance.choice([None, None, "t"]),
            "delay_ms": chance.choice([0, 0, 0, 500, 5_000]),
            "ttl_ms": chance.choice([0, 2_000, 3_600_000]),
            "max_retries": chance.choice([None, None, 0, 2]),
            "priority": chance.randint(1, 5),
            "requires_ack": chance.random() < 0.2,
            "sender": chance.choice(AGENTS),
        }
        names = [self.name() for _ in range(chance.randint(1, 3))]
        self.kernel.send(chance.choice(AGENTS), *names, **fields)

    def publish(self, chance: random.Random) -> None:
        self.kernel.publish(chance.choice(TOPICS), self.name(), key=chance.choice([None, "k"]))

    def flood(self, chance: random.Random) -> None:
        """More than a small subscription and its dead letters can take; then its letters may go."""
        for _ in range(chance.randint(2, 5)):
            self.kernel.publish("order.made", self.name())
        letters = [each for each in self.kernel.letters if each.reason == "mailbox_full"]
        if chance.random() < 0.5:
            self.kernel.do(PurgeDeadLetters([(each.mailbox, each.dead_sequence) for each in letters]))

    def receive(self, chance: random.Random) -> None:
        holder = chance.choice(["w1", "w2"])
        self.held += self.kernel.receive(
            self.somewhere(chance), chance.randint(1, 4), holder, remote=chance.random() < 0.3
        )

    def ack(self, chance: random.Random) -> None:
        self.kernel.ack(self.one(chance))

    def drop(self, chance: random.Random) -> None:
        self.kernel.drop(self.one(chance))

    def nack(self, chance: random.Random) -> None:
        self.kernel.nack(self.one(chance), code=chance.choice(CODES), retryable=chance.random() < 0.9)

    def defer(self, chance: random.Random) -> None:
        until = self.kernel.now + chance.choice([0, 3_000])
        self.kernel.do(Nack(self.one(chance).token, "other", until=until))

    def release(self, chance: random.Random) -> None:
        self.kernel.release(self.one(chance))

    def complete(self, chance: random.Random) -> None:
        lease = chance.choice(self.lost) if self.lost else self.one(chance)
        self.kernel.do(Complete(lease.mailbox, lease.sequence))

    def wait(self, chance: random.Random) -> None:
        self.kernel.advance(chance.choice([1, 400, 1_200, 6_000, 70_000]))

    def restart(self, chance: random.Random) -> None:
        self.kernel.restart()
        self.held = []

    def redrive(self, chance: random.Random) -> None:
        letters = self.kernel.letters
        if letters:
            self.kernel.redrive(chance.choice(letters), to=chance.choice([None, "default/a"]))

    def purge(self, chance: random.Random) -> None:
        letters = self.kernel.letters
        if letters:
            one = chance.choice(letters)
            self.kernel.do(PurgeDeadLetters([(one.mailbox, one.dead_sequence)]))

    def reprioritise(self, chance: random.Random) -> None:
        self.kernel.do(Reprioritise(self.somewhere(chance), priority=chance.randint(1, 5), ids=None))

    def force(self, chance: random.Random) -> None:
        self.kernel.force_delayed()

    def subscribe(self, chance: random.Random) -> None:
        made = self.kernel.subscription(
            chance.choice(PATTERNS), chance.choice("xy"), max_retries=chance.choice([None, 0])
        )
        if made not in self.subscriptions:
            self.subscriptions.append(made)

    def unsubscribe(self, chance: random.Random) -> None:
        if self.subscriptions:
            gone = self.subscriptions.pop(chance.randrange(len(self.subscriptions)))
            self.kernel.do(Unsubscribe(gone))

    def configure(self, chance: random.Random) -> None:
        self.kernel.agent("a", max_retries=chance.choice([0, 1, 5]))


DEEDS: dict[str, Callable[[Teller, random.Random], None]] = {
    "send": Teller.send,
    "publish": Teller.publish,
    "flood": Teller.flood,
    "receive": Teller.receive,
    "ack": Teller.ack,
    "drop": Teller.drop,
    "nack": Teller.nack,
    "defer": Teller.defer,
    "release": Teller.release,
    "complete": Teller.complete,
    "wait": Teller.wait,
    "restart": Teller.restart,
    "redrive": Teller.redrive,
    "purge": Teller.purge,
    "reprioritise": Teller.reprioritise,
    "force": Teller.force,
    "subscribe": Teller.subscribe,
    "unsubscribe": Teller.unsubscribe,
    "configure": Teller.configure,
}
OFTEN = ("send", "send", "receive", "receive", "ack", "nack", "nack", "wait", "publish")

stories: st.SearchStrategy[Story] = st.lists(
    st.tuples(st.sampled_from([*OFTEN, *DEEDS]), st.integers(0, 1 << 32)), min_size=5, max_size=60
)


def story_of(seed: int, length: int = 60) -> Story:
    """A long story from a number alone."""
    chance = random.Random(seed)
    return [(chance.choice([*OFTEN, *DEEDS]), chance.getrandbits(32)) for _ in range(length)]


def rows_of(story: Story, partition: int) -> list[Row]:
    """The story as bronze shows it, decoded as a journal's frames are."""
    batch = EventBatch(to_arrow_schema(EVENTS, timezone="UTC"), "data", partition, content=False)
    sequence = epoch = 0
    for record in Teller().tell(story):
        if isinstance(record, EpochStarted):
            epoch = record.epoch
        batch.add(_frame([record], sequence, epoch))
        sequence += record.count
    rows: list[Row] = batch.finish().to_pylist()
    return rows


def _frame(records: list[AnyRecord], sequence: int, epoch: int) -> Frame:
    events = sum(record.count for record in records)
    payload = encode_records(records)
    return Frame(DATA, 0, epoch, events, sequence, 0, 0, 0, 0, payload, "00000001.rmj", 64)


__all__ = ["Story", "rows_of", "stories", "story_of"]
