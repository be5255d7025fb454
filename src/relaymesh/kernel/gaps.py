"""Replaying behind a gap: records that were decided while a record that is now set aside was still known.

A record that is set aside uses up its sequences and does nothing else, so a later record may name a message
that does not exist, or that is in another state than the record expects. `apply_behind_gap` applies what can
be applied: it skips events about missing messages, ends a delivery whose end is missing, and begins one
whose beginning is missing. Nothing here runs in a journal without such a record.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from relaymesh.kernel.dead_letters import DeadLetter
from relaymesh.kernel.entry import Entry
from relaymesh.kernel.mailbox import Mailbox
from relaymesh.kernel.pending import DELAYED, LEASED
from relaymesh.kernel.records import (
    Accepted,
    AnyRecord,
    BudgetPaused,
    BudgetSet,
    DeadLettered,
    DelayedForced,
    Granted,
    MailboxOpened,
    Redriven,
    Returned,
    SignalReceived,
    StepsAdded,
    StepsEnded,
    StepsSent,
    StepsWithdrawn,
    StepWaits,
    Subscribed,
    TaskClosing,
    TaskEnded,
    TaskSubmitted,
    TaskUndoing,
    Unsubscribed,
    UsageNoted,
)
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.kernel.state import State
from relaymesh.kernel.tasks.board import Board
from relaymesh.kernel.tasks.status import EVENT_OF, TRANSITIONS

__all__ = ["apply_behind_gap", "leave_out"]

Applied = tuple[int, AnyRecord, Any]
"""A first sequence, the record applied there, and what applying it returned."""

_PER_EVENT = ("sequences", "due", "failures", "steps")
UNKNOWN = "unknown"

OfTask = (
    TaskSubmitted
    | StepsSent
    | StepsEnded
    | StepsAdded
    | TaskClosing
    | TaskEnded
    | StepWaits
    | SignalReceived
    | StepsWithdrawn
    | TaskUndoing
    | UsageNoted
    | BudgetPaused
    | BudgetSet
)
"""Records about tasks."""


def leave_out(state: State, count: int, opens: str | None, pattern: str | None) -> None:
    """Skip a record that is set aside. `opens`: the mailbox that it opened; it exists, with its present
    settings or the defaults. `pattern`: what it was subscribed to."""
    base = state.sequence
    if opens is not None:
        before = state.mailboxes.get(opens)
        settings = MailboxSettings() if before is None else before.settings
        if pattern is not None:
            state.apply(Subscribed(1, state.now, pattern, opens, settings))
        elif before is None:
            state.apply(MailboxOpened(1, state.now, opens, settings))
    state.sequence = base
    state.skip(count)


def apply_behind_gap(state: State, record: AnyRecord) -> Iterator[Applied]:
    """Apply what can be applied of a record; yields what was applied. All its sequences are used up.

    A yielded record without events was made here and is in no journal.
    """
    base = state.sequence
    if isinstance(record, Accepted | Redriven) and record.mailbox not in state.mailboxes:
        _beside(state, MailboxOpened(1, record.at, record.mailbox, MailboxSettings()))
    if isinstance(record, Redriven):
        yield from _letter_for(state, record)
    if isinstance(record, OfTask):
        known = _known_part(state.board, record)
        if known is None:
            state.sequence = base + record.count
            return
        record, count = known, record.count
    else:
        count = record.count
    if hasattr(record, "sequences"):
        yield from _apply_parts(state, record)
    elif not isinstance(record, Unsubscribed) or record.mailbox in state.mailboxes:
        yield base, record, state.apply(record)
    state.sequence = base + count


def _known_part(board: Board, record: OfTask) -> OfTask | None:
    """What a record says about a task and steps that are there, in states that it can change; None: nothing.

    A step whose message is missing stays ready, so it is sent again at the start.
    """
    task = board.tasks.get(record.task)
    if isinstance(record, TaskSubmitted):
        return record if task is None else None
    if task is None:
        return None
    if isinstance(record, StepsAdded | StepWaits):
        grown = isinstance(record, StepsAdded) and record.token and record.step in task.steps_out
        return record if record.step in task.ready or grown else None
    if isinstance(record, StepsWithdrawn):
        chosen = [
            number
            for number in record.steps
            if number in task.steps_out and (task.steps[number].status, "withdrawn") in TRANSITIONS
        ]
        return replace(record, count=len(chosen), steps=chosen) if chosen else None
    if isinstance(record, TaskUndoing):
        known = [number < len(task.steps) and task.plan_of(number).undo for number in record.steps]
        return record if all(known) and not task.undos else None
    if isinstance(record, UsageNoted):
        return record if record.step < len(task.steps) else None
    if isinstance(record, StepsSent):
        chosen = [i for i, number in enumerate(record.steps) if number in task.ready]
        sequences, steps = [record.sequences[i] for i in chosen], [record.steps[i] for i in chosen]
        return replace(record, count=len(chosen), sequences=sequences, steps=steps) if chosen else None
    if isinstance(record, StepsEnded):
        event = EVENT_OF[record.status]
        chosen = [
            i
            for i, number in enumerate(record.steps)
            if number < len(task.steps) and (task.steps[number].status, event) in TRANSITIONS
        ]
        outputs = [record.outputs[i] for i in chosen] if record.outputs else []
        steps = [record.steps[i] for i in chosen]
        return replace(record, count=len(chosen), steps=steps, outputs=outputs) if chosen else None
    return record


def _beside(state: State, record: AnyRecord, sequence: int | None = None) -> Any:
    """Apply a record that is not in the journal; it uses up no sequence."""
    base = state.sequence
    state.sequence = base if sequence is None else sequence
    detail = state.apply(record)
    state.sequence = base
    return detail


def _letter_for(state: State, record: Redriven) -> Iterator[Applied]:
    """Make the dead letter that a redrive names, if the record of its death was set aside."""
    source, dead_sequence = record.source, record.dead_sequence
    if state.letters.find(source, dead_sequence) is not None:
        return
    mailbox = state.mailboxes.get(source)
    sequence = state.admitted.of(source).get(record.envelope.id)
    if mailbox is not None and isinstance(sequence, int) and sequence in mailbox.entries:
        buried = DeadLettered(1, record.at, source, [sequence], UNKNOWN, [None])
        letters = _beside(state, buried, dead_sequence)
        yield state.sequence, replace(buried, count=0), letters
        return
    at = record.at
    state.letters.add(
        DeadLetter(source, dead_sequence, dead_sequence, at, at, UNKNOWN, record.envelope, 0, 0, [])
    )


def _apply_parts(state: State, record: Any) -> Iterator[Applied]:
    """For a record about messages: the events about existing ones, each under its own sequence."""
    base, mailbox = state.sequence, state.mailboxes.get(record.mailbox)
    fits = [_fits(mailbox, record, sequence) for sequence in record.sequences]
    start = 0
    for there, same in groupby(fits):
        end = start + len(list(same))
        if there and mailbox is not None:
            part = record if end - start == len(fits) else _part(record, start, end)
            _prepare(state, mailbox, part)
            state.sequence = base + start
            yield base + start, part, state.apply(part)
        start = end
    if isinstance(record, Granted):
        state.next_token = record.token + record.count


def _fits(mailbox: Mailbox | None, record: AnyRecord, sequence: int) -> bool:
    entry = None if mailbox is None else mailbox.entries.look(sequence)
    return entry is not None and (not isinstance(record, DelayedForced) or entry.state == DELAYED)


def _part(record: Any, start: int, end: int) -> Any:
    changed: dict[str, Any] = {
        name: getattr(record, name)[start:end] for name in _PER_EVENT if getattr(record, name, None)
    }
    if isinstance(record, Granted):
        changed["token"] = record.token + start
    return replace(record, count=end - start, **changed)


def _prepare(state: State, mailbox: Mailbox, record: AnyRecord) -> None:
    """Bring the messages into the state that the record expects."""
    at = record.at
    if isinstance(record, Granted):
        out = [each.sequence for each in _entries(mailbox, record.sequences) if each.state == LEASED]
        if out:
            back = Returned(len(out), at, mailbox.address, "restart", out, [at] * len(out), [])
            _beside(state, back)
    elif isinstance(record, Returned):
        waiting = [each.sequence for each in _entries(mailbox, record.sequences) if each.state != LEASED]
        if waiting:
            _beside(state, Granted(len(waiting), at, mailbox.address, "", state.next_token, waiting))


def _entries(mailbox: Mailbox, sequences: list[int]) -> Iterator[Entry]:
    for sequence in sequences:
        entry = mailbox.entries.look(sequence)
        if entry is not None:
            yield entry
