"""What those that talk to tasks were told: answers, signals, budgets, usage, growth, and mail about tasks."""

from __future__ import annotations

from collections.abc import Mapping

from relaymesh.testing.simulation.history import History, Signalled
from relaymesh.testing.simulation.ledger import Ledger
from relaymesh.testing.simulation.task_ledger import TaskLedger
from relaymesh.testing.simulation.verdict import Violation


def check_talk(history: History, ledger: Ledger, counted: Mapping[str, tuple[int, int]]) -> None:
    """After everything was healed. `counted`: what tasks have used, as the node counts it."""
    _check_answers(history, ledger.tasks)
    _check_signals(history, ledger.tasks)
    _check_budgets(history, ledger.tasks, counted)
    _check_usage(history, ledger.tasks)
    _check_growth(history, ledger.tasks)
    for (task, kind), mailbox in ledger.tasks.owed.items():
        raise Violation("mail_once", f"mail about task {task} ({kind}) to {mailbox} was never sent")


def _check_answers(history: History, told: TaskLedger) -> None:
    """The first answer of the agent that was asked counts, and no other one does."""
    taken: dict[tuple[str, str], int] = {}
    for asked in history.answers:
        name = asked.task, asked.step
        if asked.answer != "done":
            continue
        if name not in told.answers:
            raise Violation("answer_counts", f"an answer to {name} was taken, and is not there")
        agent, value = told.answers[name]
        if asked.by != agent or asked.value != value:
            raise Violation(
                "answer_counts", f"{asked.by} answered {name}, which asks {agent}: {asked.value!r}"
            )
        taken[name] = taken.get(name, 0) + 1
        if taken[name] > 1:
            raise Violation("answer_counts", f"two answers to {name} were taken")
    for name, (agent, value) in told.answers.items():
        said = [each for each in history.answers if (each.task, each.step) == name]
        if not any(each.by == agent and each.value == value and each.answer != "refused" for each in said):
            raise Violation(
                "answer_counts", f"{name} was answered with {value!r}, and {agent} did not say so"
            )


def _check_signals(history: History, told: TaskLedger) -> None:
    """A signal that was taken is in the journal as it was sent; the same id came again only after it came."""
    first: dict[tuple[str, str], Signalled] = {}
    for asked in sorted(history.signals, key=lambda each: each.order):
        name = asked.task, asked.id
        if asked.answer == "refused":
            continue
        before = first.setdefault(name, asked)
        if asked.answer != "done":
            continue
        if told.signals.get(name) != (asked.name, asked.value):
            raise Violation("signal_once", f"signal {asked.id} to {asked.task} was taken, and is not there")
        if asked.duplicate and before is asked:
            raise Violation("signal_once", f"signal {asked.id} to {asked.task} is told to be a duplicate")
        if not asked.duplicate and before is not asked and before.answer == "done":
            raise Violation("signal_once", f"signal {asked.id} to {asked.task} was taken twice")
    for task, id in told.signals:
        if (task, id) not in first:
            raise Violation("signal_once", f"signal {id} came to {task}, and no client sent it")


def _check_budgets(history: History, told: TaskLedger, counted: Mapping[str, tuple[int, int]]) -> None:
    for asked in history.budgets:
        if asked.answer != "done":
            continue
        budgets = told.tasks[asked.task].budgets
        fits = [asked.cost in (None, cost) and asked.tokens in (None, tokens) for cost, tokens in budgets]
        if not any(fits):
            raise Violation("budget_kept", f"task {asked.task} had {budgets}, and was given {asked}")
    for id, used in counted.items():
        if used != told.tasks[id].total:
            raise Violation("usage_once", f"task {id} counts {used}: it used {told.tasks[id].total}")


def _check_usage(history: History, told: TaskLedger) -> None:
    """What the end of an attempt said that it used is counted; a report may be lost with the power."""
    most: dict[int, tuple[int, int]] = {}
    for settle in history.settles:
        if settle.how not in ("finish", "fail", "grow", "report") or settle.answer == "refused":
            continue
        token = settle.delivery.token
        before = most.get(token, (0, 0))
        most[token] = max(before[0], settle.usage[0]), max(before[1], settle.usage[1])
        if settle.how == "report" or settle.answer != "done":
            continue
        step = told.by_token[token]
        noted = step.task.used.get(token, (0, 0))
        if noted[0] < settle.usage[0] or noted[1] < settle.usage[1]:
            raise Violation("usage_once", f"{step} used {settle.usage} under {token}, and {noted} is noted")
    for task in told.tasks.values():
        for token, (cost, tokens) in task.used.items():
            said = most.get(token, (0, 0))
            if cost > said[0] or tokens > said[1]:
                raise Violation("usage_once", f"{cost}, {tokens} is noted under {token}, which used {said}")


def _check_growth(history: History, told: TaskLedger) -> None:
    asked = {settle.delivery.token: settle for settle in history.settles if settle.how == "grow"}
    for token, (step, plans) in told.grown.items():
        settle = asked.get(token)
        if settle is None or settle.answer == "refused" or settle.steps != plans:
            raise Violation("follows_plan", f"{step} grew under {token}, and its holder did not ask for that")
    for token, settle in asked.items():
        if settle.answer == "done" and token not in told.grown:
            raise Violation("no_receipted_loss", f"the growth by token {token} was taken, and is not there")
