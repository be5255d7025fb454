"""Every change of an entry's state is in one table, each row of it happens, and the page draws it."""

from __future__ import annotations

from relaymesh.kernel.commands import Complete, Unsubscribe
from relaymesh.kernel.state import State
from relaymesh.kernel.tasks.commands import Abandon, Advance, Finish, Move, Submit
from relaymesh.kernel.tasks.plan import Plan, StepPlan
from tests.kernel.driver import HOUR, MINUTE, SECOND, Driver, replay
from tests.kernel.lifecycle_page import EVENTS, PAGE, page
from tests.kernel.transitions import TABLE, Watch


def test_the_page_is_the_table() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(), "run: python -m tests.kernel.lifecycle_page"


def test_every_event_is_explained_and_nothing_else() -> None:
    assert set(EVENTS) == {event for _, event, _ in TABLE}


def test_every_row_of_the_table_happens() -> None:
    mesh = Driver()
    watch = Watch(mesh.kernel.state)
    box = mesh.agent(max_retries=9)
    mesh.send(box, "m", ttl_ms=0)
    for delay_ms in (0, 5):
        mesh.nack(*mesh.receive(box), delay_ms=delay_ms)
        mesh.advance(SECOND)
    for wait_ms in (0, 5):
        mesh.nack(*mesh.receive(box), until=mesh.now + wait_ms)
        mesh.advance(SECOND)
    mesh.release(*mesh.receive(box))
    mesh.receive(box)
    mesh.advance(HOUR)
    mesh.advance(HOUR)
    mesh.drop(*mesh.receive(box))
    settle_without_a_delivery(mesh, box)
    lose_leases(mesh)
    abandon_and_finish_late(mesh)
    fill_and_unsubscribe(mesh)
    watch.look()
    state = replayed_with_a_lease(mesh, box)
    rows = Watch(state, watch.rows).rows
    mesh.start(state)
    assert rows == TABLE


def settle_without_a_delivery(mesh: Driver, box: str) -> None:
    (receipt,) = mesh.send(box, "done elsewhere")
    mesh.do(Complete(box, receipt.sequence))
    assert mesh.receive(box) == []
    mesh.send(box, "forced", delay_ms=HOUR)
    mesh.force_delayed()
    mesh.ack(*mesh.receive(box))
    mesh.send(box, "fatal")
    mesh.die(box, "fatal")
    mesh.send(box, "expires ready", ttl_ms=1)
    mesh.advance(MINUTE)
    slow = mesh.agent("slow", lease_ms=SECOND, backoff_ms_base=MINUTE)
    mesh.send(slow, "expires delayed", ttl_ms=2 * SECOND)
    mesh.receive(slow)
    mesh.advance(SECOND)
    mesh.advance(MINUTE // 2)


def lose_leases(mesh: Driver) -> None:
    at_once = mesh.agent("at_once", backoff_ms_base=0)
    mesh.send(at_once, "m")
    mesh.receive(at_once)
    mesh.advance(MINUTE)
    mesh.ack(*mesh.receive(at_once))


def abandon_and_finish_late(mesh: Driver) -> None:
    for name, backoff in (("patient", MINUTE), ("hasty", 0)):
        box = mesh.agent(name, backoff_ms_base=backoff)
        mesh.send(box, name)
        mesh.do(Abandon([mesh.receive(box)[0].token]))
    late = mesh.agent("late")
    mesh.do(Submit("t", Plan(name="w", steps=(StepPlan(name="s", mailbox=late),)), b"1", "k", b"r", late))
    mesh.do(Advance("t", [Move(0, "send", b"1")], ["step"]))
    (row,) = mesh.receive(late)
    mesh.nack(row, delay_ms=MINUTE)
    mesh.do(Finish(row.token, b"1"))


def fill_and_unsubscribe(mesh: Driver) -> None:
    subscription = mesh.subscription("t", capacity=2, overflow="dead_letter")
    mesh.publish("t", "ready", priority=1)
    mesh.publish("t", "delayed", delay_ms=HOUR)
    mesh.publish("t", "overflows ready")
    mesh.publish("t", "overflows delayed", delay_ms=HOUR)
    mesh.do(Unsubscribe(subscription))


def replayed_with_a_lease(mesh: Driver, box: str) -> State:
    mesh.send(box, "held")
    mesh.receive(box)
    return replay(mesh.records)
