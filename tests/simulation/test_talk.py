"""The ledger of tasks knows waits, undoing, budgets, growth and mail, and says what the docs say of them."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest

from relaymesh.kernel.tasks.plan import Plan, StepPlan, WaitPlan, check_plan, check_steps
from relaymesh.testing.simulation import run_seed
from relaymesh.testing.simulation.checkers import check_talk
from relaymesh.testing.simulation.history import Answered, BudgetAsked, Delivery, History, Settled, Signalled
from relaymesh.testing.simulation.ledger import Ledger
from relaymesh.testing.simulation.plan import make_plan
from relaymesh.testing.simulation.task_ledger import TaskLedger
from relaymesh.testing.simulation.told import StepTold
from relaymesh.testing.simulation.verdict import Violation
from relaymesh.testing.simulation.workflows import enriched, random_group, random_plan
from tests.simulation.stories import plan_of

BOX = "default/worker"
TASK = "t1"
UNDO = StepPlan(name="a", mailbox=BOX, input=b"{}")


def step(name: str, needs: tuple[int, ...] = (), **more: Any) -> StepPlan:
    return StepPlan(name=name, mailbox=more.pop("mailbox", BOX), input=b"{}", needs=needs, **more)


def undoable(name: str, needs: tuple[int, ...] = ()) -> StepPlan:
    return step(name, needs, undo=msgspec.structs.replace(UNDO, name=name))


def ledger_of(*steps: StepPlan, mail: tuple[Any, ...] = (), **plan: Any) -> TaskLedger:
    ledger = TaskLedger()
    told = plain(Plan(name="w", steps=steps, **plan))
    ledger.submitted(1, [19, 1, 1, TASK, told, b"{}", "k", b"r", "default/me", None, *mail])
    return ledger


def plain(value: Any) -> Any:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(value))


def send(ledger: TaskLedger, number: int, *, token: int = 0, at: int = 2, **said: Any) -> StepTold:
    name = ledger.tasks[TASK].steps[number].name
    content = {"task": TASK, "step": name, "workflow": "w", "input": {}, **said}
    told = ledger.sent(at, TASK, number, BOX, json.dumps(content).encode())
    if token:
        ledger.granted(told, at, token, 0)
    return told


def end(ledger: TaskLedger, number: int, status: str = "SUCCESS", token: int = 0, **more: Any) -> None:
    output = more.get("output", b"1")
    outputs = [output] if status == "SUCCESS" else []
    code = more.get("code", "")
    ledger.steps_ended(more.get("at", 3), [21, 1, 3, TASK, [number], status, outputs, token, code, ""], set())


def do(ledger: TaskLedger, number: int, token: int) -> None:
    send(ledger, number, token=token)
    end(ledger, number, token=token)


def breaks(invariant: str) -> Any:
    return pytest.raises(Violation, match=invariant)


def test_every_richer_plan_is_a_plan_and_every_group_is_one() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        check_plan(enriched(rng, random_plan(rng, [BOX]), [BOX]))
        check_steps(random_group(rng, "g1_", {"s0": 0}, [BOX], [BOX]), "a group")


def test_a_run_that_talks_to_tasks_is_the_same_again() -> None:
    played = (run_seed(seed, keep_trace=True) for seed in range(200) if make_plan(seed).talk)
    first = next(each for each in played if any(" signal " in line for line in each.trace))
    assert (run_seed(first.seed).digest, first.violation) == (first.digest, None)


# -- waits


def waiting(kind: Any, **fields: Any) -> TaskLedger:
    """A step that waits for a second, if it has a limit."""
    timeout_ms = fields.pop("timeout_ms", 1_000)
    signal = "go" if kind == "signal" else ""
    plan = StepPlan(
        name="a",
        mailbox=BOX if kind == "ask" else "",
        input=b"1" if kind == "wait" else b'{"question": "why?"}',
        timeout_ms=0 if kind == "wait" else timeout_ms,
        wait=WaitPlan(kind=kind, signal=signal, **fields),
    )
    ledger = ledger_of(plan)
    asked = (7, BOX) if kind == "ask" else (-1, "")
    until = 1_002 if kind == "wait" or timeout_ms else 0
    content: dict[str, Any] = {"task": TASK, "step": "a", "workflow": "w", "question": "why?"}
    content |= {"timeoutSeconds": timeout_ms / 1000} if timeout_ms else {}
    content |= {"options": list(fields["options"])} if "options" in fields else {}
    question = json.dumps(content).encode() if kind == "ask" else None
    ledger.waits(2, [28, 1, 2, TASK, 0, kind, until, *asked], question)
    return ledger


def test_a_wait_does_not_end_early() -> None:
    with breaks("wait_kept"):
        end(waiting("wait"), 0, at=1_001, output=b"null")
    end(waiting("wait"), 0, at=1_002, output=b"null")
    with breaks("wait_kept"):
        end(waiting("ask", default=b"5"), 0, code="default", at=1_001, output=b"5")
    with breaks("wait_kept"):
        end(waiting("ask", default=b"5"), 0, code="default", at=1_002, output=b"6")
    with breaks("wait_kept"):
        end(waiting("signal", timeout_ms=0), 0, "TIMEOUT", code="timeout", at=9_000)
    end(waiting("signal"), 0, "TIMEOUT", code="timeout", at=1_002)


def signal(ledger: TaskLedger, id: str, name: str = "go") -> None:
    ledger.signalled(3, [29, 1, 3, TASK, name, id, json.dumps(id).encode()])


def test_signals_are_taken_once_and_in_their_order() -> None:
    ledger = waiting("signal")
    signal(ledger, "other", "stop")
    ledger.check_frame(set())
    signal(ledger, "first")
    signal(ledger, "second")
    with breaks("signal_once"):
        ledger.check_frame(set())
    with breaks("signal_once"):
        end(ledger, 0, output=b'"second"')
    with breaks("signal_once"):
        signal(ledger, "first")
    end(ledger, 0, output=b'"first"')
    assert [id for _, id, _ in ledger.tasks[TASK].signals] == ["other", "second"]


def test_a_task_keeps_at_most_a_hundred_signals() -> None:
    ledger = waiting("ask")
    for number in range(100):
        signal(ledger, f"s{number}")
    with breaks("signal_once"):
        signal(ledger, "one too many")


def story_of(ledger: TaskLedger) -> tuple[History, Ledger]:
    history = History(plan_of())
    whole = Ledger(history.plan)
    whole.tasks = ledger
    return history, whole


def answer(by: str = BOX, value: bytes = b'"yes"', told: Any = "done") -> Answered:
    return Answered(TASK, "a", value, by, 1, told)


@pytest.mark.parametrize(
    "answers",
    [
        [],
        [answer("default/stranger")],
        [answer(), answer()],
        [answer(value=b'"no"')],
        [answer(told="refused")],
    ],
    ids=["none", "a stranger", "twice", "another", "refused"],
)
def test_only_the_first_answer_of_the_agent_that_was_asked_counts(answers: list[Answered]) -> None:
    ledger = waiting("ask")
    end(ledger, 0, output=b'"yes"')
    history, whole = story_of(ledger)
    history.answers = [answer(), answer("default/stranger", told="refused"), answer(told="refused")]
    check_talk(history, whole, {})
    history.answers = answers
    with breaks("answer_counts"):
        check_talk(history, whole, {})


def test_an_answer_is_one_of_the_options() -> None:
    with breaks("answer_counts"):
        end(waiting("ask", options=("yes", "no")), 0, output=b'"perhaps"')


def test_the_default_counts_when_the_question_dies() -> None:
    ledger = waiting("ask", default=b"5")
    ledger.question_gone(ledger.tasks[TASK].steps[0], 3, "not_retryable")
    assert ledger.tasks[TASK].steps[0].output == 5
    ledger = waiting("ask")
    ledger.question_gone(ledger.tasks[TASK].steps[0], 3, "not_retryable")
    assert ledger.tasks[TASK].steps[0].status == "FAILED"


def test_signals_that_were_taken_are_there() -> None:
    ledger = waiting("signal")
    signal(ledger, "s", "stop")
    sent = Signalled(TASK, "stop", "s", b'"s"', 1, 2, "done")
    history, whole = story_of(ledger)
    for wrong in (
        [],
        [sent, Signalled(TASK, "stop", "s", b'"s"', 3, 4, "done")],
        [Signalled(TASK, "stop", "s", b'"s"', 1, 2, "done", "", True)],
        [sent, Signalled(TASK, "stop", "lost", b"1", 3, 4, "done")],
    ):
        history.signals = wrong
        with breaks("signal_once"):
            check_talk(history, whole, {})
    history, whole = story_of(ledger)
    history.signals = [sent, Signalled(TASK, "stop", "s", b'"s"', 3, 4, "done", "", True)]
    check_talk(history, whole, {})


# -- undoing


def closing() -> TaskLedger:
    """Three steps: done, done, and under way when the task was cancelled."""
    ledger = ledger_of(undoable("a"), undoable("b"), undoable("c"), undoable("d"))
    do(ledger, 0, 5)
    do(ledger, 1, 6)
    send(ledger, 2, token=7)
    send(ledger, 3, token=8)
    end(ledger, 3, "FAILED", 8)
    ledger.closing(4, [23, 1, 4, TASK, "FAILED", "", "", True])
    end(ledger, 2, "CANCELLED", code="withdrawn")
    return ledger


def undo(ledger: TaskLedger, numbers: list[int], uncertain: list[bool]) -> None:
    ledger.undoing(5, [31, 1, 5, TASK, numbers, uncertain])


def test_what_was_done_is_undone_once_and_in_reverse_order() -> None:
    for invariant, numbers, uncertain in (
        ("undo_order", [1, 0, 2], [False, False, True]),
        ("undo_once", [2, 1], [True, False]),
        ("undo_once", [3, 2, 1, 0], [True, True, False, False]),
        ("undo_uncertain", [2, 1, 0], [False, False, False]),
    ):
        with breaks(invariant):
            undo(closing(), numbers, uncertain)
    with breaks("undo_once"):
        closing().ended(9, [24, 1, 9, TASK, "FAILED", b"null"])
    ledger = closing()
    undo(ledger, [2, 1, 0], [True, False, False])
    with breaks("undo_once"):
        undo(ledger, [2, 1, 0], [True, False, False])


def test_undoing_goes_on_one_step_at_a_time_whatever_happens() -> None:
    ledger = closing()
    undo(ledger, [2, 1, 0], [True, False, False])
    with breaks("undo_order"):
        send(ledger, 5, undoes="b", uncertain=False)
    with breaks("follows_plan"):
        send(ledger, 4, undoes="c", uncertain=False)
    send(ledger, 4, token=9, undoes="c", uncertain=True)
    with breaks("undo_once"):
        ledger.closing(6, [23, 1, 6, TASK, "FAILED", "", "", True])
    with breaks("undo_once"):
        end(ledger, 4, "CANCELLED", code="withdrawn")
    end(ledger, 4, token=9)
    with breaks("undo_once"):
        ledger.ended(9, [24, 1, 9, TASK, "FAILED", b"null"])


# -- budgets


def use(ledger: TaskLedger, token: int, cost: int, number: int = 0) -> None:
    ledger.used(3, [32, 1, 3, TASK, number, token, cost, 0])


def test_usage_is_the_total_of_an_attempt() -> None:
    ledger = ledger_of(step("a"), cost_micros=50)
    told = send(ledger, 0, token=5)
    use(ledger, 5, 20)
    for token, cost in ((5, 20), (5, 10), (4, 30)):
        with breaks("usage_once"):
            use(ledger, token, cost)
    use(ledger, 5, 30)
    ledger.granted(told, 3, 6, 0)
    use(ledger, 6, 10)
    assert ledger.tasks[TASK].total == (40, 0)
    history, whole = story_of(ledger)
    for counted in (30, 50):
        with breaks("usage_once"):
            check_talk(history, whole, {TASK: (counted, 0)})


def test_a_task_that_has_used_its_budget_pauses_at_once() -> None:
    ledger = ledger_of(step("a"), step("b"), cost_micros=20)
    first, second = send(ledger, 0, token=5), send(ledger, 1)
    with breaks("budget_kept"):
        ledger.paused(3, [33, 1, 3, TASK, "why"])
    use(ledger, 5, 20)
    with breaks("budget_kept"):
        ledger.check_frame({first})
    ledger.paused(3, [33, 1, 3, TASK, "why"])
    with breaks("budget_kept"):
        ledger.check_frame({first})
    with breaks("budget_kept"):
        ledger.granted(second, 3, 6, 0)
    with breaks("budget_kept"):
        ledger.withdrawn(first, b"{}", leased=True)
    ledger.withdrawn(second, b"{}", leased=False)
    ledger.check_frame({first})
    with breaks("budget_kept"):
        ledger.sent(4, TASK, 1, BOX, b"{}")
    ledger.budget_set(5, [34, 1, 5, TASK, 0, 0])
    with breaks("follows_plan"):
        ledger.sent(5, TASK, 1, BOX, b'{"other": 1}')
    ledger.sent(5, TASK, 1, BOX, b"{}")
    ledger.check_frame({first})


def test_a_budget_that_was_taken_is_there() -> None:
    ledger = ledger_of(step("a"), cost_micros=20)
    ledger.budget_set(5, [34, 1, 5, TASK, 30, 0])
    history, whole = story_of(ledger)
    history.budgets = [BudgetAsked(TASK, 30, None, "done"), BudgetAsked(TASK, 40, None, "refused")]
    check_talk(history, whole, {})
    history.budgets.append(BudgetAsked(TASK, 40, None, "done"))
    with breaks("budget_kept"):
        check_talk(history, whole, {})


# -- growing


def grown(**parent: Any) -> TaskLedger:
    ledger = ledger_of(step("a", grows=True, **parent), step("b", (0,)))
    send(ledger, 0, token=5)
    plans = plain((step("x"), step("y", (0,))))
    ledger.added(3, [22, 1, 3, TASK, 0, [], plans, None, 5])
    return ledger


def test_a_step_completes_with_the_output_of_its_group() -> None:
    ledger = grown()
    with breaks("needs_first"):
        send(ledger, 3)
    do(ledger, 2, 6)
    with breaks("needs_first"):
        send(ledger, 1)
    send(ledger, 3, token=7)
    end(ledger, 3, token=7, output=b'"last"')
    assert ledger.tasks[TASK].steps[0].output == "last"
    send(ledger, 1)


def test_a_group_ends_when_a_step_of_it_fails() -> None:
    ledger = grown(on_failure="continue")
    send(ledger, 2, token=6)
    end(ledger, 2, "FAILED", 6)
    assert [told.status for told in ledger.tasks[TASK].steps] == ["FAILED", "PENDING", "FAILED", "CANCELLED"]
    assert not ledger.tasks[TASK].closing


def test_only_the_holder_of_a_step_that_may_grow_lets_it_grow() -> None:
    ledger = ledger_of(step("a", grows=True), step("b"))
    send(ledger, 0, token=5)
    send(ledger, 1, token=6)
    for number, token, invariant in ((0, 4, "last_grant_settles"), (1, 6, "follows_plan")):
        with breaks(invariant):
            ledger.added(3, [22, 1, 3, TASK, number, [], plain((step("x"),)), None, token])
    history, whole = story_of(grown())
    with breaks("follows_plan"):
        check_talk(history, whole, {})
    delivery = Delivery(5, BOX, 3, "m", b"{}", 1, 9, "me", True, 1, 2, 0, 9, True)
    plans = plain((step("x"), step("y", (0,))))
    history.settles.append(Settled(delivery, "grow", 2, 3, 0, answer="done", steps=plans))
    check_talk(history, whole, {})


# -- mail


def envelope(type: str, **content: Any) -> list[Any]:
    told = {"task": TASK, "workflow": "w", "key": "k", **content}
    return ["id", "default/relaymesh", json.dumps(told).encode(), 0, type]


def test_mail_about_a_task_is_sent_once() -> None:
    ledger = ledger_of(step("a"), mail=("default/you", ["update"]))
    do(ledger, 0, 5)
    ledger.ended(9, [24, 1, 9, TASK, "SUCCESS", b"1"])
    history, whole = story_of(ledger)
    with breaks("mail_once"):
        check_talk(history, whole, {})
    record = [35, 1, 9, TASK, "result", "default/you"]
    with breaks("mail_once"):
        ledger.notice_sent([35, 1, 9, TASK, "update", "default/me"], envelope("task_update"))
    ledger.notice_sent(record, envelope("task_complete", status="SUCCESS", result=1))
    with breaks("mail_once"):
        ledger.notice_sent(record, envelope("task_complete", status="SUCCESS", result=1))
    assert not ledger.owed


def test_mail_about_a_result_has_that_result() -> None:
    for wrong in (envelope("task_complete", status="SUCCESS", result=2), envelope("task_failed"), None):
        ledger = ledger_of(step("a"), mail=("default/you", []))
        do(ledger, 0, 5)
        ledger.ended(9, [24, 1, 9, TASK, "SUCCESS", b"1"])
        with breaks("mail_once"):
            ledger.notice_sent([35, 1, 9, TASK, "result", "default/you"], wrong)
