"""Order (DESIGN promise 3): a lane is first in, first out, for one holder at a time, across retries."""

from __future__ import annotations

import pytest

from relaymesh.kernel.commands import Expect, OpenMailbox, PurgeDeadLetters, Reprioritise, Unexpect
from relaymesh.kernel.settings import MailboxSettings
from tests.kernel.driver import MINUTE, SECOND, Driver, ids, names, replay
from tests.kernel.durable import durable


def test_a_lane_is_the_ordering_key_else_the_task_else_none() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "k1", key="k", task="t")
    mesh.send(box, "k2", key="k")
    mesh.send(box, "t1", task="t")
    mesh.send(box, "t2", task="t")
    mesh.send(box, "free1")
    mesh.send(box, "free2")
    first = [mesh.receive(box, holder=f"worker {i}") for i in range(5)]
    assert [ids(taken) for taken in first] == [["k1"], ["t1"], ["free1"], ["free2"], []]


def test_a_key_and_a_task_of_the_same_name_are_two_lanes() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "by key", key="x")
    mesh.send(box, "by task", task="x")
    assert ids(mesh.receive(box) + mesh.receive(box)) == ["by key", "by task"]


def test_only_one_holder_at_a_time_has_something_of_a_lane() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "1", "2", key="k")
    (first,) = mesh.receive(box, 1, "one")
    assert mesh.receive(box, 5, "two") == []
    mesh.ack(first)
    assert ids(mesh.receive(box, 5, "two")) == ["2"]


def test_a_holder_may_be_given_a_run_of_a_lane() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, *names("m", 5), key="k")
    run = mesh.receive(box, 3, "one")
    assert ids(run) == ["m0", "m1", "m2"]
    mesh.ack(run[0], run[1])
    assert mesh.receive(box, 5, "two") == [], "the run is not back yet"
    mesh.ack(run[2])
    assert ids(mesh.receive(box, 5, "two")) == ["m3", "m4"]


def test_a_retry_holds_its_lane() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "1", "2", key="k")
    mesh.nack(*mesh.receive(box), delay_ms=10 * SECOND)
    mesh.advance(9 * SECOND)
    assert mesh.receive(box, 5) == []
    mesh.advance(SECOND)
    assert ids(mesh.receive(box, 5)) == ["1", "2"]


@pytest.mark.parametrize("failed", [0, 1, 2])
def test_a_nack_returns_the_later_ones_of_the_run_unburned_and_in_order(failed: int) -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, *names("m", 4), key="k")
    run = mesh.receive(box, 3)
    mesh.nack(run[failed], delay_ms=SECOND)
    for lease in run[:failed]:
        mesh.ack(lease)
    mesh.advance(SECOND)
    again = mesh.receive(box, 4)
    assert ids(again) == list(names("m", 4))[failed:]
    assert [lease.attempt for lease in again] == [2] + [1] * (len(again) - 1)


def test_an_expired_lease_returns_the_later_ones_of_the_run_unburned_and_in_order() -> None:
    mesh = Driver()
    box = mesh.agent(lease_ms=SECOND)
    mesh.send(box, "1", "2", "3", key="k")
    mesh.receive(box, 3)
    mesh.advance(SECOND)
    mesh.advance(MINUTE)
    again = mesh.receive(box, 3)
    assert [(lease.envelope.id, lease.attempt) for lease in again] == [("1", 2), ("2", 1), ("3", 1)]


def test_a_released_delivery_takes_the_rest_of_its_run_along() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "1", "2", "3", key="k")
    run = mesh.receive(box, 3)
    mesh.release(run[1])
    mesh.ack(run[0])
    assert ids(mesh.receive(box, 3)) == ["2", "3"]


def test_a_delayed_message_joins_its_lane_when_it_is_due() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "delayed", key="k", delay_ms=SECOND)
    mesh.send(box, "1", key="k")
    mesh.advance(SECOND)
    mesh.send(box, "2", key="k")
    assert ids(mesh.receive(box, 3)) == ["1", "delayed", "2"]


def test_a_message_forced_in_the_millisecond_of_another_keeps_acceptance_order_across_a_restart() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "accepted first", key="k", delay_ms=SECOND)
    mesh.send(box, "accepted second", key="k")
    mesh.force_delayed()
    order = ["accepted first", "accepted second"]
    run = mesh.receive(box, 2)
    assert ids(run) == order
    mesh.release(*run)
    mesh.restart()
    assert ids(mesh.receive(box, 2)) == order


def test_after_a_dead_letter_the_lane_goes_on() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "dead", "next", key="k")
    mesh.die(box, "dead")
    assert ids(mesh.receive(box)) == ["next"]


def test_a_dead_letter_in_a_run_leaves_the_later_ones_with_their_holder() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "1", "2", key="k")
    first, second = mesh.receive(box, 2)
    mesh.nack(first, code="fatal")
    assert mesh.ack(second) == []


def test_a_halted_lane_stands_still_until_its_letter_is_redriven() -> None:
    mesh = Driver()
    box = mesh.agent(halt_on_dead_letter=True)
    mesh.send(box, "dead", "waits", key="k")
    mesh.send(box, "elsewhere", key="other")
    first = mesh.receive(box, 3)
    mesh.nack(first[0], code="fatal")
    assert mesh.ack(first[1]) == [first[1].token], "the rest of the run came back"
    assert mesh.receive(box, 3) == []
    mesh.redrive(*mesh.letters)
    again = mesh.receive(box, 3)
    assert [(lease.envelope.id, lease.attempt) for lease in again] == [("waits", 1), ("dead", 1)]


def test_a_halted_lane_stands_still_until_each_of_its_letters_is_dealt_with() -> None:
    mesh = Driver()
    box = mesh.agent(halt_on_dead_letter=True)
    mesh.send(box, "dead", "waits", key="k")
    mesh.send(box, "expires", key="k", ttl_ms=1)
    mesh.nack(*mesh.receive(box), code="fatal")
    mesh.advance(MINUTE)
    dead, expired = mesh.letters
    mesh.do(PurgeDeadLetters([(box, dead.dead_sequence)]))
    assert mesh.receive(box, 3) == []
    mesh.do(PurgeDeadLetters([(box, expired.dead_sequence)]))
    assert ids(mesh.receive(box, 3)) == ["waits"]


def test_purging_a_letter_redriven_long_ago_resumes_nothing() -> None:
    mesh = Driver()
    box = mesh.agent(halt_on_dead_letter=True)
    mesh.send(box, "m", key="k")
    mesh.die(box, "m")
    mesh.redrive(*mesh.letters)
    mesh.send(box, "waits", key="k")
    mesh.nack(*mesh.receive(box), code="fatal")
    redriven = mesh.letters[0]
    mesh.do(PurgeDeadLetters([(box, redriven.dead_sequence)]))
    assert mesh.receive(box, 3) == []


@pytest.mark.parametrize("how", ["restart", "restart_from_snapshot"])
def test_a_halted_lane_stays_halted_after_a_restart(how: str) -> None:
    mesh = Driver()
    box = mesh.agent(halt_on_dead_letter=True)
    mesh.send(box, "dead", "waits", key="k")
    mesh.nack(*mesh.receive(box), code="fatal")
    getattr(mesh, how)()
    assert mesh.receive(box, 2) == []
    mesh.redrive(*mesh.letters)
    assert ids(mesh.receive(box, 2)) == ["waits", "dead"]


def test_nothing_of_a_halting_lane_is_delivered_past_an_entry_that_expired() -> None:
    mesh = Driver()
    box = mesh.agent(halt_on_dead_letter=True)
    mesh.send(box, "expires", key="k", ttl_ms=1)
    mesh.send(box, "waits", key="k")
    mesh.now += 1
    assert mesh.receive(box, 5) == []
    assert [letter.envelope.id for letter in mesh.letters] == ["expires"]


def test_a_lane_survives_the_expiry_of_its_head_while_the_next_is_handed_out() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "expires", key="k", ttl_ms=1)
    mesh.send(box, "1", key="k")
    mesh.now += 1
    assert ids(mesh.receive(box, 2, "one")) == ["1"]
    mesh.send(box, "2", key="k")
    assert mesh.receive(box, 2, "two") == [], "the lane is out with one"


def test_a_lane_competes_with_its_best_waiting_priority() -> None:
    mesh = Driver()
    box = mesh.agent(schedule="strict")
    mesh.send(box, "normal", priority=2)
    mesh.send(box, "head", key="k", priority=5)
    mesh.send(box, "urgent", key="k", priority=1)
    assert ids(mesh.receive(box, 3)) == ["head", "urgent", "normal"]


def test_a_lane_competes_anew_when_one_that_waits_in_it_is_given_another_priority() -> None:
    mesh = Driver()
    box = mesh.agent(schedule="strict")
    mesh.send(box, "normal", priority=2)
    mesh.send(box, "head", key="k", priority=5)
    mesh.send(box, "later", key="k", priority=5)
    mesh.do(Reprioritise(box, frozenset({"later"}), 1))
    assert ids(mesh.receive(box)) == ["head"]


def test_a_delayed_message_given_another_priority_after_a_restart_does_not_upset_its_lane() -> None:
    mesh = Driver()
    box = mesh.agent(schedule="strict")
    mesh.send(box, "delayed", key="k", priority=4, delay_ms=SECOND)
    mesh.restart()
    mesh.do(Reprioritise(box, None, 2))
    mesh.advance(SECOND)
    mesh.send(box, "first", priority=1)
    mesh.send(box, "last", priority=3)
    assert ids(mesh.receive(box, 3)) == ["first", "delayed", "last"]


def test_redrive_goes_to_the_tail_of_the_lane() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "dead", "1", "2", key="k")
    mesh.die(box, "dead")
    mesh.redrive(*mesh.letters)
    assert ids(mesh.receive(box, 3)) == ["1", "2", "dead"]


def test_an_ordered_mailbox_is_one_lane() -> None:
    mesh = Driver()
    box = mesh.agent(ordered=True)
    mesh.send(box, "1", priority=5)
    mesh.send(box, "2", priority=1, key="k")
    mesh.send(box, "3", priority=3)
    (first,) = mesh.receive(box, 1, "one")
    assert first.envelope.id == "1"
    assert mesh.receive(box, 3, "two") == []
    mesh.ack(first)
    assert ids(mesh.receive(box, 3, "two")) == ["2", "3"]


def test_an_unordered_subscription_hands_out_in_order_with_several_in_flight() -> None:
    mesh = Driver()
    box = mesh.subscription("t", schedule="fifo")
    mesh.publish("t", *names("m", 4))
    assert ids(mesh.receive(box, 2, "one") + mesh.receive(box, 2, "two")) == list(names("m", 4))


def test_a_mailbox_that_is_no_longer_ordered_serves_whoever_waits() -> None:
    mesh = Driver()
    box = mesh.agent(ordered=True)
    mesh.send(box, "1", "2")
    mesh.receive(box, 1, "one")
    waiter = mesh.wait(box, 1, "two")
    step = mesh.do(OpenMailbox(box, MailboxSettings(ordered=False)))
    assert step.delivered is not None
    assert step.delivered[0].waiter is waiter
    assert ids(step.delivered[0].deliveries.rows()) == ["2"]


def test_an_answer_nobody_asks_for_any_more_takes_its_place_in_its_lane() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.do(Expect(box, "question"))
    mesh.send(box, "answer", key="k", correlation_id="question")
    mesh.send(box, "1", key="k")
    mesh.do(Unexpect(box, "question"))
    assert ids(mesh.receive(box, 2)) == ["answer", "1"]
    assert mesh.receive(box, 2, "other") == []


def test_what_halts_a_lane_does_not_depend_on_who_waits_for_an_answer() -> None:
    """Who waits is not in the journal: a replay must come to the same lanes."""
    mesh = Driver()
    box = mesh.agent(halt_on_dead_letter=True)
    mesh.do(Expect(box, "question"))
    mesh.send(box, "answer", key="k", correlation_id="question")
    (answer,) = mesh.receive(box, correlation_id="question")
    mesh.nack(answer, code="fatal")
    assert durable(replay(mesh.records)) == durable(mesh.kernel.state)


def test_an_empty_key_is_a_key() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "1", "2", key="")
    mesh.receive(box, 1, "one")
    assert mesh.receive(box, 1, "two") == []


def test_an_entry_that_dies_while_it_waits_takes_nothing_from_the_holder_of_a_halting_lane() -> None:
    """Only forcing can put an entry before a run that is out already: both are due in one millisecond."""
    mesh = Driver()
    box = mesh.agent(halt_on_dead_letter=True, lease_ms=MINUTE)
    mesh.send(box, "forced", key="k", delay_ms=SECOND, ttl_ms=1)
    mesh.send(box, "out", key="k")
    (lease,) = mesh.receive(box)
    mesh.force_delayed()
    mesh.advance(5 * SECOND)
    assert [dead.envelope.id for dead in mesh.letters] == ["forced"]
    assert mesh.ack(lease) == []
