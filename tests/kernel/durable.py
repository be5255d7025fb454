"""The durable part of a state as a plain structure, to compare a replay with the live one."""

from __future__ import annotations

from typing import Any

import msgspec

from relaymesh.kernel.dedup import Seen
from relaymesh.kernel.entry import Entry, Lease
from relaymesh.kernel.mailbox import Mailbox
from relaymesh.kernel.state import State
from relaymesh.kernel.tasks.board import Board
from relaymesh.kernel.tasks.step_state import StepState
from relaymesh.kernel.tasks.task import Task

VOLATILE = ("_queues", "blocked", "revision", "root", "shape")


def durable(state: State) -> dict[str, Any]:
    """Everything a replay must give back, but for the ids: see `admitted`."""
    return {
        "sequence": state.sequence,
        "now": state.now,
        "epoch": (state.epoch, state.partition, state.next_token),
        "unrouted": state.unrouted,
        "subscriptions": list(state.subscriptions),
        "agents": list(state.agents.items()),
        "suspended": {address: state.subscriptions.suspended(address) for address in state.mailboxes},
        "mailboxes": {address: _mailbox(mailbox) for address, mailbox in state.mailboxes.items()},
        "letters": [msgspec.to_builtins(letter) for letter in state.letters],
        "dead": state.letters.count,
        "board": _board(state.board),
        "workflows": list(state.workflows),
        "numbers": state.workflows.numbers.rows(),
        "schedules": sorted(state.schedules, key=lambda each: (each.namespace, each.name)),
    }


def _board(board: Board) -> dict[str, Any]:
    return {
        "tasks": {id: task_of(task) for id, task in board.tasks.items()},
        "links": {sequence: (link.task.id, link.number) for sequence, link in board.links.items()},
        "letters": {letter: (link.task.id, link.number) for letter, link in board.letters.items()},
        "by_token": {token: (link.task.id, link.number) for token, link in board.by_token.items()},
        "questions": {sequence: (link.task.id, link.number) for sequence, link in board.questions.items()},
        "owed": board.owed.all(),
        "plans": sorted([(shape.plan.name, shape.tasks) for shape in board.shapes.values()]),
        "live keys": {
            (task.namespace, task.key): board.keys.find(task.namespace, task.key)
            for task in board.tasks.values()
        },
        "ended keys": board.keys.ended(),
    }


def task_of(task: Task) -> dict[str, Any]:
    """All of a task but what it shows to callers that watch it: `blocked`, `progress` and `revision`."""
    names = [name for name in Task.__slots__ if name not in VOLATILE]
    found = {name: getattr(task, name) for name in names}
    found["steps"] = [_step(step) for step in task.steps]
    found["_plans"] = list(found["_plans"])
    found["ready"], found["steps_out"] = sorted(task.ready), sorted(task.steps_out)
    found["waiting"] = sorted(task.waiting)
    found["listening"] = {name: sorted(numbers) for name, numbers in task.listening.items()}
    found["groups"] = {
        parent: (group.first, group.shape.steps, group.input, group.token)
        for parent, group in task.groups.items()
    }
    signals = task.signals
    found["signals"] = None if signals is None else (list(signals.kept), list(signals.ids))
    found["may send"] = sorted(task.may_send(10_000))
    return found


def _step(step: StepState) -> dict[str, Any]:
    fields = [name for name in StepState.__struct_fields__ if name != "progress"]
    return {name: list(step.items) if name == "items" else getattr(step, name) for name in fields}


def _mailbox(mailbox: Mailbox) -> dict[str, Any]:
    return {
        "settings": mailbox.settings,
        "owner": (mailbox.owner, mailbox.owner_budget),
        "counters": msgspec.to_builtins(mailbox.counters),
        "halted": dict(mailbox.halted),
        "bytes": mailbox.bytes,
        "by_priority": list(mailbox.by_priority),
        "leased": mailbox.leased,
        "entries": [_entry(entry) for entry in mailbox.entries.values()],
    }


def _entry(entry: Entry) -> dict[str, Any]:
    """Ready or delayed is not compared: `ready_at` and the clock say that."""
    return {
        "envelope": entry.envelope,
        "sequence": entry.sequence,
        "times": (entry.accepted_at, entry.due_at, entry.ready_at),
        "ready_sequence": entry.ready_sequence,
        "priority": entry.priority,
        "attempts": entry.attempts,
        "deferrals": entry.deferrals,
        "waited_ms": entry.waited_ms,
        "topic": entry.topic,
        "redrives": entry.redrives,
        "completed": entry.completed,
        "failures": list(entry.failures or ()),
        "lease": _lease(entry.lease),
    }


def _lease(lease: Lease | None) -> tuple[object, ...]:
    if lease is None:
        return ()
    grant = lease.grant
    return lease.token, lease.attempt, lease.entry.sequence, grant.mailbox, grant.holder, grant.remote


def admitted(state: State) -> dict[tuple[str, str], Seen | tuple[str, int]]:
    """Every id the state answers for; a live one may have forgotten some that a replay remembers."""
    return {
        (target, id): found if isinstance(found, Seen) else ("pending", found)
        for target, id, found in state.admitted
    }
