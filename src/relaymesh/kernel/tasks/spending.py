"""Budgets: the usage of a task's attempts is added up, and a task that has used its budget pauses. The
decision that reaches the budget also takes back every message of the task that has no lease. So a task
exceeds its budget at most by what its current holders still use.
"""

from __future__ import annotations

from relaymesh.errors import Conflict
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.entry import Entry
from relaymesh.kernel.failures import drop
from relaymesh.kernel.records import BudgetPaused, BudgetSet, Failure, StepsWithdrawn, UsageNoted
from relaymesh.kernel.tasks.commands import SetBudget, Usage
from relaymesh.kernel.tasks.status import Status
from relaymesh.kernel.tasks.task import Task
from relaymesh.kernel.tasks.waiting import live_task

BUDGET = "budget"
"""The code of a message that was taken back because its task has used its budget."""


def note_usage(decision: Decision, task: Task, number: int, usage: Usage) -> None:
    """Usage is the total of an attempt, so a report that comes twice counts once. It never decreases."""
    step = task.steps[number]
    cost, tokens = max(usage.cost_micros, step.used[0]), max(usage.tokens, step.used[1])
    if (cost, tokens) != step.used:
        decision.emit(UsageNoted(1, decision.now, task.id, number, step.token, cost, tokens))


def set_budget(decision: Decision, command: SetBudget) -> Status:
    """A larger budget lets a paused task go on; a smaller one may pause it."""
    task = live_task(decision, command.task)
    cost = task.cost_max if command.cost_micros is None else command.cost_micros
    tokens = task.tokens_max if command.tokens is None else command.tokens
    if task.closing is not None:
        raise Conflict(f"task {task.id} closes: it sends no step any more")
    if (cost, tokens) != (task.cost_max, task.tokens_max):
        decision.emit(BudgetSet(1, decision.now, task.id, cost, tokens, command.by))
    decision.after_sync()
    return task.status


def keep_budget(decision: Decision, task: Task) -> None:
    """Pause a task that has used its budget, and take back what is not under a lease."""
    if not task.paused and task.over_budget and task.open:
        decision.emit(BudgetPaused(1, decision.now, task.id, why(task)))
    if task.paused:
        _take_back(decision, task)


def why(task: Task) -> str:
    """What the task has used, for people."""
    parts = []
    if 0 < task.cost_max <= task.cost:
        parts.append(f"{dollars(task.cost)} of {dollars(task.cost_max)}")
    if 0 < task.tokens_max <= task.tokens:
        parts.append(f"{task.tokens} of {task.tokens_max} tokens")
    return f"its budget is used: {' and '.join(parts)}"


def dollars(micros: int) -> str:
    """`$5.00`, with as many digits as it has."""
    whole, rest = divmod(micros, 1_000_000)
    digits = f"{rest:06d}".rstrip("0")
    return f"${whole}.{digits:0<2}"


def _take_back(decision: Decision, task: Task) -> None:
    numbers = [number for number in task.steps_out if task.steps[number].status != "RUNNING"]
    if not numbers:
        return
    by_mailbox: dict[str, list[Entry]] = {}
    for number in numbers:
        step = task.steps[number]
        entry = decision.state.mailboxes[step.mailbox].entries.take_out(step.sequence)
        by_mailbox.setdefault(step.mailbox, []).append(entry)
    decision.emit(StepsWithdrawn(len(numbers), decision.now, task.id, numbers, BUDGET))
    for mailbox, entries in by_mailbox.items():
        drop(decision, mailbox, entries, Failure(0, decision.now, BUDGET, task.paused))
