"""Topics: one record whatever the fan-out, each subscription for itself (DESIGN promise 10)."""

from __future__ import annotations

import pytest

from relaymesh.errors import InvalidEnvelope, MailboxFull, NotFound
from relaymesh.kernel.address import (
    agent_address,
    pattern_address,
    pattern_matches,
    subscription_address,
    topic_address,
)
from relaymesh.kernel.commands import Forgo, Subscribe, Unsubscribe
from relaymesh.kernel.records import DeadLettered, Published
from relaymesh.kernel.settings import MailboxSettings
from tests.kernel.driver import SECOND, Driver, ids, names


def test_a_publish_is_one_record_whatever_the_fan_out() -> None:
    mesh = Driver()
    boxes = [mesh.subscription("order.*", f"s{i}") for i in range(20)]
    receipts = mesh.publish("order.new", "1", "2")
    assert [type(record) for record in mesh.step.records] == [Published]
    assert [receipt.targets for receipt in receipts] == [20, 20]
    assert all(mesh.pending(box) == ["1", "2"] for box in boxes)


def test_each_subscription_settles_its_own_copy() -> None:
    mesh = Driver()
    one, two = mesh.subscription("t", "one"), mesh.subscription("t", "two")
    mesh.publish("t", "m")
    mesh.ack(*mesh.receive(one))
    mesh.nack(*mesh.receive(two), delay_ms=SECOND)
    mesh.restart()
    assert (mesh.pending(one), mesh.pending(two)) == ([], ["m"])
    mesh.advance(SECOND)
    assert mesh.receive(two)[0].attempt == 2


def test_a_publish_nobody_subscribes_to_is_counted() -> None:
    mesh = Driver()
    receipts = mesh.publish("t", "1", "2")
    assert [receipt.targets for receipt in receipts] == [0, 0]
    assert mesh.kernel.state.unrouted == 2
    mesh.restart()
    assert mesh.kernel.state.unrouted == 2


def test_a_subscription_gets_what_is_published_from_then_on() -> None:
    mesh = Driver()
    mesh.publish("t", "before")
    box = mesh.subscription("t")
    mesh.publish("t", "after")
    assert mesh.pending(box) == ["after"]


def test_subscribing_again_changes_nothing_or_the_settings() -> None:
    mesh = Driver()
    box = mesh.subscription("t")
    mesh.publish("t", "m")
    mesh.subscription("t")
    assert mesh.step.records == []
    mesh.subscription("t", capacity=5)
    assert mesh.box(box).settings.capacity == 5
    assert mesh.pending(box) == ["m"]


def test_a_mailbox_that_exists_already_is_subscribed_all_the_same() -> None:
    mesh = Driver()
    box = mesh.agent("plain")
    mesh.do(Subscribe("default/t", box, MailboxSettings()))
    mesh.publish("t", "m")
    assert mesh.pending(box) == ["m"]


def test_a_full_subscription_refuses_the_publish_whole_by_default() -> None:
    mesh = Driver()
    full, other = mesh.subscription("t", "full", capacity=1), mesh.subscription("t", "other")
    mesh.publish("t", "1")
    with pytest.raises(MailboxFull, match="t:full"):
        mesh.publish("t", "2")
    assert mesh.step.records == []
    assert (mesh.pending(full), mesh.pending(other)) == (["1"], ["1"])


def test_a_full_subscription_that_overflows_dead_letters_for_itself_alone() -> None:
    mesh = Driver()
    full = mesh.subscription("t", "full", capacity=2, overflow="dead_letter")
    other = mesh.subscription("t", "other")
    mesh.publish("t", *names("m", 4))
    assert [type(record) for record in mesh.step.records] == [Published, DeadLettered]
    assert mesh.pending(full) == ["m0", "m1"]
    assert len(mesh.pending(other)) == 4
    assert [(x.mailbox, x.envelope.id, x.reason) for x in mesh.letters] == [
        (full, "m2", "mailbox_full"),
        (full, "m3", "mailbox_full"),
    ]
    assert all(ended.alert for ended in mesh.ended)


def test_a_flood_of_one_topic_does_not_touch_another() -> None:
    mesh = Driver()
    mesh.subscription("flood", "s", capacity=1)
    box = mesh.subscription("calm", "s")
    mesh.publish("flood", "1")
    with pytest.raises(MailboxFull):
        mesh.publish("flood", "2")
    mesh.publish("calm", "m")
    assert ids(mesh.receive(box)) == ["m"]


def test_unsubscribing_drops_and_counts_what_was_held_and_tells_the_sender() -> None:
    mesh = Driver()
    sender, box = mesh.agent("sender"), mesh.subscription("t")
    mesh.publish("t", "leased", "ready", sender=sender, requires_ack=True)
    mesh.publish("t", "delayed", delay_ms=SECOND)
    mesh.receive(box)
    assert mesh.do(Unsubscribe(box)).result == 3
    assert [(x.message_id, x.final_state) for x in mesh.ended] == [
        ("leased", "dropped"),
        ("ready", "dropped"),
        ("delayed", "dropped"),
    ]
    assert [lease.envelope.type for lease in mesh.receive(sender, 5)] == ["nack", "nack"]
    assert mesh.publish("t", "m")[0].targets == 0
    mesh.restart()
    assert box not in mesh.kernel.state.mailboxes


def test_whoever_waits_for_a_subscription_that_ends_is_given_nothing() -> None:
    mesh = Driver()
    box = mesh.subscription("t")
    waiter = mesh.wait(box)
    (delivered,) = mesh.do(Unsubscribe(box)).delivered or []
    assert delivered.waiter is waiter
    assert delivered.deliveries.rows() == []
    assert mesh.do(Forgo(box, waiter)).result is False, "it has its answer"


def test_the_mailbox_of_an_agent_cannot_be_unsubscribed() -> None:
    mesh = Driver()
    box = mesh.agent()
    with pytest.raises(NotFound, match="there is no subscription"):
        mesh.do(Unsubscribe(box))


@pytest.mark.parametrize("how", ["restart", "restart_from_snapshot"])
def test_subscriptions_are_durable(how: str) -> None:
    mesh = Driver()
    box = mesh.subscription("order.*", capacity=7)
    getattr(mesh, how)()
    mesh.publish("order.new", "m")
    assert mesh.pending(box) == ["m"]
    assert mesh.box(box).settings.capacity == 7


@pytest.mark.parametrize(
    ("pattern", "topic", "covered"),
    [
        ("order.new", "order.new", True),
        ("order.new", "order.old", False),
        ("order.*", "order.new", True),
        ("order.*", "order", False),
        ("order.*", "order.new.eu", False),
        ("*.new", "order.new", True),
        ("*", "order", True),
        ("*", "order.new", False),
        ("order.**", "order.new", True),
        ("order.**", "order.new.eu", True),
        ("order.**", "order", False),
        ("**", "order.new.eu", True),
        ("a.*.**", "a.b", False),
        ("a.*.**", "a.b.c", True),
    ],
)
def test_a_star_is_one_word_and_two_at_the_end_are_the_rest(pattern: str, topic: str, covered: bool) -> None:
    assert pattern_matches(pattern_address(pattern), topic_address(topic)) is covered


def test_a_pattern_covers_topics_of_its_own_namespace_only() -> None:
    assert not pattern_matches(pattern_address("one/**"), topic_address("two/t"))
    assert pattern_matches(pattern_address("one/**"), topic_address("one/t"))


@pytest.mark.parametrize("bad", ["", "a..b", ".a", "a.", "a b", "a.*", "a/b/c", "/a", "x" * 129, "a:b"])
def test_a_malformed_topic_is_refused(bad: str) -> None:
    with pytest.raises(InvalidEnvelope):
        topic_address(bad)


@pytest.mark.parametrize("bad", ["", "**.a", "a.**.b", "a*", "a.**b", "-/a"])
def test_a_malformed_pattern_is_refused(bad: str) -> None:
    with pytest.raises(InvalidEnvelope):
        pattern_address(bad)


@pytest.mark.parametrize("bad", ["", "a b", "a:b", "-a", "a/", "ns//a", "ü/a", "a\n"])
def test_a_malformed_agent_name_is_refused(bad: str) -> None:
    with pytest.raises(InvalidEnvelope):
        agent_address(bad)


def test_a_plain_name_is_of_the_default_namespace() -> None:
    assert agent_address("coder") == "default/coder"
    assert agent_address("team/coder") == "team/coder"
    assert subscription_address("order.*", "billing") == "default/order.*:billing"
