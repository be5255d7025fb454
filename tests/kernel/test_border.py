"""Only values cross the kernel's border: what it gave out can be kept and bent, and changes nothing in it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from relaymesh.kernel.commands import Ack, Extend, Receive
from relaymesh.kernel.deliveries import Deliveries
from relaymesh.kernel.looks import first_pending, pending_rows, stays_of
from relaymesh.kernel.pending import Pending
from relaymesh.kernel.waiter import Waiter
from tests.kernel.checker import check
from tests.kernel.driver import MINUTE, Driver, ids
from tests.kernel.durable import durable

SHAPES: dict[str, Any] = {
    "one": lambda mesh, box: mesh.send(box, "a"),
    "one in a lane": lambda mesh, box: mesh.send(box, "a", key="k"),
    "a parcel": lambda mesh, box: mesh.send(box, *"abcdef"),
    "two parcels": lambda mesh, box: (mesh.send(box, *"abc"), mesh.send(box, *"def")),
    "singles": lambda mesh, box: [mesh.send(box, name) for name in "abcdef"],
    "lanes": lambda mesh, box: [mesh.send(box, name, key=name if name in "ab" else "k") for name in "abcdef"],
    "a parcel and others": lambda mesh, box: (
        mesh.send(box, *"abc"),
        mesh.send(box, "d", key="k"),
        mesh.send(box, "e"),
        mesh.send(box, "f", key="k"),
    ),
}


def given(mesh: Driver, box: str, **waiter: Any) -> Deliveries:
    delivered = mesh.do(Receive(box, Waiter("worker", 100, **waiter), wait=False)).delivered
    assert delivered is not None
    return delivered[0].deliveries


def bend(value: Any) -> None:
    """Change whatever can be changed."""
    if isinstance(value, list):
        value.reverse()
        value.clear()
    elif isinstance(value, dict | set):
        value.clear()


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize("semantics", ["at_least_once", "at_most_once"])
@pytest.mark.parametrize("shape", list(SHAPES))
def test_what_a_receiver_does_to_its_deliveries_changes_nothing_in_the_kernel(
    shape: str, semantics: str, remote: bool
) -> None:
    mesh = Driver()
    box = mesh.agent(delivery_semantics=semantics)
    SHAPES[shape](mesh, box)
    got = given(mesh, box, remote=remote)
    tokens = list(got.tokens)
    before, records = durable(mesh.kernel.state), msgspec.msgpack.encode(mesh.records)
    for name in Deliveries.__struct_fields__:
        with pytest.raises(AttributeError):
            setattr(got, name, None)
        bend(getattr(got, name))
    check(mesh.kernel.state)
    assert durable(mesh.kernel.state) == before
    assert msgspec.msgpack.encode(mesh.records) == records
    stale = mesh.do(Ack(tokens)).result
    assert stale == (tokens if semantics == "at_most_once" else [])
    check(mesh.kernel.state)
    assert mesh.pending(box) == []


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize("shape", list(SHAPES))
def test_deliveries_say_the_same_whatever_shape_the_messages_stood_in(shape: str, remote: bool) -> None:
    mesh = Driver()
    box = mesh.agent()
    SHAPES[shape](mesh, box)
    entries = {entry.sequence: entry for entry in mesh.box(box).entries.every()}
    got = given(mesh, box, remote=remote)
    rows = got.rows()
    assert sorted(ids(rows)) == sorted(entry.envelope.id for entry in entries.values())
    assert [row.token for row in rows] == list(got.tokens)
    for row in rows:
        entry = entries[row.sequence]
        assert row.envelope is entry.envelope
        assert (row.mailbox, row.attempt, row.settled, row.topic) == (box, 1, False, None)
        assert row.deadline == mesh.now + 30_000
        key = None if row.lane == -1 else got.lane_keys[row.lane]
        assert key == mesh.box(box).lane_key(entry.envelope)
        if remote:
            assert (row.accepted_at, row.priority) == (entry.accepted_at, entry.priority)
            assert row.expires_at == entry.expires_at


@pytest.mark.parametrize("shape", list(SHAPES))
def test_the_first_of_some_deliveries_are_the_same_rows(shape: str) -> None:
    mesh = Driver()
    box = mesh.agent()
    SHAPES[shape](mesh, box)
    got = given(mesh, box, remote=True)
    for count in range(1, len(got) + 1):
        assert got.first(count).rows() == got.rows()[:count]


def test_each_copy_of_a_topic_names_the_topic_it_came_from() -> None:
    mesh = Driver()
    box = mesh.subscription("order.*")
    mesh.publish("order.made", *"abc")
    mesh.publish("order.made", *"de")
    assert list(given(mesh, box).topics or ()) == ["default/order.made"]
    mesh.publish("order.made", *"fg")
    mesh.publish("order.paid", *"hi")
    got = given(mesh, box)
    made, paid = "default/order.made", "default/order.paid"
    assert [row.topic for row in got.rows()] == [made, made, paid, paid]
    assert [row.topic for row in got.first(3).rows()] == [made, made, paid]


def test_an_extension_is_the_kernels_own_and_not_seen_in_what_was_given_out() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, *"abcdef")
    got = given(mesh, box)
    later = mesh.do(Extend(got.tokens[2], MINUTE)).result
    assert list(got.deadlines) == [mesh.now + 30_000] * 6
    mesh.advance(30_000)
    assert [mesh.kernel.holds(token) for token in got.tokens] == [False, False, True, False, False, False]
    mesh.advance(later - mesh.now)
    assert not any(mesh.kernel.holds(token) for token in got.tokens)


def test_records_and_effects_of_a_step_lead_to_nothing_that_the_kernel_has() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, *"abcdef")
    step = mesh.do(Receive(box, Waiter("worker", 100), wait=False))
    assert step.details == [None]
    before = durable(mesh.kernel.state)
    for record in step.records:
        for name in record.__struct_fields__:
            bend(getattr(record, name))
    assert durable(mesh.kernel.state) == before


def test_what_a_look_shows_is_frozen_and_leads_to_nothing_that_the_kernel_has() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, *"abcdef")
    mesh.nack(mesh.receive(box, 6)[0], delay_ms=MINUTE)
    before = durable(mesh.kernel.state)
    for row in first_pending(box, 100, mesh.kernel):
        for name in Pending.__struct_fields__:
            with pytest.raises(AttributeError):
                setattr(row, name, None)
            bend(getattr(row, name))
    for stay in stays_of("a", mesh.kernel):
        bend(stay.pending.failures)
    assert durable(mesh.kernel.state) == before
    assert [len(row.failures or ()) for row in first_pending(box, 100, mesh.kernel)] == [1, 0, 0, 0, 0, 0]


def test_a_look_shows_what_a_message_is_whether_it_stands_in_a_parcel_or_by_itself() -> None:
    """The names that a program reads in a row of `peek`."""
    mesh = Driver()
    box = mesh.subscription("order.*")
    mesh.publish("order.made", *"abc")
    mesh.publish("order.made", "d", delay_ms=MINUTE)
    shown = first_pending(box, 100, mesh.kernel)
    entries = mesh.box(box).entries.every()
    for row, entry in zip(shown, entries, strict=True):
        for name in (*Pending.__struct_fields__, "topic", "size", "scheduled_at", "expires_at"):
            assert getattr(row, name) == getattr(entry, name), name
    rows = list(pending_rows(box, 100, 0, mesh.kernel))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(rows), type=list[Pending]) == rows
    assert {len(row) for row in msgspec.msgpack.decode(msgspec.msgpack.encode(rows))} == {14}
