"""The thinnest path: two steps, one after the other."""

from __future__ import annotations

from tests.kernel.tasks.office import office, plan, step


def test_a_chain_runs_step_by_step() -> None:
    desk = office()
    desk.submit(plan(step("first"), step("second", 0)))
    taken = desk.take()
    assert list(taken) == ["first"]
    assert desk.statuses() == {"first": "RUNNING", "second": "PENDING"}
    assert desk.finish(taken["first"], b"1") == "RUNNING"
    taken = desk.take()
    assert desk.finish(taken["second"], b"2") == "SUCCESS"
    assert desk.kernel.state.board.tasks == {}
    assert desk.kernel.state.board.over["t1"].task.result == b"2"


def test_a_repeated_submit_runs_once() -> None:
    desk = office()
    desk.submit(plan(step("first")))
    assert desk.submit(plan(step("first"))).duplicate
    desk.finish(desk.take()["first"])
    again = desk.submit(plan(step("first")))
    assert (again.duplicate, again.status) == (True, "SUCCESS")
    assert desk.take() == {}
