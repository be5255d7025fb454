"""Every door by which the message of a step leaves its mailbox, and what becomes of the step."""

from __future__ import annotations

import pytest

from relaymesh.errors import InvalidPlan, TaskOver
from relaymesh.kernel.address import topic_address
from relaymesh.kernel.commands import Ack, Extend, Nack, PurgeDeadLetters, Redrive, Settle, Stop
from relaymesh.kernel.contract import Rule
from relaymesh.kernel.tasks.commands import Abandon
from tests.kernel.driver import HOUR, MINUTE, SECOND, letter
from tests.kernel.tasks.office import AGENT, Office, office, plan, step


def one(**fields: object) -> tuple[Office, int]:
    """A task of one step, granted."""
    desk = office()
    desk.submit(plan(step("only", **fields)))
    return desk, desk.take()["only"]


def empty(desk: Office) -> bool:
    """Nothing is left of the task: no message, no lease, no index."""
    board = desk.kernel.state.board
    parts = [board.tasks, board.links, board.letters, board.by_token, desk.kernel.state.leases]
    return not any(parts) and desk.pending(AGENT) == []


def test_an_ack_is_a_success_with_null() -> None:
    desk, token = one()
    assert desk.done(token) == []
    assert (desk.end().status, desk.end().result, empty(desk)) == ("SUCCESS", b"null", True)


def test_acks_in_a_batch_are_successes() -> None:
    desk = office()
    desk.send(AGENT, "mail")
    desk.items["each"] = [b"1"] * 40
    desk.submit(plan(step("each", for_each="items")))
    tokens = [row.token for row in desk.receive(AGENT, 100)]
    assert len(tokens) == 41
    desk.do(Ack(tokens))
    assert (desk.end().result, empty(desk)) == (b"[" + b",".join([b"null"] * 40) + b"]", True)


def test_a_settle_is_a_success_and_sends() -> None:
    desk, token = one()
    other = desk.agent("other")
    desk.do(Settle(token, [(other, [letter("next")])]))
    assert (desk.end().status, desk.pending(other)) == ("SUCCESS", ["next"])


def test_a_contract_that_exits_with_success_is_a_success() -> None:
    desk, token = one()
    assert desk.failed(token, "conflict") == "success"
    assert (desk.end().status, desk.end().result, empty(desk)) == ("SUCCESS", b"null", True)


def test_a_drop_is_a_failure() -> None:
    desk, token = one()
    desk.do(Ack([token], drop=True))
    assert (desk.end().status, desk.ended_step("only").code, empty(desk)) == ("FAILED", "dropped", True)


def test_a_contract_that_drops_is_a_failure_with_its_code() -> None:
    desk = office()
    desk.agent("worker", contract={"useless": Rule(0, "drop")})
    desk.submit(plan(step("only")))
    assert desk.failed(desk.take()["only"], "useless") == "dropped"
    assert (desk.end().status, desk.ended_step("only").code) == ("FAILED", "useless")


def test_a_step_that_the_agent_fails_for_good_leaves_no_dead_letter() -> None:
    desk, token = one()
    assert desk.fail_for_good(token, "impossible") == "FAILED"
    assert (desk.ended_step("only").reason, desk.letters, empty(desk)) == ("impossible", [], True)
    assert desk.end().reason == "step only: impossible"
    assert desk.box(AGENT).breaker.state == "closed"


def test_three_failed_attempts_are_a_dead_letter_and_the_task_waits_for_it() -> None:
    desk = office()
    desk.submit(plan(step("only"), step("after", 0)))
    for outcome in ("retrying", "retrying", "dead_letter"):
        assert desk.failed(desk.take()["only"]) == outcome
        desk.pass_time(MINUTE)
    assert desk.statuses() == {"only": "DEAD_LETTER", "after": "PENDING"}
    assert desk.kernel.state.board.tasks["t1"].status == "DEAD_LETTER"
    assert desk.live("only").code == "retries_exhausted"
    desk.redrive(*desk.letters)
    desk.finish(desk.take()["only"])
    desk.finish(desk.take()["after"])
    assert desk.end().status == "SUCCESS"


def test_a_rejected_step_is_a_dead_letter_at_once() -> None:
    desk, token = one()
    assert str(desk.do(Nack(token, retryable=False)).result) == "dead_letter"
    assert desk.live("only").code == "not_retryable"


def test_a_step_that_is_deferred_too_often_is_a_dead_letter() -> None:
    desk = office()
    desk.agent("worker", max_deferrals=1)
    desk.submit(plan(step("only")))
    assert desk.failed(desk.take()["only"], until=desk.now) == "deferred"
    assert (desk.live("only").status, desk.live("only").attempts) == ("PENDING", 0)
    assert desk.failed(desk.take()["only"], until=desk.now) == "dead_letter"
    assert desk.live("only").code == "deferred_too_often"


def test_a_caught_dead_letter_ends_its_step_and_cannot_be_redriven() -> None:
    desk = office()
    desk.submit(plan(step("only", on_failure="continue"), step("after", 0)))
    desk.dies(desk.take()["only"])
    assert desk.statuses() == {"only": "DEAD_LETTER", "after": "PENDING"}
    with pytest.raises(TaskOver):
        desk.redrive(*desk.letters)
    desk.do(PurgeDeadLetters([(each.mailbox, each.dead_sequence) for each in desk.letters]))
    assert desk.live("only").status == "DEAD_LETTER"
    desk.finish(desk.take()["after"])
    assert desk.end().status == "SUCCESS"


def test_a_dead_letter_of_a_task_that_ended_cannot_be_redriven() -> None:
    desk, token = one()
    desk.dies(token)
    assert desk.cancel() == "CANCELLED"
    with pytest.raises(TaskOver):
        desk.redrive(*desk.letters)
    assert desk.pending(AGENT) == []


def test_a_dead_letter_of_a_task_that_closes_cannot_be_redriven() -> None:
    desk = office()
    desk.submit(plan(step("dead"), step("held")))
    taken = desk.take()
    desk.dies(taken["dead"])
    assert desk.cancel() == "RUNNING"
    with pytest.raises(TaskOver):
        desk.redrive(*desk.letters)
    desk.finish(taken["held"])
    assert desk.end().status == "CANCELLED"


def test_a_redrive_keeps_the_step_through_an_edit_and_a_move() -> None:
    desk, token = one(max_attempts=2)
    other = desk.agent("other")
    desk.dies(token)
    (dead,) = desk.letters
    name = (dead.mailbox, dead.dead_sequence)
    desk.do(Redrive([name], to=other, edited=[letter("edited", b"2", ttl_ms=0)]))
    assert (desk.live("only").status, desk.live("only").mailbox) == ("PENDING", other)
    assert desk.failed(desk.take(mailbox=other)["only"]) == "retrying"
    desk.pass_time(MINUTE)
    assert desk.failed(desk.take(mailbox=other)["only"]) == "dead_letter"  # as its plan says
    desk.redrive(*[each for each in desk.letters if each.status == "pending"])
    desk.finish(desk.take(mailbox=other)["only"], b"2")
    assert (desk.end().status, desk.end().result) == ("SUCCESS", b"2")


@pytest.mark.parametrize("to", ["subscription", "at_most_once", "namespace"])
def test_a_step_is_redriven_only_where_a_step_may_be(to: str) -> None:
    """A subscription could be unsubscribed, and an at_most_once mailbox loses what its agent held."""
    desk, token = one()
    desk.dies(token)
    targets = {
        "subscription": desk.subscription("t"),
        "at_most_once": desk.agent("once", delivery_semantics="at_most_once"),
        "namespace": "elsewhere/worker",
    }
    (dead,) = desk.letters
    with pytest.raises(InvalidPlan):
        desk.do(Redrive([(dead.mailbox, dead.dead_sequence)], to=targets[to]))
    assert desk.live("only").status == "DEAD_LETTER"


def test_a_purged_letter_fails_its_step() -> None:
    desk, token = one()
    desk.dies(token)
    (dead,) = desk.kernel.state.letters.older(desk.now + 1, 10, 1_000)  # as housekeeping purges by age
    desk.do(PurgeDeadLetters([(dead.mailbox, dead.dead_sequence)]))
    assert (desk.end().status, desk.ended_step("only").code, empty(desk)) == ("FAILED", "purged", True)


def test_a_soft_cancel_withdraws_what_waits_and_lets_holders_finish() -> None:
    desk = office()
    desk.submit(plan(step("held"), step("waits"), step("after", 0)))
    held = desk.take(1)["held"]
    assert desk.cancel() == "RUNNING"
    assert desk.statuses() == {"held": "RUNNING", "waits": "CANCELLED", "after": "PENDING"}
    assert desk.finish(held, b"1") == "CANCELLED"
    assert desk.ended_statuses() == {"held": "SUCCESS", "waits": "CANCELLED", "after": "CANCELLED"}
    assert empty(desk)


def test_a_soft_cancel_withdraws_what_comes_back() -> None:
    desk, token = one()
    assert desk.cancel() == "RUNNING"
    assert desk.failed(token) == "retrying"
    assert (desk.end().status, desk.ended_statuses(), empty(desk)) == (
        "CANCELLED",
        {"only": "CANCELLED"},
        True,
    )


def test_a_hard_cancel_ends_leases() -> None:
    desk = office()
    desk.submit(plan(step("held"), step("waits")))
    held = desk.take(1)["held"]
    assert desk.cancel() == "RUNNING"
    assert desk.cancel(hard=True) == "CANCELLED"
    assert set(desk.ended_statuses().values()) == {"CANCELLED"}
    assert desk.done(held) == [held]
    assert empty(desk)


def test_a_failed_step_withdraws_what_waits_and_lets_holders_finish() -> None:
    desk = office()
    desk.submit(plan(step("bad"), step("held"), step("waits"), step("after", 1)))
    taken = desk.take(2)
    assert desk.fail_for_good(taken["bad"]) == "RUNNING"
    assert desk.statuses()["waits"] == "CANCELLED"
    assert desk.finish(taken["held"]) == "FAILED"
    assert desk.ended_statuses() == {
        "bad": "FAILED",
        "held": "SUCCESS",
        "waits": "CANCELLED",
        "after": "CANCELLED",
    }


def test_a_hard_cancel_of_a_failing_task_leaves_its_failure_the_reason() -> None:
    desk = office()
    desk.submit(plan(step("bad"), step("held")))
    desk.fail_for_good(desk.take()["bad"], "broken")
    assert desk.cancel(hard=True) == "FAILED"
    assert desk.end().reason == "step bad: broken"


def test_a_step_that_is_redriven_in_the_moment_it_was_sent_times_out_once() -> None:
    """Its timer is there twice, for the same millisecond."""
    desk, token = one(timeout_ms=MINUTE)
    desk.dies(token)
    desk.redrive(*desk.letters)
    desk.pass_time(MINUTE)
    assert desk.end().status == "TIMEOUT"
    assert desk.ended_statuses() == {"only": "TIMEOUT"}


def test_a_step_that_takes_too_long_is_a_timeout() -> None:
    desk, token = one(timeout_ms=MINUTE)
    desk.do(Extend(token, HOUR))
    desk.pass_time(MINUTE - 1)
    assert desk.statuses() == {"only": "RUNNING"}
    assert desk.kernel.next_event_at == desk.now + 1
    desk.pass_time(1)
    assert (desk.ended_step("only").status, desk.ended_step("only").code) == ("TIMEOUT", "timeout")
    assert desk.done(token) == [token]
    assert empty(desk)


def test_a_task_whose_deadline_passes_is_a_timeout() -> None:
    desk = office()
    desk.submit(plan(step("held"), step("waits"), step("after", 0), deadline_ms=HOUR))
    desk.do(Extend(desk.take(1)["held"], 2 * HOUR))
    desk.pass_time(HOUR)
    assert desk.end().status == "TIMEOUT"
    assert set(desk.ended_statuses().values()) == {"TIMEOUT"}
    assert empty(desk)


def test_the_deadline_ends_the_leases_of_a_task_that_is_being_cancelled() -> None:
    desk = office()
    desk.submit(plan(step("held"), deadline_ms=HOUR))
    desk.do(Extend(desk.take()["held"], 5 * HOUR))
    assert desk.cancel() == "RUNNING"
    desk.pass_time(HOUR)
    assert (desk.end().status, desk.end().reason, empty(desk)) == ("CANCELLED", "enough", True)


def test_a_lease_that_runs_out_is_abandoned_and_ready_at_once() -> None:
    desk, _ = one()
    desk.pass_time(15 * SECOND)
    assert (desk.live("only").status, desk.live("only").abandoned) == ("ABANDONED", 1)
    assert list(desk.take()) == ["only"]


def test_a_restart_voids_a_lease_and_the_step_is_abandoned() -> None:
    desk, _ = one()
    desk.restart()
    assert (desk.live("only").status, desk.live("only").failed) == ("ABANDONED", 0)
    assert list(desk.take()) == ["only"]


def test_an_abandoned_lease_is_ready_at_once_and_a_stale_token_is_named() -> None:
    desk, token = one()
    assert desk.abandon(token, 777) == [777]
    assert (desk.live("only").status, desk.live("only").code) == ("ABANDONED", "abandoned")
    assert list(desk.take()) == ["only"]


def test_mail_that_is_no_step_can_be_abandoned_too() -> None:
    desk = office()
    desk.send(AGENT, "mail")
    (row,) = desk.receive(AGENT)
    assert desk.do(Abandon([row.token])).result == []
    assert desk.entry(AGENT, "mail").attempts == 1


def test_a_stopping_node_gives_back_and_no_attempt_is_counted() -> None:
    desk, _ = one()
    desk.do(Stop())
    assert (desk.live("only").status, desk.live("only").attempts) == ("PENDING", 0)


def test_a_step_cannot_be_in_a_subscription() -> None:
    desk = office()
    subscription = desk.subscription("t")
    with pytest.raises(InvalidPlan, match="subscription"):
        desk.submit(plan(step("only", mailbox=subscription)))
    with pytest.raises(InvalidPlan):
        desk.submit(plan(step("only", mailbox=topic_address("t"))))


def test_a_message_that_claims_to_be_a_step_is_mail() -> None:
    desk, _ = one()
    desk.send(AGENT, "forged", type="task_assign", sender="default/relaymesh", task="t1")
    (row,) = desk.receive(AGENT)
    desk.ack(row)
    assert desk.statuses() == {"only": "RUNNING"}
