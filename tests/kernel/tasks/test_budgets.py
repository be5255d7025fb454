"""What attempts use is added up; a task that has used its budget sends nothing until it gets a larger one."""

from __future__ import annotations

from typing import Any

import pytest

from relaymesh.errors import Conflict, NotFound
from relaymesh.kernel.query import BoundsOf
from relaymesh.kernel.records import BudgetPaused, Granted, StepsWithdrawn
from relaymesh.kernel.tasks.commands import Finish, Report, SetBudget, Usage
from relaymesh.kernel.tasks.looks import StepBounds
from relaymesh.kernel.tasks.plan import StepPlan
from relaymesh.kernel.tasks.spending import dollars
from tests.kernel.driver import MINUTE
from tests.kernel.tasks.office import Office, office, plan, step


def desk_with(*steps: StepPlan, cost: int = 100, **fields: Any) -> Office:
    desk = office()
    desk.submit(plan(*steps, cost_micros=cost, **fields))
    return desk


def finish(desk: Office, token: int, cost: int) -> None:
    desk.do(Finish(token, b"1", Usage(cost, 0)))


def task_of(desk: Office) -> Any:
    return desk.kernel.state.board.tasks["t1"]


def test_the_settle_that_reaches_the_budget_takes_the_messages_back() -> None:
    desk = desk_with(step("a"), step("b"), step("c"))
    taken = desk.take(1)
    finish(desk, taken["a"], 100)
    assert desk.take() == {}
    assert desk.statuses() == {"a": "SUCCESS", "b": "PENDING", "c": "PENDING"}
    assert task_of(desk).paused == "its budget is used: $0.0001 of $0.0001"
    kinds = [type(record) for record in desk.records]
    assert kinds.index(StepsWithdrawn) == kinds.index(BudgetPaused) + 1
    assert Granted not in kinds[kinds.index(BudgetPaused) :]


def test_holders_finish_and_the_overshoot_is_what_they_use() -> None:
    desk = desk_with(step("a"), step("b"), step("c"))
    taken = desk.take(2)
    finish(desk, taken["a"], 100)
    finish(desk, taken["b"], 70)
    assert task_of(desk).cost == 170
    assert desk.take() == {}


def test_a_larger_budget_lets_it_go_on_with_what_was_taken_back() -> None:
    desk = desk_with(step("a"), step("b", input=b'{"n":7}'))
    finish(desk, desk.take(1)["a"], 100)
    assert desk.do(SetBudget("t1", 200)).result == "RUNNING"
    finish(desk, desk.take()["b"], 50)
    assert desk.end().status == "SUCCESS"
    assert (desk.end().cost_micros, desk.end().cost_micros_max) == (150, 200)


def test_a_budget_that_is_still_too_small_changes_nothing() -> None:
    desk = desk_with(step("a"), step("b"))
    finish(desk, desk.take(1)["a"], 100)
    desk.do(SetBudget("t1", 90))
    assert desk.take() == {}
    desk.do(SetBudget("t1", 0))
    assert list(desk.take()) == ["b"]


def test_a_report_is_the_total_of_an_attempt_and_counts_once() -> None:
    desk = desk_with(step("a"), cost=0)
    token = desk.take()["a"]
    for cost in (10, 30, 30, 20):
        desk.do(Report(token, "", Usage(cost, cost * 2)))
    assert (task_of(desk).cost, task_of(desk).tokens) == (30, 60)
    finish(desk, token, 45)
    assert desk.end().cost_micros == 45


def test_each_attempt_counts_for_itself() -> None:
    desk = desk_with(step("a"), cost=0)
    token = desk.take()["a"]
    desk.do(Report(token, "", Usage(30, 0)))
    desk.failed(token)
    desk.pass_time(MINUTE)
    finish(desk, desk.take()["a"], 12)
    assert desk.end().cost_micros == 42


def test_a_retry_of_a_paused_task_is_taken_back_too() -> None:
    desk = desk_with(step("a"), step("b"))
    taken = desk.take()
    finish(desk, taken["a"], 100)
    desk.failed(taken["b"])
    desk.pass_time(MINUTE)
    assert desk.take() == {}
    assert desk.live("b").failed == 1
    desk.do(SetBudget("t1", 1_000))
    assert list(desk.take()) == ["b"]


def test_a_late_result_counts_also_while_the_task_is_paused() -> None:
    desk = desk_with(step("a"), step("b"))
    taken = desk.take()
    desk.pass_time(MINUTE)  # the leases are over
    finish(desk, taken["a"], 100)
    assert desk.live("b").status == "PENDING"
    finish(desk, taken["b"], 5)
    assert desk.end().status == "SUCCESS"


@pytest.mark.parametrize("restarts", ["restart", "restart_from_snapshot"])
def test_a_restart_keeps_what_was_used_and_that_it_is_paused(restarts: str) -> None:
    desk = desk_with(step("a"), step("b"))
    finish(desk, desk.take(1)["a"], 100)
    getattr(desk, restarts)()
    desk.pass_time(MINUTE)
    assert desk.take() == {}
    assert (task_of(desk).cost, bool(task_of(desk).paused)) == (100, True)
    desk.do(SetBudget("t1", 1_000))
    assert list(desk.take()) == ["b"]


def test_tokens_are_a_budget_of_their_own() -> None:
    desk = desk_with(step("a"), step("b"), cost=0, tokens=10)
    desk.do(Finish(desk.take(1)["a"], b"1", Usage(0, 10)))
    assert task_of(desk).paused == "its budget is used: 10 of 10 tokens"


def test_the_holder_of_a_step_is_told_what_is_left() -> None:
    desk = desk_with(step("a"), step("b"), cost=100)
    taken = desk.take(2)
    desk.do(Report(taken["a"], "half", Usage(30, 7)))
    assert desk.kernel.look(BoundsOf(taken["b"])) == StepBounds(70, None)
    desk.do(SetBudget("t1", 20, 10))
    assert desk.kernel.look(BoundsOf(taken["b"])) == StepBounds(0, 3)
    assert desk.kernel.look(BoundsOf(taken["b"] + 1)) is None


def test_the_holder_of_a_step_is_told_when_it_is_out_of_time() -> None:
    desk = desk_with(step("a"), step("b", timeout_ms=2 * MINUTE), cost=0, deadline_ms=3 * MINUTE)
    began, taken = desk.now, desk.take(2)
    assert desk.kernel.look(BoundsOf(taken["a"])) == StepBounds(None, None, began + 3 * MINUTE)
    assert desk.kernel.look(BoundsOf(taken["b"])) == StepBounds(None, None, began + 2 * MINUTE)


def test_a_task_whose_last_step_reaches_the_budget_succeeds() -> None:
    desk = desk_with(step("a"))
    finish(desk, desk.take()["a"], 500)
    assert desk.end().status == "SUCCESS"


def test_a_paused_task_can_be_cancelled() -> None:
    desk = desk_with(step("a"), step("b"))
    finish(desk, desk.take(1)["a"], 100)
    assert desk.cancel() == "CANCELLED"
    with pytest.raises(NotFound):
        desk.do(SetBudget("t1", 1))


def test_a_task_that_closes_gets_no_budget() -> None:
    desk = desk_with(step("slow"), step("bad"))
    taken = desk.take()
    desk.fail_for_good(taken["bad"])
    with pytest.raises(Conflict, match="closes"):
        desk.do(SetBudget("t1", 1))


def test_undoing_is_paid_for_and_not_stopped() -> None:
    desk = desk_with(step("a", undo=step("a")), step("bad", 0))
    finish(desk, desk.take()["a"], 99)
    token = desk.take()["bad"]
    desk.do(Report(token, "", Usage(50, 0)))
    desk.fail_for_good(token)
    finish(desk, desk.take()["a!undo"], 7)
    assert desk.end().cost_micros == 156


@pytest.mark.parametrize(
    ("micros", "text"), [(0, "$0.00"), (5_000_000, "$5.00"), (120_000, "$0.12"), (1, "$0.000001")]
)
def test_dollars_for_people(micros: int, text: str) -> None:
    assert dollars(micros) == text
