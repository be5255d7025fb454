"""The simulator plays tasks, the same from the same seed, and its model of plans says what the docs say."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest

from relaymesh.kernel.tasks.plan import Plan, StepPlan, check_plan
from relaymesh.testing.simulation import run_seed
from relaymesh.testing.simulation.checkers import check_purges, check_shown, check_tasks
from relaymesh.testing.simulation.history import Cancelled, History, Redriven, Shown, Submitted
from relaymesh.testing.simulation.ledger import Ledger
from relaymesh.testing.simulation.plan import make_plan
from relaymesh.testing.simulation.task_ledger import KEY_MS, TaskLedger
from relaymesh.testing.simulation.told import StepTold
from relaymesh.testing.simulation.verdict import Violation
from relaymesh.testing.simulation.witness import cut_between
from relaymesh.testing.simulation.workflows import random_plan
from tests.simulation.stories import BOX as MAIL
from tests.simulation.stories import Story, plan_of

BOX = "default/worker"
TASK = "t1"


def ledger_of(*steps: StepPlan) -> TaskLedger:
    ledger = TaskLedger()
    plan = msgspec.msgpack.decode(msgspec.msgpack.encode(Plan(name="w", steps=steps)))
    ledger.submitted(1, [19, 1, 1, TASK, plan, b'{"go": true}', "k", b"r", "default/me"])
    return ledger


def send(ledger: TaskLedger, number: int, name: str, input: Any = None, *, token: int = 0) -> StepTold:
    content = json.dumps({"task": TASK, "step": name, "workflow": "w", "input": input or {}}).encode()
    step = ledger.sent(2, TASK, number, BOX, content)
    if token:
        ledger.granted(step, 2, token, 0)
    return step


def end(ledger: TaskLedger, number: int, status: str, token: int, output: bytes = b"1") -> None:
    outputs = [output] if status == "SUCCESS" else []
    ledger.steps_ended(3, [21, 1, 3, TASK, [number], status, outputs, token, "", ""], set())


def step(name: str, needs: tuple[int, ...] = (), **more: Any) -> StepPlan:
    return StepPlan(name=name, mailbox=BOX, input=b"{}", needs=needs, **more)


def broken(ledger: TaskLedger, *record: Any) -> str:
    with pytest.raises(Violation) as found:
        ledger.ended(9, [24, 1, 9, TASK, *record])
    return found.value.invariant


def test_every_random_plan_is_a_plan() -> None:
    for seed in range(200):
        check_plan(random_plan(random.Random(seed), [BOX]))


def test_a_run_with_tasks_is_the_same_again() -> None:
    seeds = (seed for seed in range(100) if make_plan(seed).task_habits)
    runs = (run_seed(seed, keep_trace=True) for seed in seeds)
    first = next(run for run in runs if any(" submit " in line for line in run.trace))
    second = run_seed(first.seed)
    assert (first.digest, first.violation) == (second.digest, None)


def test_a_task_ends_as_its_steps_say() -> None:
    ledger = ledger_of(step("a"), step("b", (0,)))
    send(ledger, 0, "a", token=5)
    end(ledger, 0, "SUCCESS", 5)
    assert broken(ledger, "SUCCESS", b"1") == "end_follows"
    send(ledger, 1, "b", token=6)
    end(ledger, 1, "SUCCESS", 6, b"[2]")
    assert broken(ledger, "SUCCESS", b"1") == "end_follows"
    ledger.ended(9, [24, 1, 9, TASK, "SUCCESS", b"[2]"])
    assert broken(ledger, "SUCCESS", b"[2]") == "ended_stays"


def test_a_step_waits_for_its_needs_and_is_sent_once() -> None:
    ledger = ledger_of(step("a"), step("b", (0,)))
    with pytest.raises(Violation, match="needs_first"):
        send(ledger, 1, "b")
    send(ledger, 0, "a")
    with pytest.raises(Violation, match="step_sent_once"):
        send(ledger, 0, "a")


def test_only_the_last_grant_settles() -> None:
    ledger = ledger_of(step("a"))
    told = send(ledger, 0, "a", token=5)
    ledger.granted(told, 3, 6, 0)
    with pytest.raises(Violation, match="last_grant_settles"):
        end(ledger, 0, "SUCCESS", 5)


def test_a_handler_runs_only_after_a_failure() -> None:
    ledger = ledger_of(step("a", on_failure="handle", handler=1), step("b", (0,)))
    send(ledger, 0, "a", token=5)
    end(ledger, 0, "SUCCESS", 5)
    with pytest.raises(Violation, match="follows_plan"):
        send(ledger, 1, "b")


def test_the_handler_of_a_fan_out_runs_when_an_item_failed() -> None:
    ledger = ledger_of(step("a", for_each="[10]", on_failure="handle", handler=1), step("b", (0,)))
    ledger.added(2, [22, 1, 2, TASK, 0, [b"10"]])
    send(ledger, 2, "a/0", token=5)
    end(ledger, 2, "FAILED", 5)
    send(ledger, 1, "b")


# -- what clients were shown and told


def ended(status: str = "SUCCESS") -> TaskLedger:
    """A task of one step that has ended, at sequence 7."""
    ledger = ledger_of(step("a"))
    send(ledger, 0, "a", token=5)
    if status == "SUCCESS":
        end(ledger, 0, "SUCCESS", 5)
    else:
        ledger.closing(8, [23, 1, 8, TASK, status, "", "", True])
        ledger.steps_ended(8, [21, 1, 8, TASK, [0], status, [], 0, "withdrawn", ""], set())
    ledger.sequence = 7
    ledger.ended(9, [24, 1, 9, TASK, status, b"1"])
    return ledger


def story_of(ledger: TaskLedger) -> tuple[History, Ledger]:
    history = History(plan_of())
    whole = Ledger(history.plan)
    whole.tasks = ledger
    return history, whole


@pytest.mark.parametrize(
    "shown",
    [
        Shown(TASK, 10, 8),
        Shown(TASK, 10, 8, "RUNNING"),
        Shown(TASK, 10, 0, "FAILED"),
        Shown(TASK, 10, 8, "SUCCESS", b"2"),
        Shown(TASK, 10, 8, "SUCCESS", b"1", {"a": ("FAILED", None)}),
        Shown(TASK, 10, 8, "SUCCESS", b"1", {"a": ("SUCCESS", b"2")}),
        Shown("other", 10, 8, "RUNNING"),
    ],
    ids=["not there", "stale", "wrong end", "wrong result", "wrong step", "wrong output", "no such task"],
)
def test_what_is_shown_of_a_task_is_true(shown: Shown) -> None:
    history, ledger = story_of(ended())
    right: dict[str, tuple[str, bytes | None]] = {"a": ("SUCCESS", b"1")}
    history.shown += [Shown(TASK, 10, 8, "SUCCESS", b"1", right), Shown(TASK, 4, 6, "RUNNING")]
    history.shown.append(Shown(TASK, 9 + KEY_MS, 8))  # after 7 days it may be gone
    check_shown(history, ledger.tasks, has_store=True)
    history.shown.append(shown)
    with pytest.raises(Violation, match="shown_is_true"):
        check_shown(history, ledger.tasks, has_store=True)


def test_without_a_store_a_task_that_ended_may_be_gone() -> None:
    history, ledger = story_of(ended())
    history.shown.append(Shown(TASK, 10, 8))
    check_shown(history, ledger.tasks, has_store=False)


def test_a_cancel_that_was_taken_is_no_success() -> None:
    for told in ("CANCELLED", "RUNNING"):
        history, ledger = story_of(ended())
        ledger.tasks.outcomes.clear()  # which holder ended its step is not judged here
        history.cancels.append(Cancelled(TASK, False, 1, 9, "done", told))
        with pytest.raises(Violation, match="cancel_kept"):
            check_tasks(history, ledger, 10)


def submit(history: History, task: str, *, again: bool = False, **answer: Any) -> None:
    plan = Plan(name="w", steps=(step("a"),))
    order, at = history.next_order(), 10
    asked = Submitted("k", plan, b'{"go": true}', b"r", order, at, 0, again, **{"answer": "done", **answer})
    asked.task, asked.answered = task, history.next_order()
    history.tasks.append(asked)


def anew(ledger: TaskLedger, at: int) -> None:
    plan = msgspec.msgpack.decode(msgspec.msgpack.encode(Plan(name="w", steps=(step("a"),))))
    ledger.submitted(at, [19, 1, at, "t2", plan, b'{"go": true}', "k", b"r", "default/me"])


def test_a_key_runs_anew_only_if_a_client_asks_for_that() -> None:
    ledger = ended("CANCELLED")
    anew(ledger, 10)
    history, whole = story_of(ledger)
    history.cancels.append(Cancelled(TASK, True, 1, 8, "done", "CANCELLED"))
    submit(history, TASK)
    submit(history, "t2", again=True)
    with pytest.raises(Violation, match="task_progress"):  # it was not driven to its end; the key is right
        check_tasks(history, whole, 10)
    history.tasks[-1].again = False
    with pytest.raises(Violation, match="task_once"):
        check_tasks(history, whole, 10)


def test_a_key_is_free_7_days_after_a_success() -> None:
    with pytest.raises(Violation, match="task_once"):
        anew(ended(), 8 + KEY_MS)
    anew(ended(), 9 + KEY_MS)


# -- agents that drain, letters that grow old, crashes


def test_an_agent_that_drains_gets_no_step() -> None:
    ledger = ledger_of(step("a"), step("b"))
    send(ledger, 0, "a")
    ledger.draining.add(BOX)
    with pytest.raises(Violation, match="drain_kept"):
        send(ledger, 1, "b")


def test_a_letter_is_purged_if_a_client_asks_or_for_its_age_and_archived() -> None:
    story = Story()
    sequence = story.accept()
    story.deliver(sequence)
    dead = story.die(sequence, "not_retryable")
    story.wait(31 * 86_400_000)
    story.record(13, 1, MAIL, [dead])
    line = json.dumps({"receiver": MAIL, "deadSequence": dead, "messageId": "m"}).encode()
    files = {"dead-letters/2026-01.jsonl": line + b"\n"}
    assert len(check_purges(story.history, story.ledger(), files)) == 1
    torn = {name: b"\0\0\0\n" + data + b"\xff\xfe{" for name, data in files.items()}
    assert len(check_purges(story.history, story.ledger(), torn)) == 1
    with pytest.raises(Violation, match="not archived"):
        check_purges(story.history, story.ledger(), {})
    story.history.redrives.append(Redriven(MAIL, dead, True, 1, 0))
    assert check_purges(story.history, story.ledger(), {}) == []


def test_a_letter_is_not_purged_while_it_is_young() -> None:
    story = Story()
    sequence = story.accept()
    story.deliver(sequence)
    story.record(13, 1, MAIL, [story.die(sequence, "not_retryable")])
    with pytest.raises(Violation, match="purged_for_a_reason"):
        check_purges(story.history, story.ledger(), {})


def test_a_crash_is_named_by_the_records_around_it() -> None:
    encode = msgspec.msgpack.encode
    frames = [(3, encode([[5, 1], [20, 1]])), (5, encode([[21, 1], [8, 1]])), (6, encode([[24, 1]]))]
    assert cut_between(frames, 3) == (20, 21)
    assert cut_between(frames, 5) == (8, 24)
    assert cut_between(frames, 6) is None, "nothing was lost"
    assert cut_between([(3, encode([[5, 1]])), (4, encode([[7, 1]]))], 3) is None, "no task"
