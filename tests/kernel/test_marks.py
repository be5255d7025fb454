"""What must be written, and what synced, before an effect leaves (DESIGN section 7, release)."""

from __future__ import annotations

import pytest

from relaymesh.errors import LeaseLost
from relaymesh.kernel.commands import Ack, Extend, ForceDelayed, Nack, Reprioritise, Send, Settle, Tick
from relaymesh.kernel.records import Acked, Granted
from tests.kernel.driver import MINUTE, SECOND, Driver, letter


def marks(mesh: Driver) -> tuple[int, int]:
    return mesh.step.written, mesh.step.synced


def test_a_receipt_waits_for_the_sync_of_its_message() -> None:
    mesh = Driver()
    box = mesh.agent()
    (receipt,) = mesh.send(box, "m")
    assert marks(mesh) == (receipt.sequence + 1, receipt.sequence + 1)


def test_a_delivery_waits_for_its_grant_written_and_its_message_synced() -> None:
    mesh = Driver()
    box = mesh.agent()
    (receipt,) = mesh.send(box, "m")
    mesh.receive(box)
    (delivered,) = mesh.step.delivered or []
    assert isinstance(mesh.step.records[-1], Granted)
    assert delivered.written == mesh.kernel.state.sequence
    assert delivered.synced == receipt.sequence + 1


def test_a_delivery_to_one_who_waited_has_the_same_marks() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.wait(box)
    (receipt,) = mesh.send(box, "m")
    (delivered,) = mesh.step.delivered or []
    assert (delivered.written, delivered.synced) == (mesh.kernel.state.sequence, receipt.sequence + 1)
    assert mesh.step.synced == receipt.sequence + 1, "the receipt does not wait for the grant"


def test_the_delivery_of_a_retry_waits_for_the_sync_of_its_return() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    mesh.nack(*mesh.receive(box), delay_ms=0)
    returned = mesh.kernel.state.sequence - 1
    mesh.receive(box)
    (delivered,) = mesh.step.delivered or []
    assert delivered.synced == returned + 1


def test_the_delivery_of_a_forced_message_waits_for_the_sync_of_the_forcing() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m", delay_ms=MINUTE)
    mesh.do(ForceDelayed())
    forced = mesh.kernel.state.sequence - 1
    mesh.receive(box)
    assert [delivered.synced for delivered in mesh.step.delivered or ()] == [forced + 1]


def test_at_most_once_is_settled_and_synced_before_it_is_delivered() -> None:
    mesh = Driver()
    box = mesh.agent(delivery_semantics="at_most_once")
    mesh.send(box, "m")
    (lease,) = mesh.receive(box)
    (delivered,) = mesh.step.delivered or []
    assert [type(record) for record in mesh.step.records] == [Granted, Acked]
    assert delivered.synced == delivered.written == mesh.kernel.state.sequence
    assert mesh.pending(box) == []
    assert mesh.ack(lease) == [lease.token], "there is nothing left to settle"
    mesh.restart()
    assert mesh.receive(box) == []


def test_exactly_once_is_a_label_for_at_least_once() -> None:
    mesh = Driver()
    box = mesh.agent(delivery_semantics="exactly_once")
    mesh.send(box, "m")
    mesh.receive(box)
    mesh.restart()
    assert mesh.receive(box)[0].attempt == 2


def test_an_ack_answers_after_the_write() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    mesh.ack(*mesh.receive(box))
    assert marks(mesh) == (mesh.kernel.state.sequence, 0)


def test_a_retry_answers_after_the_write_and_a_dead_letter_after_the_sync() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    mesh.nack(*mesh.receive(box), delay_ms=0)
    assert marks(mesh) == (mesh.kernel.state.sequence, 0)
    mesh.nack(*mesh.receive(box), code="fatal")
    assert marks(mesh) == (mesh.kernel.state.sequence, mesh.kernel.state.sequence)


def test_a_settle_that_sends_answers_after_the_sync() -> None:
    mesh = Driver()
    box, other = mesh.agent("a"), mesh.agent("b")
    mesh.send(box, "m")
    (lease,) = mesh.receive(box)
    step = mesh.do(Settle(lease.token, [(other, [letter("next")])]))
    assert marks(mesh) == (mesh.kernel.state.sequence, mesh.kernel.state.sequence)
    assert [receipt.id for receipt in step.result] == ["next"]
    assert (mesh.pending(box), mesh.pending(other)) == ([], ["next"])


def test_a_settle_whose_send_is_refused_settles_nothing() -> None:
    mesh = Driver()
    box, full = mesh.agent("a"), mesh.agent("b", capacity=1)
    mesh.send(full, "full")
    mesh.send(box, "m")
    (lease,) = mesh.receive(box)
    step = mesh.kernel.step(Settle(lease.token, [(full, [letter("next")])]), mesh.now)
    assert step.error is not None
    assert step.records == []
    assert mesh.ack(lease) == []


def test_what_time_did_on_the_way_does_not_delay_the_answer() -> None:
    """A lease of somebody else runs out into a dead letter in the step of an ack."""
    mesh = Driver()
    box = mesh.agent(max_retries=0)
    mesh.send(box, "silent", priority=1)
    mesh.send(box, "done", priority=4)
    _, done = mesh.receive(box, 2)
    mesh.now += 10 * SECOND
    step = mesh.do(Ack([done.token]))
    assert len(mesh.letters) == 1
    assert step.synced == 0


def test_a_refusal_waits_for_what_it_saw_to_be_written() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    (lease,) = mesh.receive(box)
    mesh.ack(lease)
    for command in (Nack(lease.token), Extend(lease.token, 5)):
        step = mesh.kernel.step(command, mesh.now)
        assert isinstance(step.error, LeaseLost)
        assert step.written == mesh.kernel.state.sequence


def test_an_answer_that_nothing_came_waits_for_no_sync() -> None:
    mesh = Driver()
    box = mesh.agent()
    assert mesh.receive(box) == []
    assert mesh.step.synced == 0
    assert mesh.do(Tick()).synced == 0


@pytest.mark.parametrize("command", [Reprioritise("default/a", None, 1), ForceDelayed("default/a")])
def test_a_change_of_pending_messages_answers_after_the_sync(command: Reprioritise | ForceDelayed) -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m", delay_ms=5)
    assert mesh.do(command).result == 1
    assert mesh.step.synced == mesh.kernel.state.sequence


def test_a_send_that_brings_nothing_new_writes_nothing() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    assert mesh.do(Send([(box, [letter("m")])])).records == []
