"""A task that ends without success undoes what it did: once, one at a time, the last first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from relaymesh.errors import TaskOver
from relaymesh.kernel.commands import Ack, PurgeDeadLetters, Tick
from relaymesh.kernel.query import ReadySteps
from relaymesh.kernel.records import DeadLettered
from relaymesh.kernel.step import NotUndone, Step
from relaymesh.kernel.tasks.commands import Advance, Fail, Move
from relaymesh.kernel.tasks.plan import StepPlan
from tests.kernel.driver import MINUTE
from tests.kernel.tasks.office import AGENT, Office, office, plan, step


def undoable(name: str, *needs: int, **fields: Any) -> StepPlan:
    return step(name, *needs, undo=step(name), **fields)


def desk_with(*steps: StepPlan, **fields: Any) -> Office:
    desk = office()
    desk.submit(plan(*steps, **fields))
    return desk


def do_one(desk: Office, name: str, output: bytes = b"null") -> None:
    desk.finish(desk.take()[name], output)


def undo_all(desk: Office) -> list[str]:
    """Do what is undone, one by one; returns the names."""
    order = []
    while taken := desk.take():
        ((name, token),) = taken.items()
        order.append(name)
        desk.finish(token)
    return order


def failed_chain() -> Office:
    desk = desk_with(undoable("a"), undoable("b", 0), step("c", 1), step("bad", 2))
    for name in "abc":
        do_one(desk, name)
    desk.fail_for_good(desk.take()["bad"])
    return desk


def test_what_was_done_is_undone_in_reverse_order_one_at_a_time() -> None:
    desk = failed_chain()
    assert desk.kernel.state.board.tasks["t1"].status == "RUNNING"
    assert undo_all(desk) == ["b!undo", "a!undo"]
    assert desk.end().status == "FAILED"
    assert desk.ended_statuses()["a"] == "SUCCESS", "the step itself keeps its state"


@pytest.mark.parametrize("restarts", ["restart", "restart_from_snapshot"])
def test_a_restart_at_any_moment_undoes_neither_twice_nor_less(restarts: str) -> None:
    desk = failed_chain()
    order = []
    while True:
        getattr(desk, restarts)()
        desk.pass_time(MINUTE)
        if "t1" in desk.kernel.state.board.tasks:
            desk.move_on("t1")
        taken = desk.take()
        if not taken:
            break
        ((name, token),) = taken.items()
        order.append(name)
        desk.finish(token)
    assert order == ["b!undo", "a!undo"]
    assert desk.kernel.state.board.tasks == {}


def test_a_step_that_said_it_cannot_is_not_undone() -> None:
    desk = desk_with(undoable("only"))
    desk.fail_for_good(desk.take()["only"])
    assert desk.end().status == "FAILED"
    assert list(desk.ended_statuses()) == ["only"]


def test_a_step_whose_outcome_is_not_known_is_undone_as_uncertain() -> None:
    desk = desk_with(undoable("lost"), step("bad"))
    taken = desk.take()
    desk.cancel(hard=True)
    assert undo_all(desk) == ["lost!undo"]
    assert desk.ended_step("lost!undo").uncertain
    assert desk.end().status == "CANCELLED"
    assert set(taken) == {"lost", "bad"}


def test_what_undoes_an_uncertain_step_reads_no_output_of_it() -> None:
    """The step has an error for its output by then, which is no result of its work."""
    desk = desk_with(undoable("lost"))
    desk.take()
    desk.advances = False
    desk.cancel(hard=True)
    ready = desk.kernel.look(ReadySteps("t1"))
    assert ready is not None
    assert [(each.undoes, each.uncertain, each.output) for each in ready.steps] == [("lost", True, None)]


def test_a_holder_may_finish_before_anything_is_undone() -> None:
    desk = desk_with(undoable("slow"), step("bad"))
    taken = desk.take()
    desk.fail_for_good(taken["bad"])
    assert desk.take() == {}
    desk.finish(taken["slow"], b"1")
    assert undo_all(desk) == ["slow!undo"]
    assert not desk.ended_step("slow!undo").uncertain


def test_neither_cancel_nor_deadline_stops_it() -> None:
    desk = desk_with(undoable("a"), step("bad", 0), deadline_ms=10 * MINUTE)
    do_one(desk, "a")
    desk.fail_for_good(desk.take()["bad"])
    assert desk.cancel(hard=True) == "RUNNING"
    desk.pass_time(20 * MINUTE)
    assert undo_all(desk) == ["a!undo"]
    assert desk.end().status == "FAILED"


def test_its_dead_letter_raises_an_alert_and_waits_for_a_redrive() -> None:
    desk = failed_chain()
    desk.dies(desk.take()["b!undo"])
    (died,) = [record for record in desk.records if isinstance(record, DeadLettered)]
    assert died.alert
    assert desk.kernel.state.board.tasks["t1"].status == "DEAD_LETTER"
    assert desk.take() == {}, "the next one waits"
    desk.redrive(*desk.letters)
    assert undo_all(desk) == ["b!undo", "a!undo"]


def cannot_be_evaluated(desk: Office) -> Step:
    """The expression of its input fails: the shell says so."""
    task = desk.kernel.state.board.tasks["t1"]
    (number,) = task.ready
    return desk.do(Advance("t1", [Move(number, "fail", code="expression", reason="no such key")], ["m"]))


@pytest.mark.parametrize(
    ("ends", "told"),
    [
        (cannot_be_evaluated, ("FAILED", "expression", "no such key")),
        (lambda desk: desk.do(Fail(desk.take()["b!undo"], "failed", "no")), ("FAILED", "failed", "no")),
        (lambda desk: desk.do(Ack([desk.take()["b!undo"]], drop=True)), ("FAILED", "dropped", "")),
        (lambda desk: desk.do(Tick()), ("TIMEOUT", "timeout", "it took longer than 60000 ms")),
    ],
    ids=["expression", "failed", "dropped", "timeout"],
)
def test_an_undo_that_ends_without_success_is_told_once(
    ends: Callable[[Office], Step], told: tuple[str, str, str]
) -> None:
    steps = [
        step(name, *needs, undo=step(name, timeout_ms=MINUTE)) for name, needs in (("a", ()), ("b", (0,)))
    ]
    desk = desk_with(*steps, step("bad", 1))
    do_one(desk, "a")
    do_one(desk, "b")
    token = desk.take()["bad"]
    desk.advances = ends is not cannot_be_evaluated
    desk.fail_for_good(token)
    desk.now += 2 * MINUTE if told[0] == "TIMEOUT" else 0
    assert ends(desk).not_undone == [NotUndone("t1", "b!undo", AGENT, *told)]
    desk.advances = True
    desk.move_on("t1")
    assert undo_all(desk) == ["a!undo"], "the others go on"
    desk.restart()
    assert desk.step.not_undone is None, "it is not told again"


def test_a_purge_of_its_dead_letter_lets_the_others_go_on() -> None:
    desk = failed_chain()
    desk.dies(desk.take()["b!undo"])
    (letter,) = desk.letters
    desk.do(PurgeDeadLetters([(letter.mailbox, letter.dead_sequence)]))
    assert undo_all(desk) == ["a!undo"]
    assert desk.ended_step("b!undo").code == "purged"


def test_the_dead_letter_of_another_step_cannot_be_redriven_meanwhile() -> None:
    desk = desk_with(undoable("a"), step("dead"), step("bad", 0))
    taken = desk.take()
    desk.dies(taken["dead"])
    desk.finish(taken["a"])
    desk.fail_for_good(desk.take()["bad"])
    with pytest.raises(TaskOver):
        desk.redrive(*desk.letters)
    assert undo_all(desk) == ["a!undo"]


def test_items_are_undone_each_for_itself_with_what_they_gave() -> None:
    desk = office()
    desk.items = {"each": [b"1", b"2", b"3"]}
    desk.submit(plan(undoable("each", for_each="items"), step("bad", 0)))
    for name, token in desk.take().items():
        desk.finish(token, name[-1].encode())
    desk.fail_for_good(desk.take()["bad"])
    ready = desk.kernel.look(ReadySteps("t1"))
    assert ready is None, "the first one is out"
    assert undo_all(desk) == ["each/2!undo", "each/1!undo", "each/0!undo"]


def test_a_success_undoes_nothing() -> None:
    desk = desk_with(undoable("a"))
    do_one(desk, "a")
    assert desk.end().status == "SUCCESS"
    assert list(desk.ended_statuses()) == ["a"]
