"""Waits: a step that waits for an answer, a time or a signal has no lease and does not count in the window.
All three wait for an event, with a time limit and perhaps a default. An answer counts only if it comes from
the agent that was asked; the first answer counts. A signal that comes before its step waits is kept.
"""

from __future__ import annotations

import msgspec

from relaymesh.errors import Conflict, InvalidValue, NotFound, SignalsFull, Unauthorized
from relaymesh.kernel.address import name_of
from relaymesh.kernel.bounds import shown
from relaymesh.kernel.completion import finish as finish_messages
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.records import SignalReceived, StepsEnded
from relaymesh.kernel.tasks.commands import Answer, Signal
from relaymesh.kernel.tasks.signals import SIGNAL_IDS_MAX, SIGNALS_MAX
from relaymesh.kernel.tasks.task import Task

DEFAULT = "default"
"""The code of a step whose output is its default, because its time was over."""


def take_answer(decision: Decision, command: Answer) -> Task:
    """The answer to a question of a step. Returns its task."""
    task = live_task(decision, command.task)
    number = task.find(command.step)
    if number is None:
        raise NotFound(f"task {task.id} has no step {command.step!r}", hint=f"relaymesh task show {task.id}")
    step, plan = task.steps[number], task.plan_of(number).wait
    if plan is None or plan.kind != "ask":
        raise Conflict(
            f"step {command.step!r} of task {task.id} asks no question",
            hint=f"relaymesh task show {task.id} shows which step waits for an answer",
        )
    if step.wait is None:
        why = "was answered already, or its time is over" if step.ended else "does not ask yet"
        raise Conflict(
            f"step {command.step!r} of task {task.id} {why}: it is {step.status}",
            hint=f"relaymesh task show {task.id} shows what it waits for",
        )
    if command.by != step.wait.asked:
        raise Unauthorized(
            f"step {command.step!r} of task {task.id} asks {name_of(step.wait.asked)!r},"
            f" not {name_of(command.by)!r}",
            hint="only the agent that was asked may answer",
            authenticated=True,
        )
    if plan.options and command.value not in [msgspec.json.encode(option) for option in plan.options]:
        known = ", ".join([repr(option) for option in plan.options])
        raise InvalidValue(
            f"{shown(command.value.decode('utf-8', 'replace'))} is no answer to step {command.step!r}",
            hint=f"answer with one of: {known}",
        )
    question = step.wait.sequence
    asked = decision.state.mailboxes[step.wait.asked]
    decision.emit(StepsEnded(1, decision.now, task.id, [number], "SUCCESS", [command.value]))
    if question >= 0:
        decision.state.board.unasked.pop(question, None)
        finish_messages(decision, asked.address, [asked.entries.take_out(question)])
    return task


def signal(decision: Decision, command: Signal) -> bool:
    """Keep a signal for the step that waits for it, or will. Returns whether it came before."""
    task = live_task(decision, command.task)
    signals = task.signals
    decision.after_sync()
    if signals is not None and command.id in signals.ids:
        return True
    if signals is not None and (len(signals.kept) >= SIGNALS_MAX or len(signals.ids) >= SIGNAL_IDS_MAX):
        raise SignalsFull(
            f"task {task.id} keeps {len(signals.kept)} signals that no step waits for yet, of {SIGNALS_MAX},"
            f" and has got {len(signals.ids)} in all, of {SIGNAL_IDS_MAX}"
        )
    decision.emit(
        SignalReceived(1, decision.now, task.id, command.name, command.id, command.value, command.by)
    )
    decision.after_sync()
    return False


def live_task(decision: Decision, id: str) -> Task:
    task = decision.state.board.tasks.get(id)
    if task is None:
        raise NotFound(f"there is no live task {id}", hint="relaymesh task list shows tasks and their states")
    return task


def hand_signals(decision: Decision, task: Task) -> None:
    """End the steps whose signals have come: the first step gets the first signal."""
    if task.signals is None or not task.listening:
        return
    for found in list(task.signals.kept):
        listening = task.listening.get(found.name)
        if listening:
            number = next(iter(listening))
            decision.emit(StepsEnded(1, decision.now, task.id, [number], "SUCCESS", [found.value]))


def time_is_over(decision: Decision, task: Task, number: int) -> None:
    """A wait for a time ends as SUCCESS. Another wait ends with its default, if it has one."""
    plan = task.plan_of(number).wait
    assert plan is not None, "only a step that waits has such a timer"
    now, steps = decision.now, [number]
    if plan.kind == "wait":
        decision.emit(StepsEnded(1, now, task.id, steps, "SUCCESS", [b"null"]))
    elif plan.default is not None:
        decision.emit(StepsEnded(1, now, task.id, steps, "SUCCESS", [plan.default], 0, DEFAULT))
    else:
        what = "no answer came in time" if plan.kind == "ask" else f"no signal {plan.signal!r} came in time"
        decision.emit(StepsEnded(1, now, task.id, steps, "TIMEOUT", [], 0, "timeout", what))
