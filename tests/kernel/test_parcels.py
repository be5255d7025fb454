"""Parcels: nothing but speed depends on them.

Two kernels are given the same commands. One keeps messages that came together as parcels for as long as it
can, the other has never heard of parcels. They must decide the same, record for record.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from relaymesh.kernel import parcel as parcel_module
from relaymesh.kernel.address import agent_address, pattern_address, subscription_address, topic_address
from relaymesh.kernel.commands import (
    Ack,
    Expect,
    Extend,
    Nack,
    OpenMailbox,
    Publish,
    Receive,
    Release,
    Reprioritise,
    Send,
    Subscribe,
    Tick,
)
from relaymesh.kernel.dedup import WINDOW_MS, Admitted, Seen, each_of
from relaymesh.kernel.deliveries import DeliveryRow
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.parcel import CUT_MIN, Parcel
from relaymesh.kernel.request import Command
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.kernel.snapshot import Snapshot, restore
from relaymesh.kernel.state import State
from relaymesh.kernel.step import Step
from relaymesh.kernel.waiter import Waiter
from tests.kernel.checker import check
from tests.kernel.driver import HOUR, MINUTE, NOON, Driver, letter, replay, through_a_checkpoint
from tests.kernel.durable import admitted, durable

BOX, COPY = agent_address("a"), subscription_address("t", "s")
PATTERN, TOPIC = pattern_address("t"), topic_address("t")


def parcels_in(driver: Driver, address: str = BOX) -> list[tuple[int, int]]:
    """First sequence and count of the parcels in a mailbox."""
    held = driver.box(address).entries.by_sequence.values()
    return sorted({(item.first, item.count) for item in held if isinstance(item, Parcel)})


@pytest.fixture
def driver() -> Iterator[Driver]:
    driver = Driver()
    driver.agent("a")
    yield driver
    check(driver.kernel.state)


# -- what a parcel is, and what ends it


def test_messages_that_come_together_stand_as_one_parcel_until_they_are_acked_as_they_came(
    driver: Driver,
) -> None:
    driver.send(BOX, *"abcdef")
    ((first, count),) = parcels_in(driver)
    assert count == 6
    leases = driver.receive(BOX, 6)
    assert parcels_in(driver) == [(first, 6)]
    assert [lease.sequence for lease in leases] == [*range(first, first + 6)]
    assert held(driver, leases) == leases
    assert driver.ack(*leases) == []
    assert held(driver, leases) == []
    assert not driver.box(BOX).entries
    assert not driver.kernel.state.leases


@pytest.mark.parametrize("lent", [False, True])
def test_looking_at_one_message_of_a_parcel_leaves_it_a_parcel_and_taking_it_out_does_not(lent: bool) -> None:
    driver = Driver()
    driver.agent("a")
    driver.send(BOX, *"abcdef")
    rows = driver.receive(BOX, 6) if lent else []
    ((first, count),) = parcels_in(driver)
    entries = driver.box(BOX).entries
    assert entries[first + 2] is entries.get(first + 3)
    assert entries.alone(first + 2) is None
    looked = entries.look(first + 2)
    assert looked is not None
    assert [entry.envelope.id for entry in entries.values()] == [*"abcdef"]
    assert parcels_in(driver) == [(first, count)]
    own = entries.take_out(first + 2)
    assert own is entries[first + 2] is entries.alone(first + 2)
    assert parcels_in(driver) == []
    assert [own.envelope, own.state, own.attempts] == [looked.envelope, looked.state, looked.attempts]
    assert held(driver, rows) == rows
    check(driver.kernel.state)


def test_a_receiver_of_fewer_is_given_the_front_of_a_parcel(driver: Driver) -> None:
    driver.send(BOX, *"abcdefghij")
    front, rest = driver.receive(BOX, CUT_MIN), driver.receive(BOX, 10)
    assert [lease.envelope.id for lease in front + rest] == [*"abcdefghij"]
    assert [count for _, count in parcels_in(driver)] == [CUT_MIN, 10 - CUT_MIN]
    driver.ack(*rest)
    driver.ack(*front)
    assert not driver.box(BOX).entries


def test_a_receiver_of_very_few_takes_them_one_by_one(driver: Driver) -> None:
    driver.send(BOX, *"abcdefghij")
    leases = [lease for _ in range(5) for lease in driver.receive(BOX, 2)]
    assert [lease.envelope.id for lease in leases] == [*"abcdefghij"]
    assert parcels_in(driver) == []


def test_ids_are_remembered_in_the_order_of_the_ack_whatever_they_came_in(driver: Driver) -> None:
    for names in ("a", "bc", "d"):
        driver.send(BOX, *names)
    driver.ack(*driver.receive(BOX, 4))
    remembered = driver.kernel.state.admitted.remembered()
    assert [id for _, id, _ in each_of(remembered)] == [*"abcd"]


def test_one_grant_of_several_parcels_is_acked_in_one_go(driver: Driver) -> None:
    for names in ("abc", "de", "fgh"):
        driver.send(BOX, *names)
    leases = driver.receive(BOX, 8)
    assert [count for _, count in parcels_in(driver)] == [3, 2, 3]
    assert driver.ack(*leases, *leases) == []
    assert not driver.box(BOX).entries
    assert driver.ack(*leases[:2]) == [leases[0].token, leases[1].token]


@pytest.mark.parametrize(
    "fields",
    [{"key": "k"}, {"task": "t"}, {"requires_ack": True}, {"delay_ms": 5}],
    ids=["a lane", "a task", "a sender that waits", "a time to wait for"],
)
def test_messages_with_rules_of_their_own_are_no_parcel(driver: Driver, fields: dict[str, Any]) -> None:
    driver.send(BOX, *"abc", **fields)
    assert parcels_in(driver) == []


def test_an_ordered_mailbox_and_one_where_somebody_asks_have_no_parcels(driver: Driver) -> None:
    driver.do(Expect(BOX, "question"))
    driver.send(BOX, *"abc")
    driver.agent("lane", ordered=True)
    driver.send("default/lane", *"abc")
    assert parcels_in(driver) == parcels_in(driver, "default/lane") == []


@pytest.mark.parametrize("how", ["nack", "release", "ack one", "ack in another order", "drop", "expire"])
def test_a_message_that_goes_its_own_way_unpacks_its_parcel_and_leaves_the_others_as_they_were(
    driver: Driver, how: str
) -> None:
    driver.send(BOX, *"abcd")
    leases = driver.receive(BOX, 4)
    others = [leases[0], *leases[2:]]
    match how:
        case "nack":
            driver.nack(leases[1])
        case "release":
            driver.release(leases[1])
        case "ack one":
            driver.ack(leases[1])
        case "ack in another order":
            others = []
            driver.ack(*reversed(leases))
        case "drop":
            driver.drop(leases[1])
        case "expire":
            driver.do(Extend(leases[0].token, HOUR))
            driver.do(Extend(leases[2].token, HOUR))
            driver.do(Extend(leases[3].token, HOUR))
            driver.now += 10 * MINUTE
            driver.do(Tick())
    assert parcels_in(driver) == []
    assert held(driver, leases) == others
    assert driver.ack(*others) == []


def test_an_id_is_known_while_its_parcel_waits_while_it_is_leased_and_when_it_is_settled(
    driver: Driver,
) -> None:
    sent = driver.send(BOX, *"abc")
    known = [sent, driver.send(BOX, *"abc")]
    leases = driver.receive(BOX, 3)
    known.append(driver.send(BOX, *"abc"))
    driver.ack(*leases)
    known.append(driver.send(BOX, *"abc"))
    for receipts in known[1:]:
        assert [receipt.sequence for receipt in receipts] == [receipt.sequence for receipt in sent]
        assert all(receipt.duplicate for receipt in receipts)


def test_remembered_ids_are_counted_one_by_one_and_forgotten_a_parcel_at_a_time(driver: Driver) -> None:
    known = driver.kernel.state.admitted
    driver.send(BOX, *"abc")
    driver.ack(*driver.receive(BOX, 3))
    last = driver.send(BOX, *"def")[-1].sequence
    driver.ack(*driver.receive(BOX, 3))
    known.remembered_max = 6
    known.forget(last + 1, driver.now)
    assert len(known) == 6
    known.remembered_max = 5
    known.forget(last + 1, driver.now)
    assert [id for _, id, _ in each_of(known.remembered())] == [*"def"]
    assert known.horizon == driver.now
    known.remembered_max = 0
    known.forget(last, driver.now)
    assert len(known) == 3, "the store does not have all of it yet"
    known.forget(last + 1, driver.now)
    assert len(known) == len(known.remembered()) == 0


def test_a_snapshot_has_a_parcel_as_it_was_when_the_snapshot_was_taken(driver: Driver) -> None:
    driver.send(BOX, *"abcd")
    driver.send(BOX, *"ef")
    leases = driver.receive(BOX, 3)
    before = durable(driver.kernel.state)
    snapshot = Snapshot(driver.kernel.state)
    driver.ack(*leases)
    driver.receive(BOX, 2)
    driver.send(BOX, *"gh")
    restored = restore(through_a_checkpoint(snapshot.pieces()))
    snapshot.close()
    assert durable(restored) == before


@pytest.mark.parametrize("names", ["a", "abc"], ids=["one message", "a parcel"])
def test_an_id_that_comes_again_after_the_window_is_the_new_message_in_a_checkpoint_too(
    driver: Driver, names: str
) -> None:
    driver.send(BOX, *names)
    driver.ack(*driver.receive(BOX, 3))
    driver.now += WINDOW_MS
    again = driver.send(BOX, *names)
    assert not any(receipt.duplicate for receipt in again)
    snapshot = Snapshot(driver.kernel.state)
    restored = restore(through_a_checkpoint(snapshot.pieces()))
    snapshot.close()
    assert admitted(restored) == admitted(driver.kernel.state)
    assert [found for _, _, found in restored.admitted] == [receipt.sequence for receipt in again]


def test_a_restart_keeps_what_waits_together_and_unpacks_what_is_leased(driver: Driver) -> None:
    driver.send(BOX, *"abcdef")
    driver.send(BOX, *"gh", priority=1)
    driver.send(BOX, "i", key="lane")
    driver.send(BOX, *"jklm")
    leases = driver.receive(BOX, 2, remote=True)  # those of the higher priority
    state = replay(driver.records)
    boxes = state.mailboxes[BOX].entries
    assert sorted({part.count for part in boxes.parts() if isinstance(part, Parcel)}) == [2, 4, 6]
    driver.start(state)
    assert [count for _, count in parcels_in(driver)] == [6, 4]
    assert [lease.envelope.id for lease in leases] == [*"gh"]
    assert driver.ack(*leases) == []
    assert [lease.envelope.id for lease in driver.receive(BOX, 20, remote=True)] == [*"abcdefijklm"]
    driver.start(replay(driver.records))
    assert parcels_in(driver) == []


def test_a_restart_unpacks_what_waits_where_parcels_have_no_place_any_more(driver: Driver) -> None:
    driver.send(BOX, *"abcdef")
    assert [count for _, count in parcels_in(driver)] == [6]
    driver.agent("a", ordered=True)
    driver.start(replay(driver.records))
    assert parcels_in(driver) == []
    assert [lease.envelope.id for lease in driver.receive(BOX, 6)] == [*"abcdef"]


def test_a_notice_that_takes_over_an_id_of_a_parcel_keeps_it(driver: Driver) -> None:
    """A sender may choose the id that a notice will have. A replay gets over it, with a store and without."""
    driver.agent("worker")
    forged = [f"ack-0-{number}" for number in range(150, 350)]
    driver.send(BOX, *forged)
    driver.send("default/worker", "work", sender=BOX, requires_ack=True)
    driver.ack(*driver.receive("default/worker"))
    notice = driver.box(BOX).entries.look(driver.kernel.state.sequence - 1)
    assert notice is not None
    assert notice.envelope.id in forged
    driver.ack(*driver.receive(BOX, 200))
    assert driver.kernel.state.admitted.of(BOX)[notice.envelope.id] == notice.sequence
    for stored_through in (0, driver.kernel.state.sequence):
        replayed = State()
        replayed.admitted.stored_through = stored_through
        replay(driver.records, replayed)
        assert replayed.admitted.of(BOX)[notice.envelope.id] == notice.sequence


def test_ids_of_a_target_that_nothing_leads_to_any_more_are_forgotten() -> None:
    """So it is after a replay: the ids were admitted again, and the store has them."""
    known = Admitted(remembered_max=0)
    for id in "ab":
        known.remember(BOX, id, Seen(1, NOON, b""))
    known.of(BOX).clear()
    known.forget(10, NOON)
    assert len(known) == 0


def test_a_lease_that_is_out_does_not_keep_the_mailbox() -> None:
    driver = Driver()
    driver.agent("a")
    driver.send(BOX, *"abcdefghij")
    leases = driver.receive(BOX, CUT_MIN, remote=True)
    entries = weakref.ref(driver.box(BOX).entries)
    del driver
    gc.collect()
    assert entries() is None
    assert len(leases) == CUT_MIN


# -- the same with and without


class WithAndWithout(RuleBasedStateMachine):
    """Every command goes to both kernels; what they answer, record and deliver is compared."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.drivers = (Driver(chance=0.5), Driver(chance=0.5))
        self.names = 0
        self.held: list[int] = []

    def teardown(self) -> None:
        self.patch.undo()

    def do(self, command: Command[Any], other: Command[Any] | None = None) -> tuple[Step, Step]:
        steps = []
        for driver, each, parcel_min in zip(
            self.drivers, (command, other or command), (2, 1 << 30), strict=True
        ):
            self.patch.setattr(parcel_module, "PARCEL_MIN", parcel_min)
            step = driver.kernel.step(each, driver.now)
            driver.records += step.records
            steps.append(step)
        first, second = steps
        assert first.records == second.records
        assert (first.written, first.synced) == (second.written, second.synced)
        assert error_of(first) == error_of(second)
        assert msgspec.to_builtins(first.result) == msgspec.to_builtins(second.result)
        assert first.ended == second.ended
        for one, two in zip(first.delivered or (), second.delivered or (), strict=True):
            assert one.deliveries.rows() == two.deliveries.rows()
            assert (one.written, one.synced) == (two.written, two.synced)
            self.held += one.deliveries.tokens
        return first, second

    @initialize(
        schedule=st.sampled_from(["weighted", "strict", "fifo"]),
        semantics=st.sampled_from(["at_least_once", "at_least_once", "at_most_once"]),
        capacity=st.sampled_from([20, 1_000]),
        rate=st.sampled_from([0.0, 3.0]),
    )
    def begin(self, schedule: Any, semantics: Any, capacity: int, rate: float) -> None:
        chosen = MailboxSettings(
            schedule=schedule, delivery_semantics=semantics, capacity=capacity, rate_per_s=rate
        )
        self.do(OpenMailbox(BOX, chosen))
        self.do(Subscribe(PATTERN, COPY, msgspec.structs.replace(chosen, rate_per_s=0.0)))

    def letters(self, count: int, priority: int, **fields: Any) -> list[Envelope]:
        self.names += count
        numbers = range(self.names - count, self.names)
        return [letter(f"m{number}", priority=priority, **fields) for number in numbers]

    @rule(
        count=st.integers(1, 20), priority=st.sampled_from([3, 3, 3, 1, 5]), ttl=st.sampled_from([0, 5_000])
    )
    def send(self, count: int, priority: int, ttl: int) -> None:
        self.do(Send([(BOX, self.letters(count, priority, ttl_ms=ttl))]))

    @rule(count=st.integers(1, 4), key=st.sampled_from([None, "k"]), delay=st.sampled_from([0, 3_000]))
    def send_with_rules(self, count: int, key: str | None, delay: int) -> None:
        self.do(Send([(BOX, self.letters(count, 3, key=key, delay_ms=delay))]))

    @rule(count=st.integers(1, 6))
    def publish(self, count: int) -> None:
        self.do(Publish(TOPIC, self.letters(count, 3)))

    @rule(data=st.data(), count=st.integers(1, 5))
    def send_again(self, data: st.DataObject, count: int) -> None:
        if self.names:
            numbers = data.draw(st.lists(st.integers(0, self.names - 1), min_size=count, max_size=count))
            self.do(Send([(BOX, [letter(f"m{number}") for number in numbers])]))

    @rule(box=st.sampled_from([BOX, COPY]), most=st.integers(1, 12), wait=st.booleans(), remote=st.booleans())
    def receive(self, box: str, most: int, wait: bool, remote: bool) -> None:
        waiters = [Waiter("worker", most, remote=remote) for _ in range(2)]
        self.do(Receive(box, waiters[0], wait=wait), Receive(box, waiters[1], wait=wait))

    @rule(data=st.data(), drop=st.booleans())
    def ack(self, data: st.DataObject, drop: bool) -> None:
        if self.held:
            start = data.draw(st.integers(0, len(self.held) - 1))
            end = data.draw(st.integers(start + 1, len(self.held)))
            self.do(Ack(self.held[start:end], drop))

    @rule()
    def ack_all(self) -> None:
        self.do(Ack(list(self.held)))
        self.held.clear()

    @rule(data=st.data(), how=st.sampled_from(["nack", "release", "extend", "defer"]))
    def deal_with_one(self, data: st.DataObject, how: str) -> None:
        if self.held:
            token = data.draw(st.sampled_from(self.held))
            match how:
                case "nack":
                    self.do(Nack(token, "other"))
                case "release":
                    self.do(Release([token]))
                case "extend":
                    self.do(Extend(token, HOUR))
                case "defer":
                    self.do(Nack(token, "later", until=self.drivers[0].now + 2_000))

    @rule(priority=st.integers(1, 5))
    def reprioritise(self, priority: int) -> None:
        self.do(Reprioritise(BOX, None, priority))

    @rule(ms=st.sampled_from([1, 700, 6_000, 10 * MINUTE]))
    def pass_time(self, ms: int) -> None:
        for driver in self.drivers:
            driver.now += ms
        self.do(Tick())

    @rule()
    def start_again(self) -> None:
        """From the records alone, which each of them replays in its own way."""
        self.held.clear()
        for driver, parcel_min in zip(self.drivers, (2, 1 << 30), strict=True):
            self.patch.setattr(parcel_module, "PARCEL_MIN", parcel_min)
            driver.start(replay(driver.records))

    @rule()
    def look(self) -> None:
        """A snapshot has the same in it, and taking it ends no parcel."""
        pieces = []
        for driver in self.drivers:
            before = parcels_in(driver)
            snapshot = Snapshot(driver.kernel.state)
            pieces.append(list(snapshot.pieces()))
            snapshot.close()
            assert parcels_in(driver) == before
        assert pieces[0] == pieces[1]

    @invariant()
    def they_are_the_same(self) -> None:
        one, two = (driver.kernel.state for driver in self.drivers)
        check(one)
        assert durable(one) == durable(two)
        assert admitted(one) == admitted(two)
        assert one.leases.keys() == two.leases.keys()


def error_of(step: Step) -> tuple[type, str] | None:
    error = step.error
    return None if error is None else (type(error), error.message)


def held(driver: Driver, rows: list[DeliveryRow]) -> list[DeliveryRow]:
    return [row for row in rows if driver.kernel.holds(row.token)]


WithAndWithout.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestWithAndWithout = WithAndWithout.TestCase
