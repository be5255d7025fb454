"""Delayed delivery: the six properties of its design document, and what the mesh adds to them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from relaymesh.kernel.commands import Receive, Stop
from relaymesh.kernel.waiter import Waiter
from tests.kernel.driver import HOUR, SECOND, Driver, ids

hundred = settings(max_examples=150, deadline=None)
delays = st.integers(1, 10_000)
schedules = st.sampled_from(["weighted", "strict", "fifo"])


@hundred
@given(sent=st.lists(delays, min_size=1, max_size=8), steps=st.lists(st.integers(1, 4_000), max_size=8))
def test_1_a_delayed_message_is_never_visible_before_its_time(sent: list[int], steps: list[int]) -> None:
    mesh = Driver()
    box = mesh.agent()
    due = {f"m{i}": mesh.send(box, f"m{i}", delay_ms=delay)[0].due for i, delay in enumerate(sent)}
    for step in steps:
        mesh.now += step
        for lease in mesh.receive(box, 10):
            assert due[lease.envelope.id] <= mesh.now


@hundred
@given(sent=st.lists(delays, min_size=1, max_size=8), restarts=st.booleans())
def test_2_a_delayed_message_is_delivered_in_the_end(sent: list[int], restarts: bool) -> None:
    mesh = Driver()
    box = mesh.agent(schedule="fifo")
    for i, delay in enumerate(sent):
        mesh.send(box, f"m{i}", delay_ms=delay)
    seen: list[str] = []
    while mesh.kernel.next_event_at < mesh.now + HOUR:
        mesh.now = mesh.kernel.next_event_at
        got = mesh.receive(box, 10)
        seen += ids(got)
        mesh.ack(*got)
        if restarts:
            mesh.restart()
    in_due_order = sorted(range(len(sent)), key=lambda i: (sent[i], i))
    assert seen == [f"m{i}" for i in in_due_order]
    assert mesh.pending(box) == []


@hundred
@given(
    fields=st.lists(st.tuples(st.integers(1, 5), st.none() | st.just("k")), max_size=8), schedule=schedules
)
def test_3_a_delay_of_zero_is_no_delay(fields: list[tuple[int, str | None]], schedule: str) -> None:
    def deliveries(**delay: int) -> list[list[str]]:
        mesh = Driver()
        box = mesh.agent(schedule=schedule)
        for i, (priority, key) in enumerate(fields):
            (receipt,) = mesh.send(box, f"m{i}", priority=priority, key=key, **delay)
            assert receipt.due == 0
        assert mesh.box(box).delayed == 0
        return [ids(mesh.receive(box, 3)) for _ in range(4)]

    assert deliveries(delay_ms=0) == deliveries()


@hundred
@given(delay=st.integers(-(10**12), -1), ttl=st.sampled_from([0, 1, 1_000]))
def test_4_a_negative_delay_is_zero(delay: int, ttl: int) -> None:
    mesh = Driver()
    box = mesh.agent()
    (receipt,) = mesh.send(box, "m", delay_ms=delay, ttl_ms=ttl)
    assert receipt.due == 0
    assert ids(mesh.receive(box)) == ["m"]


@hundred
@given(
    sent=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)), min_size=2, max_size=10),
    ordered=st.booleans(),
    restarts=st.booleans(),
)
def test_5_equal_times_keep_the_order_of_sending(
    sent: list[tuple[int, int]], ordered: bool, restarts: bool
) -> None:
    """Each is sent a while after the one before, with the delay that makes all of them due together."""
    mesh = Driver()
    box = mesh.agent(ordered=ordered)
    together = mesh.now + SECOND
    for i, (count, pause) in enumerate(sent):
        mesh.now += pause
        mesh.send(box, *[f"m{i}.{j}" for j in range(count)], delay_ms=together - mesh.now)
    if restarts:
        mesh.restart()
    mesh.now = together
    expected = [f"m{i}.{j}" for i, (count, _) in enumerate(sent) for j in range(count)]
    assert ids(mesh.receive(box, 100)) == expected


@hundred
@given(
    sent=st.lists(st.tuples(st.integers(0, 10_000), st.sampled_from("ab")), min_size=1, max_size=8),
    retry=st.booleans(),
)
def test_6_a_graceful_stop_that_delivers_leaves_nothing_delayed(
    sent: list[tuple[int, str]], retry: bool
) -> None:
    mesh = Driver()
    boxes = {name: mesh.agent(name) for name in "ab"}
    for i, (delay, name) in enumerate(sent):
        mesh.send(boxes[name], f"m{i}", delay_ms=delay)
    if retry:
        mesh.send(boxes["a"], "retry", priority=1)
        mesh.nack(*mesh.receive(boxes["a"]), delay_ms=HOUR)
    step = mesh.do(Stop(deliver_delayed=True))
    assert step.result == sum(delay > 0 for delay, _ in sent)
    assert [mesh.box(box).delayed for box in boxes.values()] == [0, 0]
    mesh.restart()
    waiting = [*mesh.receive(boxes["a"], 100), *mesh.receive(boxes["b"], 100)]
    assert sorted(ids(waiting)) == sorted(f"m{i}" for i in range(len(sent)))


def test_a_plain_stop_keeps_delayed_messages_for_the_next_start() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m", delay_ms=SECOND)
    assert mesh.do(Stop()).result == 0
    mesh.restart()
    assert mesh.box(box).delayed == 1
    assert mesh.receive(box) == []
    mesh.advance(SECOND)
    assert ids(mesh.receive(box)) == ["m"]


def test_huge_delays_are_accepted() -> None:
    mesh = Driver()
    box = mesh.agent()
    (receipt,) = mesh.send(box, "m", delay_ms=10**15)
    assert receipt.due == mesh.now + 10**15
    mesh.restart()
    assert mesh.box(box).delayed == 1
    assert mesh.force_delayed(box) == 1


def test_what_fell_due_is_told_once_with_its_drift() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m", delay_ms=SECOND)
    step = mesh.advance(SECOND + 7)
    assert step.result == 1
    (arrived,) = step.arrived or []
    assert (arrived.message_id, arrived.forced) == ("m", False)
    assert arrived.arrived_at - arrived.scheduled_at == 7
    assert mesh.advance(SECOND).result == 0
    mesh.agent("b")  # another record: the journal knows that the time has come
    assert mesh.restart().arrived is None


def test_forcing_makes_all_of_a_mailbox_due_now_and_tells_so() -> None:
    mesh = Driver()
    a, b = mesh.agent("a"), mesh.agent("b")
    mesh.send(a, "later", delay_ms=HOUR)
    mesh.send(a, "sooner", delay_ms=SECOND)
    mesh.send(b, "other", delay_ms=SECOND)
    assert mesh.force_delayed(a) == 2
    assert [(x.message_id, x.forced) for x in mesh.step.arrived or ()] == [("later", True), ("sooner", True)]
    assert ids(mesh.receive(a, 5)) == ["later", "sooner"]
    assert mesh.receive(b, 5) == []
    assert mesh.force_delayed() == 1
    assert mesh.force_delayed() == 0


def test_a_message_that_falls_due_goes_to_whoever_waits() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m", delay_ms=SECOND)
    waiter = Waiter("worker", 1)
    mesh.do(Receive(box, waiter))
    assert mesh.kernel.next_event_at == mesh.now + SECOND
    (delivered,) = mesh.advance(SECOND).delivered or []
    assert delivered.waiter is waiter
    assert ids(delivered.deliveries.rows()) == ["m"]


def test_time_that_goes_back_makes_nothing_invisible_again() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m", delay_ms=SECOND)
    mesh.advance(SECOND)
    mesh.now -= HOUR
    (lease,) = mesh.receive(box)
    assert lease.deadline == mesh.now + HOUR + 30 * SECOND
