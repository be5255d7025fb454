"""A subscription that nobody looks after harms itself alone: it overflows, then it is suspended."""

from __future__ import annotations

import pytest

from relaymesh.errors import DeadLettersFull, MailboxFull, NotFound
from relaymesh.kernel.commands import OpenMailbox, Publish, PurgeDeadLetters, Subscribe
from relaymesh.kernel.records import DeadLettered, Published, Resumed, Suspended
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.kernel.step import SubscriptionMoved
from tests.kernel.checker import check
from tests.kernel.driver import Driver, letter, names

BOX = "default/**:s"


def subscribed(**settings: object) -> tuple[Driver, str]:
    mesh = Driver()
    chosen = {"capacity": 1, "overflow": "dead_letter", "dead_letters_max": 4, **settings}
    return mesh, mesh.subscription("**", "s", **chosen)


def fill(mesh: Driver) -> None:
    """One in the mailbox, four dead letters."""
    for name in names("f", 5):
        assert mesh.publish("t", name)[0].targets == 1


def kinds(mesh: Driver) -> list[type]:
    return [type(record) for record in mesh.step.records]


def test_when_its_dead_letters_are_full_it_is_suspended_and_publishes_skip_it() -> None:
    mesh, box = subscribed()
    other = mesh.subscription("t", "other")
    for name in names("f", 5):
        mesh.publish("t", name)
    assert mesh.publish("t", "1", "2")[0].targets == 1
    assert kinds(mesh) == [Suspended, Published]
    assert mesh.step.moved == [SubscriptionMoved(box, "dead_letters_full")]
    assert mesh.publish("t", "3")[0].targets == 1
    assert kinds(mesh) == [Published]
    assert (mesh.pending(box), len(mesh.letters)) == (["f0"], 4)
    assert mesh.box(box).counters.skipped == 3
    assert len(mesh.pending(other)) == 8
    check(mesh.kernel.state)


def test_what_it_holds_can_still_be_received_and_settled() -> None:
    mesh, box = subscribed()
    fill(mesh)
    mesh.publish("t", "skipped")
    mesh.ack(*mesh.receive(box))
    assert mesh.pending(box) == []


def test_it_is_resumed_by_the_first_publish_after_half_of_its_dead_letters_are_gone() -> None:
    mesh, box = subscribed()
    fill(mesh)
    mesh.publish("t", "skipped")
    for letter_ in mesh.letters[:2]:
        mesh.publish("t", f"skipped before {letter_.envelope.id}")
        mesh.do(PurgeDeadLetters([(box, letter_.dead_sequence)]))
    assert mesh.publish("t", "1")[0].targets == 1
    assert kinds(mesh) == [Resumed, Published, DeadLettered]
    assert mesh.step.moved == [SubscriptionMoved(box, "")]
    assert mesh.box(box).counters.skipped == 3


def test_a_redrive_relieves_it_too() -> None:
    mesh, _ = subscribed()
    elsewhere = mesh.agent("elsewhere")
    fill(mesh)
    mesh.publish("t", "skipped")
    mesh.redrive(*mesh.letters[:2], to=elsewhere)
    assert mesh.publish("t", "1")[0].targets == 1


def test_a_publish_that_its_dead_letters_cannot_take_whole_suspends_it_before_any_of_it() -> None:
    mesh, box = subscribed()
    assert mesh.publish("t", *names("m", 6))[0].targets == 0
    assert (mesh.pending(box), mesh.letters) == ([], [])
    assert mesh.kernel.state.unrouted == 6
    assert mesh.publish("t", *names("n", 5))[0].targets == 1, "five fit: it is resumed"
    assert (len(mesh.pending(box)), len(mesh.letters)) == (1, 4)


def test_suspended_it_stays_over_a_restart_and_a_checkpoint() -> None:
    mesh, box = subscribed()
    fill(mesh)
    mesh.publish("t", "skipped")
    for again in (mesh.restart, mesh.restart_from_snapshot):
        again()
        assert mesh.kernel.state.subscriptions.suspended(box) == "dead_letters_full"
        assert mesh.publish("t", f"skipped by {again}")[0].targets == 0
    assert mesh.box(box).counters.skipped == 3


def test_subscribing_again_changes_nothing_and_with_other_settings_opens_it_again() -> None:
    mesh, box = subscribed()
    fill(mesh)
    mesh.publish("t", "skipped")
    same = mesh.box(box).settings
    mesh.do(Subscribe("default/**", box, same))
    assert mesh.step.records == []
    assert mesh.publish("t", "skipped too")[0].targets == 0
    mesh.subscription("**", "s", capacity=1, overflow="dead_letter", dead_letters_max=9)
    assert mesh.publish("t", "1")[0].targets == 1


def test_one_that_rejects_refuses_the_publish_when_its_dead_letters_are_full() -> None:
    mesh, box = subscribed(overflow="reject", capacity=9, dead_letters_max=1)
    mesh.publish("t", "1")
    mesh.die(box, "1")
    with pytest.raises(DeadLettersFull, match=r"\*\*:s"):
        mesh.publish("t", "2")
    assert mesh.step.records == []


def test_a_publish_that_is_refused_suspends_and_resumes_nothing() -> None:
    mesh, _ = subscribed(dead_letters_max=1)
    mesh.subscription("t", "strict", capacity=2)
    mesh.publish("t", "1")
    mesh.publish("t", "2")
    with pytest.raises(MailboxFull):
        mesh.publish("t", "3")
    assert mesh.step.records == []


def test_one_whose_owner_pays_for_too_much_is_suspended_until_half_of_it_is_gone() -> None:
    mesh = Driver()
    mesh.do(Subscribe("default/**", BOX, MailboxSettings(), "default/s", 10_000))
    published = [mesh.do(Publish("default/t", [letter(str(i), b"x" * 1_000)])) for i in range(6)]
    assert [step.result[0].targets for step in published] == [1, 1, 1, 0, 0, 0]
    assert mesh.kernel.state.subscriptions.suspended(BOX) == "over_budget"
    mesh.ack(*mesh.receive(BOX, 3))
    assert mesh.publish("t", "again")[0].targets == 1
    check(mesh.kernel.state)


# -- who may refuse everybody's publishes


def ask(mesh: Driver, **settings: object) -> str:
    mesh.do(Subscribe("default/**", BOX, MailboxSettings(**settings), may_reject=False))  # type: ignore[arg-type]
    return mesh.box(BOX).settings.overflow


def test_who_may_not_reject_gets_a_subscription_that_overflows() -> None:
    mesh = Driver()
    assert ask(mesh, capacity=1) == "dead_letter"
    for name in names("m", 5):
        mesh.publish("t", name)
    assert len(mesh.letters) == 4


def test_one_that_rejects_already_goes_on_unless_something_else_changes() -> None:
    mesh = Driver()
    mesh.subscription("**", "s", capacity=50)
    assert ask(mesh, capacity=50) == "reject"
    assert mesh.step.records == []
    assert ask(mesh, capacity=1) == "dead_letter"


def test_opening_its_mailbox_is_no_way_around() -> None:
    mesh = Driver()
    with pytest.raises(NotFound):
        mesh.do(OpenMailbox(BOX, MailboxSettings(capacity=1), may_reject=False))
    ask(mesh, capacity=5)
    mesh.do(OpenMailbox(BOX, MailboxSettings(capacity=1), may_reject=False))
    assert (mesh.box(BOX).settings.capacity, mesh.box(BOX).settings.overflow) == (1, "dead_letter")
