"""Steps that go on as other steps: one task, one cancel, and the step completes with their outputs."""

from __future__ import annotations

from typing import Any

import pytest

from relaymesh.errors import Conflict, InvalidPlan, LeaseLost
from relaymesh.kernel.query import GrowthScope, ReadySteps
from relaymesh.kernel.tasks.commands import Cancel, Grow
from relaymesh.kernel.tasks.growing import DEPTH_MAX
from relaymesh.kernel.tasks.plan import StepPlan, WaitPlan
from tests.kernel.driver import MINUTE
from tests.kernel.tasks.office import Office, office, plan, step


def grown(*steps: StepPlan, **fields: Any) -> Office:
    """A task whose first step goes on as these. The next one follows it; the last one reads its output."""
    desk = office()
    desk.submit(plan(step("grow", grows=True, **fields), step("next", 0), step("last", 1, refers=(0,))))
    desk.do(Grow(desk.take()["grow"], steps))
    return desk


def test_the_step_completes_with_the_output_of_its_last_step() -> None:
    desk = grown(step("a"), step("b", 0))
    assert desk.statuses()["grow"] == "RUNNING"
    desk.finish(desk.take()["grow/a"], b"1")
    desk.finish(desk.take()["grow/b"], b"2")
    assert desk.live("grow").output == b"2"
    assert list(desk.take()) == ["next"]


def test_several_last_steps_give_an_object() -> None:
    desk = grown(step("a"), step("b"))
    for token in desk.take().values():
        desk.finish(token, b"1")
    assert desk.live("grow").output == b'{"a":1,"b":1}'


def test_a_step_that_does_not_grow_refuses() -> None:
    desk = office()
    desk.submit(plan(step("plain")))
    token = desk.take()["plain"]
    with pytest.raises(InvalidPlan, match="step plain of task t1 may not add steps"):
        desk.do(Grow(token, (step("a"),)))
    assert desk.statuses() == {"plain": "RUNNING"}


def test_a_stale_holder_adds_nothing() -> None:
    desk = grown(step("a"))
    with pytest.raises(LeaseLost):
        desk.do(Grow(12_345, (step("a"),)))


def test_a_task_that_closes_begins_nothing_new() -> None:
    desk = office()
    desk.submit(plan(step("grow", grows=True), step("bad")))
    taken = desk.take()
    desk.fail_for_good(taken["bad"])
    with pytest.raises(Conflict, match="begins no new steps"):
        desk.do(Grow(taken["grow"], (step("a"),)))


def test_an_agent_that_is_not_there_is_named() -> None:
    desk = office()
    desk.submit(plan(step("grow", grows=True)))
    with pytest.raises(InvalidPlan, match="step 'grow/a': agent 'nobody' has no mailbox"):
        desk.do(Grow(desk.take()["grow"], (step("a", mailbox="default/nobody"),)))


def test_groups_are_at_most_so_deep() -> None:
    desk = office()
    desk.submit(plan(step("g", grows=True)))
    for _ in range(DEPTH_MAX):
        ((_, token),) = desk.take().items()
        desk.do(Grow(token, (step("g", grows=True),)))
    ((name, token),) = desk.take().items()
    assert name == "/".join(["g"] * (DEPTH_MAX + 1))
    with pytest.raises(InvalidPlan, match="a deeper group is not allowed"):
        desk.do(Grow(token, (step("g"),)))
    desk.finish(token, b"7")
    assert desk.end().result == b"7"


def test_at_most_ten_thousand_steps_are_added() -> None:
    desk = office()
    desk.submit(plan(step("g", grows=True), step("h", grows=True)))
    taken = desk.take()
    desk.do(Grow(taken["g"], tuple(step(f"s{i}") for i in range(6_000))))
    with pytest.raises(InvalidPlan, match="may have 10000 beside its plan, not 12000"):
        desk.do(Grow(taken["h"], tuple(step(f"s{i}") for i in range(6_000))))


def test_a_failure_that_is_not_caught_ends_the_task() -> None:
    desk = grown(step("a"), step("b"), step("c", 0))
    taken = desk.take()
    desk.fail_for_good(taken["grow/a"])
    desk.finish(taken["grow/b"])
    assert desk.end().status == "FAILED"
    assert desk.end().reason == "step grow/a: no"


def test_a_failure_that_the_growing_step_catches_ends_its_group_alone() -> None:
    desk = grown(step("a"), step("b"), step("c", 0), on_failure="continue")
    taken = desk.take()
    desk.fail_for_good(taken["grow/a"])
    assert desk.statuses()["grow/c"] == "CANCELLED"
    desk.finish(taken["grow/b"])
    assert desk.statuses()["grow"] == "FAILED"
    desk.finish(desk.take()["next"])
    desk.finish(desk.take()["last"])
    assert desk.end().status == "SUCCESS"


def test_a_failure_that_a_step_of_the_group_catches_harms_nothing() -> None:
    desk = grown(step("a", on_failure="continue"), step("b", 0))
    desk.fail_for_good(desk.take()["grow/a"])
    desk.finish(desk.take()["grow/b"], b"2")
    assert desk.live("grow").status == "SUCCESS"


def test_new_steps_read_what_the_growing_step_may_read() -> None:
    desk = office()
    desk.submit(plan(step("first"), step("grow", 0, grows=True, sees=(0,))))
    desk.finish(desk.take()["first"], b'"kept"')
    token = desk.take()["grow"]
    scope = desk.kernel.look(GrowthScope(token))
    assert scope is not None
    assert scope.names == {"first": 0}
    desk.advances = False
    desk.do(Grow(token, (step("a", outer=(0,)),)))
    ready = desk.kernel.look(ReadySteps("t1"))
    assert ready is not None
    assert ready.steps[0].outputs == (("first", b'"kept"'),)


@pytest.mark.parametrize("restarts", ["restart", "restart_from_snapshot"])
def test_a_group_survives_a_restart(restarts: str) -> None:
    desk = grown(step("a"), step("b", 0))
    getattr(desk, restarts)()
    desk.pass_time(MINUTE)
    desk.finish(desk.take()["grow/a"])
    desk.finish(desk.take()["grow/b"], b"2")
    desk.finish(desk.take()["next"])
    desk.finish(desk.take()["last"])
    assert desk.end().status == "SUCCESS"


def test_a_stored_workflow_is_included_for_each_item() -> None:
    desk = office()
    desk.items = {"each": [b"1", b"2"]}
    desk.stored = {"part": (step("x"), step("y", 0))}
    desk.submit(plan(step("each", mailbox="", include="part", for_each="items")))
    for _ in range(2):
        for name, token in desk.take().items():
            desk.finish(token, f'"{name}"'.encode())
    assert desk.end().result == b'["each/0/y","each/1/y"]'


def test_an_included_workflow_that_cannot_run_fails_its_step() -> None:
    desk = office()
    desk.stored = {"part": (step("x", mailbox="default/nobody"),)}
    desk.submit(plan(step("inner", mailbox="", include="part")))
    assert desk.ended_step("inner").code == "invalid_plan"
    assert "has no mailbox" in desk.ended_step("inner").reason


@pytest.mark.parametrize("downtime", [False, True])
def test_steps_of_a_group_that_run_out_of_time_together_end_each_once(downtime: bool) -> None:
    late = {"mailbox": "", "timeout_ms": MINUTE}
    fails = step("a", wait=WaitPlan(kind="signal", signal="go"), **late)
    desk = grown(fails, step("b", wait=WaitPlan(kind="wait"), **late), on_failure="continue")
    if downtime:
        desk.now += 2 * MINUTE
        desk.restart()
    desk.pass_time(2 * MINUTE)
    assert desk.statuses() | {"next": "", "last": ""} == {
        "grow": "FAILED",
        "grow/a": "TIMEOUT",
        "grow/b": "CANCELLED",
        "next": "",
        "last": "",
    }


def test_a_hard_cancel_ends_a_group_that_a_failure_is_about_to_stop() -> None:
    listens = step("a", mailbox="", wait=WaitPlan(kind="signal", signal="go"))
    desk = grown(listens, step("inner", grows=True), on_failure="continue")
    desk.do(Grow(desk.take()["grow/inner"], (step("x"), step("y"))))
    desk.fail_for_good(desk.take()["grow/inner/y"])
    desk.do(Cancel("t1", hard=True))
    assert desk.end().status == "CANCELLED"
    assert desk.ended_step("grow/a").status == "CANCELLED"
