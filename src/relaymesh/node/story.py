"""The story of a message: every mailbox it entered, where it is now, and its failed attempts. The store has
every stay in a mailbox, the kernel those that are not over.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET

from relaymesh.kernel.looks import Looked, Stay, redriven_as, stay_of, stays_of
from relaymesh.kernel.pending import STATE_NAMES, Pending
from relaymesh.kernel.token import format_token
from relaymesh.store.views import LetterRow, MessageRow, Views
from relaymesh.wire.api import FailureBody, StoryEntry
from relaymesh.wire.envelope import iso
from relaymesh.wire.letter import failure_body
from relaymesh.wire.old_forms import read_failures

__all__ = ["Read", "story_in_memory", "story_in_store"]

Read = Callable[[Callable[[Looked], Any]], Any]
"""Lets a function look at a kernel, or at a journal that was replayed."""


def story_in_store(views: Views, message_id: str, read: Read) -> list[StoryEntry]:
    """Every stay that the store knows, in the order in which they began."""
    rows = views.message(message_id)
    letters = [_letter(views, row) for row in rows]

    def look(of: Looked) -> list[tuple[Stay | None, str]]:
        return [
            (stay_of(row.mailbox, row.sequence, of), _redriven_as(of, letter))
            for row, letter in zip(rows, letters, strict=True)
        ]

    return [
        _settled(row, letter, became) if stay is None else _stay(row, stay)
        for row, letter, (stay, became) in zip(rows, letters, read(look), strict=True)
    ]


def story_in_memory(message_id: str, read: Read) -> list[StoryEntry]:
    """The stays that are not over: a mesh in memory has no store, and forgets what is settled."""
    stays: list[Stay] = read(partial(stays_of, message_id))
    return [_stay(_row(stay.mailbox, stay.pending), stay) for stay in stays]


def _letter(views: Views, row: MessageRow) -> LetterRow | None:
    if row.state not in ("dead", "redriven"):
        return None
    return next((letter for letter in views.dead_letters_of(row) if letter.sequence == row.sequence), None)


def _redriven_as(of: Looked, letter: LetterRow | None) -> str:
    return "" if letter is None else redriven_as(letter.mailbox, letter.dead_sequence, of)


def _told(row: MessageRow, state: Any) -> StoryEntry:
    """What the store knows of every stay."""
    return StoryEntry(
        mailbox=row.mailbox,
        sequence=row.sequence,
        state=state,
        type=row.type,
        sender=row.from_agent,
        priority=row.priority,
        attempts=row.attempts,
        redrives=row.redrive_count,
        accepted_at=iso(row.created_at_ms),
        due_at=iso(row.due_at_ms),
        updated_at=iso(row.updated_at_ms),
        topic=UNSET if row.topic is None else row.topic,
        task_id=UNSET if row.task_id is None else row.task_id,
        failures=_told_failures(row.failures),
    )


def _told_failures(text: str | None) -> list[FailureBody]:
    return [] if text is None else [failure_body(each) for each in read_failures(text)]


def _stay(row: MessageRow, stay: Stay) -> StoryEntry:
    pending, holder = stay.pending, stay.holder
    state: Any = STATE_NAMES[pending.state]
    return msgspec.structs.replace(
        _told(row, state),
        priority=pending.priority,
        attempts=pending.attempts,
        due_at=iso(pending.ready_at),
        holder=UNSET if holder is None else holder,
        lease_token=UNSET if holder is None else format_token(stay.token),
        lease_deadline=UNSET if holder is None else iso(stay.deadline),
        failures=[failure_body(each) for each in pending.failures or ()],
        origin_id=pending.envelope.origin or UNSET,
    )


def _settled(row: MessageRow, letter: LetterRow | None, became: str) -> StoryEntry:
    told = _told(row, "ready" if row.state == "pending" else row.state)  # settled since the store was asked
    if letter is None:
        return told
    return msgspec.structs.replace(
        told,
        dead_sequence=letter.dead_sequence,
        dead_reason=UNSET if letter.reason is None else letter.reason,
        redriven_as=became or UNSET,
        failures=_told_failures(letter.failures),
    )


def _row(mailbox: str, entry: Pending) -> MessageRow:
    envelope = entry.envelope
    return MessageRow(
        sequence=entry.sequence,
        namespace=mailbox.partition("/")[0],
        mailbox=mailbox,
        msg_id=envelope.id,
        redrive_count=entry.redrives,
        type=envelope.type,
        from_agent=envelope.sender,
        to_agent=mailbox,
        task_id=envelope.task,
        topic=None,
        priority=entry.priority,
        state="pending",
        attempts=entry.attempts,
        meta_path=None,
        payload_path=None,
        created_at_ms=entry.accepted_at,
        due_at_ms=entry.due_at,
        updated_at_ms=entry.accepted_at,
        failures=None,
    )
