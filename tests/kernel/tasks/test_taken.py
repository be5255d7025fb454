"""Taken steps: an agent acks on receipt, and reports the end later. Its signs of life keep them its own."""

from __future__ import annotations

import pytest

from relaymesh.errors import LeaseLost
from relaymesh.kernel.commands import Ack, KeepTaken, Nack, Receive, RegisterAgent, Release, Settle
from relaymesh.kernel.query import FindGrant
from relaymesh.kernel.records import Acked, StepsTaken
from relaymesh.kernel.tasks.commands import Report
from relaymesh.kernel.tasks.plan import StepPlan
from relaymesh.kernel.waiter import Waiter
from tests.kernel.driver import SECOND
from tests.kernel.tasks.office import AGENT, Office, office, plan, step

LEASE = 90 * SECOND


def desk_of(*steps: StepPlan) -> Office:
    desk = office()
    desk.do(RegisterAgent(AGENT, settles=False))
    desk.submit(plan(*(steps or (step("only"),))))
    return desk


def received(desk: Office, most: int = 100) -> dict[str, int]:
    """Received by a holder that survives a restart of the node."""
    delivered = desk.do(Receive(AGENT, Waiter("remote", most, None, True), False)).delivered or []
    board = desk.kernel.state.board
    rows = [row for each in delivered for row in each.deliveries.rows()]
    return {task.name_of(number): row.token for row in rows for task, number in [board.links[row.sequence]]}


def acked(desk: Office, *tokens: int) -> list[int]:
    stale: list[int] = desk.do(Ack(tokens, taken_ms=LEASE)).result
    return stale


def taken(**fields: object) -> tuple[Office, int]:
    desk = desk_of(step("only", **fields))
    token = received(desk)["only"]
    assert acked(desk, token) == []
    return desk, token


def test_an_ack_takes_the_step_and_a_result_ends_it() -> None:
    desk, token = taken()
    assert [type(record) for record in desk.step.records] == [StepsTaken]
    assert desk.step.synced == desk.kernel.state.sequence, "an answer that says it was taken must be durable"
    assert desk.statuses() == {"only": "RUNNING"}
    desk.pass_time(LEASE - 1)
    assert desk.statuses() == {"only": "RUNNING"}
    assert desk.finish(token, b"7") == "SUCCESS"
    assert (desk.end().result, desk.pending(AGENT)) == (b"7", [])


def test_a_refusal_ends_it_too_and_a_nack_tries_it_again() -> None:
    desk, token = taken()
    assert desk.fail_for_good(token) == "FAILED"
    desk, token = taken()
    assert desk.failed(token) == "retrying"
    assert desk.statuses() == {"only": "RETRYING"}


@pytest.mark.parametrize("who", ["settling", "unregistered", "holder settles"])
def test_every_other_ack_is_a_result(who: str) -> None:
    desk = office()
    if who != "unregistered":
        desk.do(RegisterAgent(AGENT, settles=who == "settling"))
    desk.submit(plan(step("only")))
    token = received(desk)["only"]
    desk.do(Ack([token], taken_ms=0 if who == "holder settles" else LEASE))
    assert (desk.end().status, desk.end().result) == ("SUCCESS", b"null")


def test_an_agent_that_dies_gives_its_step_back_when_its_lease_is_over() -> None:
    desk, token = taken()
    desk.pass_time(LEASE)
    assert desk.statuses() == {"only": "ABANDONED"}
    again = received(desk)["only"]
    with pytest.raises(LeaseLost):
        desk.finish(token, b"1")
    desk.pass_time(15 * SECOND)
    assert desk.statuses() == {"only": "ABANDONED"}, "another attempt is not taken until it is acked"
    assert desk.finish(again, b"2") == "SUCCESS"


def test_a_result_after_the_lease_counts_until_another_attempt_begins() -> None:
    desk, token = taken()
    desk.pass_time(LEASE)
    assert desk.finish(token, b"1") == "SUCCESS"


def test_heartbeats_and_reports_renew_what_was_taken() -> None:
    desk, token = taken()
    for beat in range(20):
        desk.pass_time(60 * SECOND)
        if beat % 2:
            assert desk.do(KeepTaken([AGENT])).result == 1
        else:
            desk.do(Report(token, "half"))
        assert (desk.step.records, desk.statuses()) == ([], {"only": "RUNNING"})
    desk.pass_time(LEASE)
    assert desk.statuses() == {"only": "ABANDONED"}
    assert desk.do(KeepTaken([AGENT])).result == 0, "a lease that is over stays over"


def test_a_flood_of_heartbeats_renews_once_a_second() -> None:
    desk, _ = taken()
    assert [desk.do(KeepTaken([AGENT])).result for _ in range(3)] == [1, 0, 0]
    desk.pass_time(SECOND)
    assert desk.do(KeepTaken([AGENT, "default/nobody"])).result == 1


def test_a_heartbeat_renews_only_what_its_agent_took() -> None:
    desk = desk_of(step("mine"), step("other"))
    tokens = received(desk)
    acked(desk, tokens["mine"])
    desk.pass_time(10 * SECOND)
    assert desk.do(KeepTaken([AGENT])).result == 1
    desk.pass_time(5 * SECOND)
    assert desk.statuses() == {"mine": "RUNNING", "other": "ABANDONED"}


def test_a_second_ack_of_it_renews_and_writes_nothing() -> None:
    desk, token = taken()
    desk.pass_time(60 * SECOND)
    assert acked(desk, token) == []
    assert desk.step.records == []
    desk.pass_time(60 * SECOND)
    assert desk.statuses() == {"only": "RUNNING"}


def test_mail_and_steps_that_are_acked_together_go_their_own_ways() -> None:
    desk = desk_of(step("a"), step("b"), step("c"))
    desk.send(AGENT, "mail")
    delivered = desk.do(Receive(AGENT, Waiter("remote", 9, None, True), False)).delivered or []
    tokens = [row.token for each in delivered for row in each.deliveries.rows()]
    assert len(tokens) == 4
    assert acked(desk, *tokens) == []
    assert {type(record) for record in desk.step.records} == {StepsTaken, Acked}
    assert (desk.statuses(), len(desk.pending(AGENT))) == (dict.fromkeys("abc", "RUNNING"), 3)


def test_a_reply_that_acks_takes_the_step_too() -> None:
    desk = desk_of()
    token = received(desk)["only"]
    desk.do(Settle(token, [], taken_ms=LEASE))
    assert desk.statuses() == {"only": "RUNNING"}


@pytest.mark.parametrize("how", ["replayed", "from a snapshot"])
def test_what_was_taken_stays_taken_over_a_restart(how: str) -> None:
    desk, token = taken()
    desk.pass_time(80 * SECOND)
    (desk.restart if how == "replayed" else desk.restart_from_snapshot)()
    desk.pass_time(LEASE - 1)
    assert desk.statuses() == {"only": "RUNNING"}, "a remote holder gets one full lease: that of what it took"
    assert desk.do(KeepTaken([AGENT])).result == 1
    desk.pass_time(LEASE - 1)
    assert desk.finish(token, b"3") == "SUCCESS"
    assert desk.do(KeepTaken([AGENT])).result == 0


def test_no_heartbeat_passes_the_time_of_an_attempt() -> None:
    desk, _ = taken(attempt_timeout_ms=100 * SECOND)
    for _ in range(4):
        desk.pass_time(25 * SECOND - 1)
        desk.do(KeepTaken([AGENT]))
    assert desk.statuses() == {"only": "RUNNING"}
    desk.pass_time(4)
    assert desk.statuses() == {"only": "RETRYING"}


@pytest.mark.parametrize("how", ["released", "abandoned", "nacked", "hard cancel", "dead"])
def test_however_it_ends_nothing_of_it_is_kept(how: str) -> None:
    desk, token = taken()
    match how:
        case "released":
            desk.do(Release([token]))
        case "abandoned":
            desk.abandon(token)
        case "nacked":
            desk.do(Nack(token))
        case "dead":
            desk.dies(token)
        case _:
            desk.cancel(hard=True)
    assert desk.kernel.state.board.taken.of([AGENT]) == []
    assert desk.do(KeepTaken([AGENT])).result == 0


def test_a_soft_cancel_lets_the_holder_finish() -> None:
    desk, token = taken()
    desk.cancel()
    assert desk.statuses() == {"only": "RUNNING"}
    assert desk.finish(token) == "CANCELLED"


def test_an_agent_that_registers_anew_keeps_what_it_took() -> None:
    desk, token = taken()
    desk.do(RegisterAgent(AGENT, settles=True))
    assert desk.do(KeepTaken([AGENT])).result == 1
    acked(desk, token)
    assert desk.end().status == "SUCCESS", "from here on its acks are results"


def test_a_step_is_found_by_its_names() -> None:
    desk = office()
    desk.items["each"] = [b"1", b"2"]
    desk.submit(plan(step("each", for_each="x"), step("after", 0)), task="t2")
    tokens = received(desk)

    def found(name: str, task: str = "t2") -> tuple[int, str, bool] | None:
        grant = desk.kernel.look(FindGrant(task, name))
        return None if grant is None else (grant.token, grant.status, grant.held)

    assert found("each/1") == (tokens["each/1"], "RUNNING", True)
    assert found("each") == (0, "RUNNING", False)
    assert found("after") == (0, "PENDING", False)
    for name in ("each/2", "each/01", "each/-1", "each/", "each/1/1", "x", "after/0", "each/" + "9" * 400):
        assert found(name) is None
    assert found("after", "t9") is None
    desk.pass_time(15 * SECOND)
    assert found("each/1") == (tokens["each/1"], "ABANDONED", False)
