"""Time: late results, abandoned work, and the three clocks of a step and its task."""

from __future__ import annotations

import pytest

from relaymesh.errors import LeaseLost
from relaymesh.kernel.commands import Complete, Extend, Nack, Receive, Release
from relaymesh.kernel.tasks.commands import Report
from relaymesh.kernel.waiter import Waiter
from tests.kernel.driver import HOUR, MINUTE, SECOND
from tests.kernel.tasks.office import AGENT, Office, office, plan, step


def one(**fields: object) -> tuple[Office, int]:
    desk = office()
    desk.submit(plan(step("only", **fields)))
    return desk, desk.take()["only"]


def test_a_late_result_counts_while_nobody_was_granted_since() -> None:
    desk, token = one()
    desk.pass_time(16 * SECOND)
    assert desk.statuses() == {"only": "ABANDONED"}
    assert desk.finish(token, b"7") == "SUCCESS"
    assert (desk.end().result, desk.pending(AGENT)) == (b"7", [])


@pytest.mark.parametrize("how", ["expired", "abandoned", "nacked", "deferred", "released", "restarted"])
def test_a_late_result_counts_however_the_lease_ended(how: str) -> None:
    desk, token = one()
    match how:
        case "expired":
            desk.pass_time(16 * SECOND)
        case "abandoned":
            desk.abandon(token)
        case "nacked":
            desk.failed(token)
        case "deferred":
            desk.do(Nack(token, until=desk.now + HOUR))
        case "released":
            desk.do(Release([token]))
        case _:
            desk.restart_from_snapshot()
    assert desk.finish(token, b"7") == "SUCCESS"
    assert (desk.take(), desk.pending(AGENT), desk.box(AGENT).delayed) == ({}, [], 0)


def test_a_late_refusal_counts_too() -> None:
    desk, token = one()
    desk.pass_time(16 * SECOND)
    assert desk.fail_for_good(token) == "FAILED"


def test_a_late_result_is_refused_once_another_holder_was_granted_the_step() -> None:
    desk, token = one()
    desk.pass_time(16 * SECOND)
    second = desk.take()["only"]
    with pytest.raises(LeaseLost):
        desk.finish(token)
    with pytest.raises(LeaseLost):
        desk.fail_for_good(token)
    desk.pass_time(16 * SECOND)
    with pytest.raises(LeaseLost):
        desk.finish(token)
    assert desk.finish(second) == "SUCCESS"


@pytest.mark.parametrize("restarts", [False, True])
def test_a_late_result_is_refused_after_a_dead_letter_and_after_its_redrive(restarts: bool) -> None:
    desk, token = one()
    desk.dies(token)
    if restarts:
        desk.restart_from_snapshot()
    with pytest.raises(LeaseLost):
        desk.finish(token)
    desk.redrive(*desk.letters)
    if restarts:
        desk.restart_from_snapshot()
    with pytest.raises(LeaseLost):
        desk.finish(token)
    assert desk.statuses() == {"only": "PENDING"}


def test_a_late_result_is_refused_after_the_end() -> None:
    desk, token = one()
    desk.finish(token)
    with pytest.raises(LeaseLost):
        desk.finish(token)
    with pytest.raises(LeaseLost):
        desk.do(Report(token, "still at it"))


def test_a_step_is_not_completed_without_a_result() -> None:
    desk, _ = one()
    (sequence,) = desk.kernel.state.board.links
    desk.pass_time(16 * SECOND)
    with pytest.raises(LeaseLost, match="it ends with a result"):
        desk.do(Complete(AGENT, sequence))
    assert list(desk.take()) == ["only"]


def test_ten_abandonments_are_forgiven_and_the_eleventh_is_a_dead_letter() -> None:
    desk, token = one()
    for _ in range(10):
        desk.abandon(token)
        token = desk.take()["only"]
    assert (desk.live("only").abandoned, desk.live("only").failed) == (10, 0)
    desk.abandon(token)
    assert desk.statuses() == {"only": "DEAD_LETTER"}


def test_abandonments_and_failures_are_counted_apart() -> None:
    desk, token = one()
    for _ in range(2):
        for _ in range(4):
            desk.abandon(token)
            token = desk.take()["only"]
        assert desk.failed(token) == "retrying"
        desk.pass_time(MINUTE)
        token = desk.take()["only"]
    assert (desk.live("only").abandoned, desk.live("only").failed) == (8, 2)
    assert desk.failed(token) == "dead_letter"


def test_a_redrive_gives_all_attempts_back() -> None:
    desk, token = one(max_abandoned=0)
    desk.abandon(token)
    desk.redrive(*desk.letters)
    assert (desk.live("only").abandoned, desk.live("only").failed) == (0, 0)
    for outcome in ("retrying", "retrying", "dead_letter"):
        assert desk.failed(desk.take()["only"]) == outcome
        desk.pass_time(MINUTE)


def test_ten_kills_of_the_node_do_not_kill_honest_work() -> None:
    desk, token = one()
    for kills in range(1, 11):
        desk.restart() if kills % 2 else desk.restart_from_snapshot()
        token = desk.take()["only"]
        assert desk.live("only").abandoned == kills
    assert desk.finish(token) == "SUCCESS"


def test_an_attempt_that_takes_too_long_is_a_failed_attempt() -> None:
    desk, token = one(attempt_timeout_ms=MINUTE, max_attempts=2)
    while desk.live("only").status == "RUNNING":
        assert desk.do(Extend(token, 15 * SECOND)).result <= desk.live("only").granted_at + MINUTE
        desk.pass_time(2 * SECOND)
    assert (desk.live("only").status, desk.live("only").failed) == ("RETRYING", 1)
    assert desk.now == desk.live("only").granted_at + MINUTE
    desk.pass_time(MINUTE)
    desk.take()
    desk.pass_time(MINUTE)
    assert desk.live("only").status == "ABANDONED"  # silent since its grant: nobody looked for a minute


def test_one_attempt_after_a_restart_still_ends_when_its_time_is_over() -> None:
    desk = office()
    desk.submit(plan(step("only", attempt_timeout_ms=MINUTE)))
    desk.do(Receive(AGENT, Waiter("far", 1, remote=True), False))
    (token,) = desk.kernel.state.leases
    desk.do(Extend(token, MINUTE))
    desk.now += 55 * SECOND
    desk.restart()
    assert desk.live("only").status == "RUNNING"
    desk.pass_time(5 * SECOND)
    assert (desk.live("only").status, desk.live("only").failed) == ("RETRYING", 1)


def test_steps_that_are_sent_together_keep_leases_of_their_own() -> None:
    desk = office()
    quick = [step(f"quick{i}", lease_ms=5 * SECOND) for i in range(40)]
    slow = [step(f"slow{i}", lease_ms=MINUTE) for i in range(20)]
    desk.submit(plan(*quick, *slow))
    assert len(desk.take()) == 60
    desk.pass_time(6 * SECOND)
    statuses = desk.statuses()
    assert {statuses[each.name] for each in quick} == {"ABANDONED"}
    assert {statuses[each.name] for each in slow} == {"RUNNING"}


def test_a_call_of_half_an_hour_runs_once_under_a_short_lease() -> None:
    desk, token = one()
    for _ in range(900):
        desk.pass_time(2 * SECOND)
        assert desk.take() == {}
        desk.do(Extend(token, 15 * SECOND))
    assert desk.live("only").attempts == 1
    assert desk.finish(token) == "SUCCESS"


def test_after_its_owner_dies_it_is_granted_again_as_soon_as_the_lease_ends() -> None:
    desk, token = one()
    desk.pass_time(2 * SECOND)
    desk.do(Extend(token, 15 * SECOND))
    assert desk.kernel.next_event_at <= desk.now + 15 * SECOND
    desk.do(Receive(AGENT, Waiter("next", 1)))
    desk.pass_time(15 * SECOND)
    assert (desk.live("only").status, desk.live("only").holder) == ("RUNNING", "next")


def test_a_supervisor_that_knows_of_the_death_does_not_wait_for_the_lease() -> None:
    desk, token = one()
    desk.do(Receive(AGENT, Waiter("next", 1)))
    desk.abandon(token)
    assert desk.live("only").holder == "next"


def test_a_task_times_out_while_the_node_is_down() -> None:
    desk = office()
    desk.submit(plan(step("only"), deadline_ms=HOUR))
    desk.take()
    desk.now += HOUR
    desk.restart()
    assert desk.end().status == "TIMEOUT"
    assert desk.pending(AGENT) == []


def test_a_step_times_out_while_the_node_is_down() -> None:
    desk, _ = one(timeout_ms=MINUTE)
    desk.now += MINUTE
    desk.restart_from_snapshot()
    assert desk.ended_step("only").status == "TIMEOUT"


@pytest.mark.parametrize("restarts", [False, True])
def test_a_redriven_step_has_its_whole_time_again(restarts: bool) -> None:
    desk, token = one(timeout_ms=MINUTE)
    desk.dies(token)
    desk.pass_time(HOUR)
    assert desk.statuses() == {"only": "DEAD_LETTER"}
    desk.redrive(*desk.letters)
    if restarts:
        desk.restart()
    desk.pass_time(MINUTE - 1)
    assert desk.statuses() == {"only": "PENDING"}
    desk.pass_time(1)
    assert desk.ended_step("only").status == "TIMEOUT"


def test_a_clock_that_jumps_ends_neither_leases_nor_steps_nor_tasks() -> None:
    desk = office()
    desk.submit(plan(step("only", timeout_ms=MINUTE), deadline_ms=HOUR))
    token = desk.take()["only"]
    desk.kernel.pause_reclaim(desk.now + 2 * HOUR + 30 * SECOND)
    desk.pass_time(2 * HOUR)
    assert desk.statuses() == {"only": "RUNNING"}
    assert desk.kernel.next_event_at == desk.now + 30 * SECOND
    desk.do(Extend(token, MINUTE))
    desk.pass_time(30 * SECOND)
    assert desk.ended_step("only").status == "TIMEOUT"


def test_a_report_is_shown_and_writes_nothing() -> None:
    desk, token = one()
    assert desk.do(Report(token, "half done")).records == []
    assert desk.live("only").progress == "half done"
