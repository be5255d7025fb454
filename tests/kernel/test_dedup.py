"""Dedup at admission (DESIGN promise 2): the same id to the same target is the same message."""

from __future__ import annotations

import pytest

from relaymesh.errors import Conflict
from relaymesh.kernel.commands import Publish, Send
from relaymesh.kernel.dedup import WINDOW_MS, Admitted, Seen, digest_of
from tests.kernel.driver import HOUR, SECOND, Driver, letter, names


def test_the_same_id_to_the_same_target_gets_the_original_receipt_and_no_second_entry() -> None:
    mesh = Driver()
    box = mesh.agent()
    (first,) = mesh.send(box, "m", delay_ms=SECOND)
    mesh.now += 7
    (again,) = mesh.send(box, "m")
    assert (again.sequence, again.due, again.targets) == (first.sequence, first.due, first.targets)
    assert (first.duplicate, again.duplicate) == (False, True)
    assert mesh.pending(box) == ["m"]
    assert mesh.step.records == []


def test_a_duplicate_receipt_waits_for_what_it_saw() -> None:
    mesh = Driver()
    box = mesh.agent()
    (first,) = mesh.send(box, "m")
    mesh.send(box, "m")
    assert mesh.step.synced > first.sequence


def test_the_same_id_with_other_content_is_a_conflict() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m", content=b"one")
    with pytest.raises(Conflict, match="'m' was already sent"):
        mesh.send(box, "m", content=b"two")
    mesh.ack(*mesh.receive(box))
    with pytest.raises(Conflict, match="'m' was already sent"):
        mesh.send(box, "m", content=b"two")


@pytest.mark.parametrize("how", ["restart", "restart_from_snapshot"])
@pytest.mark.parametrize("count", [1, 12], ids=["alone", "in a parcel"])
def test_the_id_of_another_sender_is_a_conflict_also_after_a_restart(how: str, count: int) -> None:
    mesh = Driver()
    box = mesh.agent()
    mine = list(names("m", count))
    mesh.send(box, *mine, sender="default/planner")
    with pytest.raises(Conflict, match="'m0' was already sent to default/a by default/planner"):
        mesh.send(box, "m0", sender="default/tester")
    mesh.ack(*mesh.receive(box, count))
    for _ in range(2):
        with pytest.raises(Conflict, match="by default/planner"):
            mesh.send(box, "new", mine[-1], sender="default/tester")
        assert mesh.pending(box) == []
        assert mesh.send(box, mine[-1], sender="default/planner")[0].duplicate
        getattr(mesh, how)()


def test_a_parcel_of_two_senders_remembers_who_sent_what() -> None:
    mesh = Driver()
    box = mesh.agent()
    senders = ["default/a", "default/b"] * 4
    batch = [letter(f"m{i}", sender=sender) for i, sender in enumerate(senders)]
    mesh.do(Send([(box, batch)]))
    mesh.ack(*mesh.receive(box, 8))
    mesh.restart_from_snapshot()
    assert all(receipt.duplicate for receipt in mesh.do(Send([(box, batch)])).result)
    with pytest.raises(Conflict, match="by default/b"):
        mesh.do(Send([(box, [letter("m3", sender="default/a")])]))


def test_two_senders_of_one_id_in_one_command_are_refused_whole() -> None:
    mesh = Driver()
    box = mesh.agent()
    with pytest.raises(Conflict, match="by default/a"):
        mesh.do(Send([(box, [letter("m", sender="default/a"), letter("m", sender="default/b")])]))
    assert mesh.pending(box) == []


def test_an_id_whose_sender_was_not_kept_is_compared_by_content_alone() -> None:
    """As in checkpoints and stores of older versions."""
    mesh = Driver()
    box = mesh.agent()
    known = {(box, "m"): Seen(5, mesh.now, digest_of(b"x"))}
    assert mesh.do(Send([(box, [letter("m", sender="default/b")])], known=known)).result[0].duplicate


def test_the_senders_of_what_is_remembered_are_kept_once() -> None:
    mesh = Driver()
    box = mesh.agent()
    for i in range(20):
        mesh.send(box, f"m{i}", sender="/".join(["default", "planner"]))
    mesh.ack(*mesh.receive(box, 20))
    mesh.restart_from_snapshot()
    seen = [found for _, _, found in mesh.kernel.state.admitted if isinstance(found, Seen)]
    assert len(seen) == 20
    assert len({id(each.sender) for each in seen}) == 1


def test_the_same_id_to_another_target_is_another_message() -> None:
    mesh = Driver()
    a, b = mesh.agent("a"), mesh.agent("b")
    mesh.send(a, "m", content=b"one")
    (receipt,) = mesh.send(b, "m", content=b"two")
    assert not receipt.duplicate


def test_the_same_id_twice_in_one_command_is_one_message() -> None:
    mesh = Driver()
    a, b = mesh.agent("a"), mesh.agent("b")
    groups = [(b, [letter("m"), letter("m")]), (a, [letter("m")]), (b, [letter("n"), letter("m")])]
    receipts = mesh.do(Send(groups)).result
    assert [receipt.duplicate for receipt in receipts] == [False, True, False, False, True]
    first, twin, other, _, third = receipts
    assert first.sequence == twin.sequence == third.sequence != other.sequence
    assert (mesh.pending(a), mesh.pending(b)) == (["m"], ["m", "n"])


def test_a_command_that_contradicts_itself_is_refused_whole() -> None:
    mesh = Driver()
    a = mesh.agent("a")
    with pytest.raises(Conflict):
        mesh.do(Send([(a, [letter("m", b"one")]), (a, [letter("m", b"two")])]))
    assert mesh.pending(a) == []


def test_a_batch_of_old_and_new_answers_each_in_its_place() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "b")
    receipts = mesh.send(box, "a", "b", "c")
    assert [(x.id, x.duplicate) for x in receipts] == [("a", False), ("b", True), ("c", False)]
    assert mesh.pending(box) == ["b", "a", "c"]


@pytest.mark.parametrize("how", ["restart", "restart_from_snapshot"])
@pytest.mark.parametrize("settled", [False, True])
def test_a_duplicate_after_a_restart_is_still_one(how: str, settled: bool) -> None:
    mesh = Driver()
    box = mesh.agent()
    (first,) = mesh.send(box, "m")
    if settled:
        mesh.ack(*mesh.receive(box))
    getattr(mesh, how)()
    (again,) = mesh.send(box, "m")
    assert (again.sequence, again.duplicate) == (first.sequence, True)


def test_a_duplicate_of_a_dead_letter_is_one_and_its_redrive_is_outside_dedup() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    mesh.die(box, "m")
    assert mesh.send(box, "m")[0].duplicate
    mesh.redrive(*mesh.letters)
    assert mesh.pending(box) == ["m"]
    assert mesh.send(box, "m")[0].duplicate
    mesh.ack(*mesh.receive(box))
    assert mesh.send(box, "m")[0].duplicate


def test_an_id_is_remembered_for_24_hours_from_its_acceptance() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    mesh.ack(*mesh.receive(box))
    mesh.now += WINDOW_MS - 1
    assert mesh.send(box, "m")[0].duplicate
    mesh.now += 1
    assert not mesh.send(box, "m")[0].duplicate


def test_a_message_that_still_waits_is_known_however_old_it_is() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m", ttl_ms=0)
    mesh.now += 10 * WINDOW_MS
    assert mesh.send(box, "m")[0].duplicate


def test_an_id_admitted_again_after_the_window_is_known_in_a_snapshot_too() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    mesh.ack(*mesh.receive(box))
    mesh.now += WINDOW_MS
    (second,) = mesh.send(box, "m")
    mesh.restart_from_snapshot()
    (again,) = mesh.send(box, "m")
    assert (again.sequence, again.duplicate) == (second.sequence, True)


def test_the_receipt_of_a_forced_message_still_names_its_scheduled_time() -> None:
    mesh = Driver()
    box = mesh.agent()
    (first,) = mesh.send(box, "m", delay_ms=HOUR)
    mesh.force_delayed()
    assert mesh.send(box, "m")[0].due == first.due
    mesh.ack(*mesh.receive(box))
    assert mesh.send(box, "m")[0].due == first.due


def test_a_publish_is_known_by_its_topic() -> None:
    mesh = Driver()
    mesh.subscription("order.*", "one")
    box = mesh.subscription("order.new", "two")
    (first,) = mesh.publish("order.new", "m")
    mesh.ack(*mesh.receive(box))
    (again,) = mesh.publish("order.new", "m")
    assert (again.sequence, again.duplicate, again.targets) == (first.sequence, True, 2)
    assert not mesh.publish("order.old", "m")[0].duplicate
    with pytest.raises(Conflict):
        mesh.publish("order.new", "m", content=b"other")


def test_what_memory_forgot_the_store_answers() -> None:
    mesh = Driver()
    box = mesh.agent()
    known = {(box, "m"): Seen(5, mesh.now, digest_of(b"x"), 1, 0)}
    (receipt,) = mesh.do(Send([(box, [letter("m")])], known=known)).result
    assert (receipt.sequence, receipt.duplicate) == (5, True)
    with pytest.raises(Conflict):
        mesh.do(Send([(box, [letter("m", b"other")])], known=known))
    old = {("topic:default/t", "m"): Seen(6, mesh.now - WINDOW_MS, digest_of(b"x"))}
    assert not mesh.do(Publish("default/t", [letter("m")], known=old)).result[0].duplicate


def test_more_than_100_000_other_ids_later_it_is_still_a_duplicate() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    mesh.ack(*mesh.receive(box))
    for i in range(101):
        mesh.do(Send([(box, [letter(f"{i}.{j}") for j in range(1_000)])], minted=True))
        mesh.ack(*mesh.receive(box, 1_000))
    assert mesh.send(box, "m")[0].duplicate


def remember(admitted: Admitted, count: int, *, at: int = 0) -> None:
    for i in range(count):
        admitted.remember("box", f"m{i}", Seen(i, at + i, b""))


def test_ids_are_forgotten_only_beyond_the_newest_and_only_once_the_store_has_them() -> None:
    admitted = Admitted(remembered_max=3)
    remember(admitted, 10)
    admitted.forget(stored_through=0, now=20)
    assert len(admitted.of("box")) == 10
    admitted.forget(stored_through=4, now=20)
    assert list(admitted.of("box")) == list(names("m", 10))[4:]
    admitted.forget(stored_through=10, now=20)
    assert list(admitted.of("box")) == ["m7", "m8", "m9"]


def test_the_horizon_says_which_ids_memory_may_have_forgotten() -> None:
    admitted = Admitted(remembered_max=3)
    remember(admitted, 10, at=100)
    assert admitted.horizon == -1
    admitted.forget(stored_through=10, now=200)
    assert admitted.horizon == 106


def test_ids_past_the_window_are_forgotten_without_moving_the_horizon() -> None:
    admitted = Admitted()
    remember(admitted, 10)
    admitted.forget(stored_through=0, now=WINDOW_MS + 4)
    assert list(admitted.of("box")) == list(names("m", 10))[5:]
    assert admitted.horizon == -1


@pytest.mark.parametrize("how", ["restart", "restart_from_snapshot"])
def test_after_a_restart_the_horizon_is_no_later_than_what_is_in_memory(how: str) -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.kernel.state.admitted.remembered_max = 1
    for id in names("m", 3):
        mesh.now += 1
        mesh.send(box, id)
        mesh.ack(*mesh.receive(box))
    mesh.kernel.state.admitted.forget(mesh.kernel.state.sequence, mesh.now)
    getattr(mesh, how)()
    admitted = mesh.kernel.state.admitted
    forgotten = [id for id in names("m", 3) if id not in admitted.of(box)]
    assert (admitted.horizon == mesh.now - 1) == bool(forgotten)
    assert mesh.send(box, "m2")[0].duplicate
