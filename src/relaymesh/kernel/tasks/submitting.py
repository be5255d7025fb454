"""Submitting a task: once for each key, and only if every mailbox that it needs exists."""

from __future__ import annotations

from relaymesh.errors import Conflict, InvalidPlan, StoreLagging
from relaymesh.kernel.address import is_subscription, name_of, namespace_of
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.payload import full_size
from relaymesh.kernel.records import TaskSubmitted
from relaymesh.kernel.tasks.commands import Submit, Submitted
from relaymesh.kernel.tasks.keys import KeyHeld
from relaymesh.kernel.tasks.status import Status
from relaymesh.kernel.tasks.task import STEP_BYTES, TASK_BYTES


def submit(decision: Decision, command: Submit) -> Submitted:
    board = decision.state.board
    namespace = namespace_of(command.owner)
    held = board.keys.find(namespace, command.key)
    if held is None and command.looked < board.keys.forgotten:
        raise StoreLagging(
            f"the store does not know yet whether {command.key!r} was submitted before",
            hint="submit it again: the same key runs once",
        )
    held = held or command.known
    if held is not None:
        if held.request != command.request:
            raise Conflict(
                f"key {command.key!r} was submitted with another request, as task {held.task}",
                hint="use another key for another request",
            )
        status = _status(decision, held)
        if not (command.again and held.status not in (None, "SUCCESS")):
            decision.after_sync()
            return Submitted(held.task, True, status)
    for step in command.plan.steps:
        for each in (step, step.undo):
            if each is not None and each.mailbox:
                require_mailbox(decision, namespace, step.name, each.mailbox)
    if command.reply_to:
        require_mailbox(decision, namespace, "reply_to", command.reply_to)
    if command.task in board.tasks:
        raise Conflict(f"there is a task {command.task} already", hint="use a fresh id for each task")
    if command.budget:
        size = TASK_BYTES + STEP_BYTES * len(command.plan.steps) + command.plan.size
        size += full_size(command.input)
        decision.state.charges.require(command.owner, size, command.budget)
    decision.emit(
        TaskSubmitted(
            1,
            decision.now,
            command.task,
            command.plan,
            command.input,
            command.key,
            command.request,
            command.owner,
            command.trace,
            command.reply_to,
            command.notify,
            list(command.given),
            command.again_of,
        )
    )
    decision.after_sync()
    return Submitted(command.task)


def _status(decision: Decision, held: KeyHeld) -> Status:
    task = decision.state.board.tasks.get(held.task)
    if task is not None:
        return task.status
    return held.status or "PENDING"


def require_mailbox(decision: Decision, namespace: str, step: str, address: str) -> None:
    """Check that a step of a task in this namespace may go to this address."""
    what = f"step {step!r}: agent {name_of(address)!r}"
    if namespace_of(address) != namespace:
        raise InvalidPlan(f"{what} is in namespace {namespace_of(address)!r}, the task in {namespace!r}")
    mailbox = decision.state.mailboxes.get(address)
    if mailbox is None:
        raise InvalidPlan(
            f"{what} has no mailbox in this mesh ({address})",
            hint="check the spelling, or open the mailbox first: mesh.agent(name)",
        )
    if is_subscription(address):
        raise InvalidPlan(f"{what} is a subscription; a step needs an agent's mailbox")
    if mailbox.settings.delivery_semantics == "at_most_once":
        raise InvalidPlan(f"{what} has an at_most_once mailbox, which would lose a step whose agent dies")
