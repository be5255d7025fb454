"""What tasks promise: one task for each key, one outcome for each step, and an end, or a reason to wait."""

from __future__ import annotations

import json
from itertools import pairwise

import msgspec

from relaymesh.testing.simulation.entries import Entry
from relaymesh.testing.simulation.history import Delivery, History, Submitted
from relaymesh.testing.simulation.ledger import Ledger
from relaymesh.testing.simulation.task_ledger import KEY_MS
from relaymesh.testing.simulation.told import StepTold, TaskTold, needs_of
from relaymesh.testing.simulation.verdict import Violation

OUTCOMES = ("finish", "fail")
LIVE = ("PENDING", "RUNNING", "DEAD_LETTER")
"""States of a task that has not ended."""


def check_tasks(history: History, ledger: Ledger, now: int) -> None:
    _check_submits(history, ledger)
    _check_outcomes(history, ledger)
    _check_grants(history, ledger)
    _check_cancels(history, ledger)
    undisturbed = {life.epoch for life in history.lives if not life.disturbed}
    for epoch, what in ledger.tasks.overdue:
        if epoch in undisturbed:
            raise Violation("deadline_kept", what)
    for task in ledger.tasks.tasks.values():
        _check_ends(task, now)


def _check_submits(history: History, ledger: Ledger) -> None:
    first: dict[str, Submitted] = {}
    for asked in sorted(history.tasks, key=lambda each: each.answered):
        if asked.answer != "done":
            continue
        task = ledger.tasks.tasks.get(asked.task)
        if task is None:
            raise Violation(
                "no_receipted_loss", f"task {asked.task} was receipted, and the journal has it not"
            )
        _check_same_plan(asked, task)
        before = first.setdefault(asked.task, asked)
        if not asked.duplicate and asked.order > before.answered:
            raise Violation("task_once", f"key {asked.key} was submitted again, and is told that it is new")
    for key, tasks in ledger.tasks.by_key.items():
        _check_runs(key, tasks, history)


def _check_runs(key: str, tasks: list[TaskTold], history: History) -> None:
    """A key runs anew only if a client asks for that, or 7 days after its end."""
    anew = [each for each in history.tasks if each.key == key and each.again and each.answer != "refused"]
    told = {each.task for each in anew if each.answer == "done" and not each.duplicate}
    unknown = sum(each.answer != "done" for each in anew)
    for before, task in pairwise(tasks):
        if task.id in told or task.at >= before.ended_at + KEY_MS:
            continue
        unknown -= 1
        if unknown < 0:
            raise Violation("task_once", f"key {key} gave task {before.id}, and then {task.id}")


def _check_same_plan(asked: Submitted, task: TaskTold) -> None:
    told = msgspec.msgpack.decode(msgspec.msgpack.encode(asked.plan))
    if (task.key, task.request, task.plan) != (asked.key, asked.request, told):
        raise Violation("follows_plan", f"task {task.id} is not what was submitted as {asked.key}")
    if task.input != json.loads(asked.input):
        raise Violation("follows_plan", f"task {task.id} has another input than was submitted")


def _check_outcomes(history: History, ledger: Ledger) -> None:
    """Who was told that an outcome counts finds it in the journal; who did not say it, not."""
    said: dict[int, list[str]] = {}
    for settle in history.settles:
        if not settle.delivery.step:
            continue
        token = settle.delivery.token
        said.setdefault(token, []).append(settle.how)
        if settle.how not in OUTCOMES or settle.answer != "done":
            continue
        step = ledger.tasks.outcomes.get(token)
        if step is None:
            raise Violation("no_receipted_loss", f"the outcome of token {token} was taken, and is not there")
        wanted = "SUCCESS" if settle.how == "finish" else "FAILED"
        if step.status != wanted:
            raise Violation("one_outcome", f"{step} is {step.status}, and token {token} said {settle.how}")
        if settle.how == "finish" and step.output != json.loads(settle.output):
            raise Violation("one_outcome", f"{step} has another output than its holder gave: {step.output}")
    for token, step in ledger.tasks.outcomes.items():
        if not said.get(token):
            raise Violation("one_outcome", f"{step} ended by token {token}, whose holder said nothing")
        if token != step.grants[-1]:
            raise Violation(
                "last_grant_settles", f"{step} ended by {token}, its last grant is {step.grants[-1]}"
            )


def _check_grants(history: History, ledger: Ledger) -> None:
    """What a worker holds is in the journal, whatever the power did: a late result is judged by it."""
    for delivery in history.deliveries:
        entry = ledger.entries.get((delivery.mailbox, delivery.sequence))
        if delivery.by_mesh and not delivery.step:
            _check_sent_by_mesh(delivery, entry)
        if not delivery.step:
            continue
        if entry is None or entry.step is None or entry.content != delivery.content:
            raise Violation("no_phantom", f"{delivery.id} in {delivery.mailbox} came as a step, and is none")
        if delivery.token not in ledger.tasks.by_token:
            raise Violation(
                "synced_before_leaving", f"{entry.step} went out under {delivery.token}, unsynced"
            )


def _check_sent_by_mesh(delivery: Delivery, entry: Entry | None) -> None:
    """A question of a step, or mail about a task. A power loss may have taken it back."""
    if entry is None or entry.content != delivery.content:
        raise Violation(
            "no_phantom", f"{delivery.id} in {delivery.mailbox} came from the mesh, and is not there"
        )


def _check_cancels(history: History, ledger: Ledger) -> None:
    asked = {cancel.task for cancel in history.cancels if cancel.answer != "refused"}
    for task in ledger.tasks.tasks.values():
        if any(status == "CANCELLED" for _, status, _ in task.asked) and task.id not in asked:
            raise Violation("follows_plan", f"task {task.id} was cancelled, and no client asked for that")
    for cancel in history.cancels:
        end = ledger.tasks.tasks[cancel.task].end
        if cancel.answer == "done" and end and cancel.result not in (end, *LIVE):
            raise Violation(
                "cancel_kept", f"a cancel was told that {cancel.task} is {cancel.result}, and it is {end}"
            )
        if cancel.answer == "done" and end == "SUCCESS":
            raise Violation("cancel_kept", f"a cancel of {cancel.task} was taken, and it succeeded")
        if cancel.answer == "done" and not ledger.tasks.tasks[cancel.task].asked:
            told = ledger.tasks.tasks[cancel.task]
            if not told.closing:
                raise Violation(
                    "cancel_kept", f"the cancel of task {cancel.task} was taken, and is not there"
                )


def _check_ends(task: TaskTold, now: int) -> None:
    """After everything was healed and drained: it ended, or waits for a redrive."""
    if task.end:
        return
    if task.deadline_at and now >= task.deadline_at and not task.closing:
        raise Violation(
            "deadline_kept", f"task {task.id} lives {now - task.deadline_at} ms after its deadline"
        )
    dead = task.dead
    if task.closing and any(step.undoes is not None for step in dead):
        return  # what was to be undone is not: it waits for a redrive or a purge
    if task.closing:
        raise Violation("task_progress", f"task {task.id} closes as {task.closing}, and does not end")
    if not dead:
        raise Violation("task_progress", f"task {task.id} neither ends nor waits: {_told(task)}")
    for step in task.steps:
        if not step.ended and step not in dead and not _waits_for(step, dead):
            raise Violation("task_progress", f"{step} waits for nothing: {_told(task)}")


def _waits_for(step: StepTold, dead: list[StepTold]) -> bool:
    """Whether a dead letter holds it up: of a need, of an item, or of those that fill its window."""
    if step.items:
        return any(not each.ended and (each in dead or _waits_for(each, dead)) for each in step.items)
    return any(not need.ended for need in needs_of(step))


def _told(task: TaskTold) -> str:
    return ", ".join(f"{step.name} {step.status}" for step in task.steps)
