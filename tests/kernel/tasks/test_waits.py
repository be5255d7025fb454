"""Steps that ask, wait and listen: no lease, no place in the window, one way to end."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from relaymesh.errors import Conflict, InvalidValue, NotFound, SignalsFull, Unauthorized
from relaymesh.kernel.commands import Ack, Nack, Receive
from relaymesh.kernel.tasks.commands import Answer, Signal
from relaymesh.kernel.tasks.plan import StepPlan, WaitPlan
from relaymesh.kernel.waiter import Waiter
from tests.kernel.driver import MINUTE
from tests.kernel.tasks.office import Office, office, plan, step

OWNER = "default/boss"


def ask(name: str, *needs: int, **fields: Any) -> StepPlan:
    wait = WaitPlan(kind="ask", options=fields.pop("options", ()), default=fields.pop("default", None))
    return step(name, *needs, mailbox=OWNER, wait=wait, **fields)


def listen(name: str, *needs: int, signal: str = "go", **fields: Any) -> StepPlan:
    wait = WaitPlan(kind="signal", signal=signal, default=fields.pop("default", None))
    return step(name, *needs, mailbox="", wait=wait, **fields)


def pause(name: str, ms: int, *needs: int) -> StepPlan:
    return step(name, *needs, mailbox="", wait=WaitPlan(kind="wait"), timeout_ms=ms)


def desk_with(*steps: StepPlan, **fields: Any) -> Office:
    desk = office("worker", "boss", "stranger")
    desk.submit(plan(*steps, **fields))
    return desk


def answer(desk: Office, value: bytes = b'"yes"', by: str = OWNER, name: str = "approve") -> str:
    return str(desk.do(Answer("t1", name, value, by)).result)


def mail_of(desk: Office, mailbox: str = OWNER) -> list[int]:
    found = desk.do(Receive(mailbox, Waiter("boss-1", 10), False)).delivered or ()
    return [row.token for delivered in found for row in delivered.deliveries.rows()]


def test_a_question_is_mail_and_its_answer_is_the_output() -> None:
    desk = desk_with(ask("approve"), step("ship", 0))
    assert desk.statuses() == {"approve": "RUNNING", "ship": "PENDING"}
    (token,) = mail_of(desk)
    assert answer(desk) == "RUNNING"
    assert desk.kernel.state.lease(token) is None, "the question is settled with the answer"
    desk.finish(desk.take()["ship"])
    assert desk.end().status == "SUCCESS"


def test_a_question_may_be_acked_first_and_answered_later() -> None:
    desk = desk_with(ask("approve"))
    desk.do(Ack(mail_of(desk)))
    desk.pass_time(60 * MINUTE)
    assert desk.statuses() == {"approve": "RUNNING"}
    answer(desk)
    assert desk.end().result == b'"yes"'


def test_only_the_agent_that_was_asked_may_answer() -> None:
    desk = desk_with(ask("approve"))
    with pytest.raises(Unauthorized, match="asks 'boss', not 'stranger'"):
        answer(desk, by="default/stranger")
    assert desk.statuses() == {"approve": "RUNNING"}


def test_the_first_answer_wins() -> None:
    desk = desk_with(ask("approve"), step("ship", 0))
    answer(desk)
    with pytest.raises(Conflict, match="was answered already"):
        answer(desk, b'"no"')


@pytest.mark.parametrize(
    ("command", "error", "text"),
    [
        (Answer("t1", "approve", b'"perhaps"', OWNER), InvalidValue, "is no answer to step 'approve'"),
        (Answer("t1", "ship", b'"yes"', OWNER), Conflict, "asks no question"),
        (Answer("t1", "nothing", b'"yes"', OWNER), NotFound, "has no step 'nothing'"),
        (Answer("t9", "approve", b'"yes"', OWNER), NotFound, "there is no live task t9"),
        (Answer("t1", "later", b'"yes"', OWNER), Conflict, "does not ask yet"),
    ],
)
def test_an_answer_that_does_not_count_is_refused_by_name(command: Answer, error: Any, text: str) -> None:
    desk = desk_with(ask("approve", options=("yes", "no")), step("ship", 0), ask("later", 1))
    with pytest.raises(error, match=text):
        desk.do(command)


@pytest.mark.parametrize("default", [None, b'"stop"'])
def test_when_the_time_is_over_the_default_counts_or_the_step_times_out(default: bytes | None) -> None:
    desk = desk_with(ask("approve", default=default, timeout_ms=MINUTE))
    desk.pass_time(MINUTE - 1)
    assert desk.statuses() == {"approve": "RUNNING"}
    desk.pass_time(1)
    assert desk.end().status == ("TIMEOUT" if default is None else "SUCCESS")
    assert desk.end().result == default
    assert mail_of(desk) == [], "the question was taken back"


@pytest.mark.parametrize("default", [None, b'"stop"'])
def test_a_question_that_dies_unread_counts_as_its_default(default: bytes | None) -> None:
    desk = desk_with(ask("approve", default=default))
    (token,) = mail_of(desk)
    desk.do(Nack(token, "fatal"))
    assert desk.end().status == ("FAILED" if default is None else "SUCCESS")


def test_a_cancel_takes_the_question_back() -> None:
    desk = desk_with(ask("approve"))
    assert desk.cancel() == "CANCELLED"
    assert mail_of(desk) == []
    assert desk.ended_statuses() == {"approve": "CANCELLED"}


def test_a_step_waits_for_its_time_also_over_a_restart() -> None:
    desk = desk_with(pause("sleep", MINUTE), step("next", 0))
    desk.pass_time(MINUTE // 2)
    desk.restart()
    desk.pass_time(MINUTE // 2 - 1)
    assert desk.take() == {}
    desk.pass_time(1)
    assert list(desk.take()) == ["next"]


def test_a_wait_holds_no_place_in_the_window() -> None:
    waits = [listen(f"w{i}", signal=f"s{i}") for i in range(150)]
    desk = desk_with(*waits, step("work"))
    assert list(desk.take()) == ["work"]


def test_a_signal_ends_the_first_step_that_waits_for_it() -> None:
    desk = desk_with(listen("a"), listen("b"), listen("other", signal="stop"))
    assert desk.do(Signal("t1", "go", "s1", b"1")).result is False
    assert desk.statuses() == {"a": "SUCCESS", "b": "RUNNING", "other": "RUNNING"}
    assert desk.do(Signal("t1", "go", "s1", b"1")).result is True, "the same id counts once"
    desk.do(Signal("t1", "go", "s2", b"2"))
    desk.do(Signal("t1", "stop", "s3", b"3"))
    assert json.loads(desk.end().result or b"") == {"a": 1, "b": 2, "other": 3}


@pytest.mark.parametrize("again", ["restart", "restart_from_snapshot"])
def test_early_signals_are_kept_in_their_order(again: str) -> None:
    desk = desk_with(step("work"), listen("a", 0), listen("b", 1))
    for number in range(2):
        desk.do(Signal("t1", "go", f"s{number}", b"%d" % number))
    getattr(desk, again)()
    desk.pass_time(MINUTE)
    desk.finish(desk.take()["work"])
    assert desk.end().status == "SUCCESS"
    assert desk.end().result == b"1", "b got the second one"


def test_early_signals_are_refused_beyond_the_bound() -> None:
    desk = desk_with(step("work"), listen("a", 0))
    refused = 0
    for number in range(10_000):
        try:
            desk.do(Signal("t1", "go", f"s{number}", b"1"))
        except SignalsFull:
            refused += 1
    assert refused == 9_900
    task = desk.kernel.state.board.tasks["t1"]
    assert task.signals is not None
    assert len(task.signals.kept) == 100


def test_a_signal_to_a_task_that_ended_is_refused() -> None:
    desk = desk_with(step("work"))
    desk.finish(desk.take()["work"])
    with pytest.raises(NotFound):
        desk.do(Signal("t1", "go", "s1"))


def test_a_question_to_a_full_mailbox_waits_for_room() -> None:
    desk = office("worker")
    desk.agent("boss", capacity=1)
    desk.send(OWNER, "first")
    desk.submit(plan(ask("approve")))
    assert desk.statuses() == {"approve": "PENDING"}
    assert desk.kernel.state.board.tasks["t1"].blocked == f"mailbox {OWNER} is full"
    desk.do(Ack(mail_of(desk)))
    desk.move_on("t1")
    assert desk.statuses() == {"approve": "RUNNING"}


def test_what_a_signal_costs_does_not_grow_with_the_steps_that_wait() -> None:
    def calls(items: int) -> int:
        desk = desk_of_listeners(items)
        counted = 0

        def count(frame: object, event: str, argument: object) -> None:
            nonlocal counted
            counted += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            desk.do(Signal("t1", "go", "last"))
        finally:
            sys.setprofile(None)
        return counted

    assert calls(400) <= calls(40) + 20


def desk_of_listeners(items: int) -> Office:
    """So many steps wait, and many signals are kept that none of them waits for."""
    desk = office()
    desk.items = {"each": [b"1"] * items}
    desk.submit(plan(listen("each", for_each="items")))
    for number in range(90):
        desk.do(Signal("t1", "other", f"s{number}"))
    return desk


def test_of_the_steps_that_wait_the_one_that_began_first_takes_the_signal_also_after_a_restart() -> None:
    desk = desk_with(pause("before", MINUTE), listen("late", 0), listen("early"))
    desk.pass_time(2 * MINUTE)
    desk.restart()
    desk.do(Signal("t1", "go", "s1", b"1"))
    assert (desk.statuses()["early"], desk.statuses()["late"]) == ("SUCCESS", "RUNNING")
