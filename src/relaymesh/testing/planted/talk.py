"""What comes to a task from outside and what it owes: waits, undoing, budgets, growth and mail."""

# ruff: noqa: ARG001 - a wrong function takes what the right one takes

from __future__ import annotations

from typing import Any

import msgspec

from relaymesh.kernel import snapshot
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.kernel import DECISIONS
from relaymesh.kernel.records import SignalReceived, StepsEnded, UsageNoted
from relaymesh.kernel.tasks import ending, pieces, spending
from relaymesh.kernel.tasks.board import Board
from relaymesh.kernel.tasks.commands import Answer, Finish, Signal, Usage
from relaymesh.kernel.tasks.deadlines import Deadlines
from relaymesh.kernel.tasks.signals import Signals
from relaymesh.kernel.tasks.task import Task
from relaymesh.node.task_mail import TaskMail
from relaymesh.testing.planted.bug import Original, at, plant

# Undoing

Undone = list[tuple[int, bool]]


@plant(
    at(Task, "to_undo"),
    broken="what was done first is undone first",
    like="a saga that compensates in the order of its steps",
)
def undo_in_wrong_order(original: Original, task: Task) -> Undone:
    undone: Undone = original(task)
    return undone[::-1]


@plant(at(Task, "to_undo"), broken="the step that was done last is undone twice")
def undo_twice(original: Original, task: Task) -> Undone:
    undone: Undone = original(task)
    return [*undone[:1], *undone]


@plant(at(Task, "to_undo"), broken="the step that was done first is not undone")
def undo_forgotten(original: Original, task: Task) -> Undone:
    undone: Undone = original(task)
    return undone[:-1]


@plant(at(Task, "to_undo"), broken="a step whose outcome is not known is undone as if it had succeeded")
def undo_never_uncertain(original: Original, task: Task) -> Undone:
    return [(number, False) for number, _ in original(task)]


@plant(
    at(ending, "_close"),
    broken="a task ends without undoing what it did if its last undo fails for good",
    like="a compensation that is tried once",
)
def undo_given_up(original: Original, decision: Decision, task: Task) -> None:
    if task.undos and any(task.steps[number].letter is not None for number in task.undos):
        assert task.closing is not None
        ending._end_task(decision, task, task.closing)
        return
    original(decision, task)


# Budgets


@plant(
    at(spending, "_take_back"),
    broken="a task that has used its budget pauses, and what it has sent may still be granted",
    like="a spending limit that is checked when work is queued, not when it is handed out",
    first_seed=130,
)
def budget_races_grants(original: Original, decision: Decision, task: Task) -> None:
    pass


@plant(at(Task, "over_budget"), broken="a task may use ten times its budget")
def budget_ignored(original: Original, task: Task) -> bool:
    return (0 < 10 * task.cost_max <= task.cost) or (0 < 10 * task.tokens_max <= task.tokens)


@plant(at(pieces, "_restore_task"), broken="a task that waits for a larger budget goes on after a start")
def pause_lost_in_checkpoint(original: Original, board: Board, piece: Any, plans: Any) -> None:
    original(board, msgspec.structs.replace(piece, paused=""), plans)


@plant(at(Board, "used"), broken="each report of an attempt is added to the one before")
def usage_added_up(original: Original, board: Board, record: UsageNoted) -> None:
    cost, tokens = board.tasks[record.task].steps[record.step].used
    original(board, record)
    task = board.tasks[record.task]
    task.cost += cost
    task.tokens += tokens


@plant(at(DECISIONS, Finish), broken="what the last message of an attempt says that it used is not counted")
def usage_of_result_lost(original: Original, decision: Decision, command: Finish) -> Any:
    return original(decision, Finish(command.token, command.output, Usage()))


# Waits


@plant(
    at(Board, "signalled"),
    broken="a signal that comes before its step waits is lost",
    like="a condition variable: a wake-up before the wait is none",
)
def early_signal_lost(original: Original, board: Board, record: SignalReceived) -> None:
    original(board, record)
    task = board.tasks[record.task]
    waits = [task.plan_of(number).wait for number in task.waiting]
    if task.signals is not None and not any(
        each is not None and each.signal == record.name for each in waits
    ):
        task.signals.take(record.name)


@plant(at(DECISIONS, Signal), broken="a signal that is sent again counts again")
def signal_counts_twice(original: Original, decision: Decision, command: Signal) -> Any:
    task = decision.state.board.tasks.get(command.task)
    if task is not None and task.signals is not None:
        task.signals.ids.pop(command.id, None)
    return original(decision, command)


@plant(at(Signals, "take"), broken="one signal ends every step that waits for its name", first_seed=208)
def signal_ends_every_step(original: Original, signals: Signals, name: str) -> Any:
    return signals.first(name)


@plant(at(snapshot, "restore_board_piece"), broken="signals that came early are lost at a start")
def signals_lost_in_checkpoint(original: Original, board: Board, piece: Any, plans: Any) -> None:
    if not isinstance(piece, pieces.SignalsPiece):
        original(board, piece, plans)


@plant(at(DECISIONS, Answer), broken="the answer of an agent that was not asked is accepted")
def strangers_answer_counts(original: Original, decision: Decision, command: Answer) -> Any:
    task = decision.state.board.tasks.get(command.task)
    number = None if task is None else task.find(command.step)
    if task is not None and number is not None:
        wait = task.steps[number].wait
        command.by = command.by if wait is None else wait.asked or command.by
    return original(decision, command)


@plant(at(Task, "times_out_at"), broken="a wait is over 500 ms early")
def wait_ends_early(original: Original, task: Task, number: int) -> int:
    due: int = original(task, number)
    return due - 500 if due and task.steps[number].wait is not None else due


@plant(at(Deadlines, "add_step"), broken="a start forgets until when a step waits")
def wait_has_no_end(original: Original, deadlines: Deadlines, task: Task, number: int) -> None:
    if task.steps[number].wait is None:
        original(deadlines, task, number)


@plant(at(ending, "time_is_over"), broken="a step whose time is over times out although it has a default")
def default_ignored(original: Original, decision: Decision, task: Task, number: int) -> None:
    plan = task.plan_of(number).wait
    if plan is None or plan.default is None:
        original(decision, task, number)
        return
    decision.emit(StepsEnded(1, decision.now, task.id, [number], "TIMEOUT", [], 0, "timeout", "late"))


# Mail


@plant(
    at(TaskMail, "is_due"), broken="mail about a task that found a mailbox full is never sent", first_seed=91
)
def mail_lost_when_full(original: Original, mail: TaskMail, now: int) -> bool:
    return False


# Growth


@plant(at(Board, "added"), broken="steps that a holder adds are kept, and their needs are not")
def growth_without_needs(original: Original, board: Board, record: Any) -> None:
    original(board, record)
    task = board.tasks[record.task]
    for number in task.steps[record.step].items if record.plans else ():
        if number not in task.ready:
            task.make_ready(number)
