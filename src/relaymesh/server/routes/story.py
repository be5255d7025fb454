"""The story of a message: every mailbox it entered, where it is now, and what failed on the way.

The store knows every stay, the kernel the ones that are not over. The answer waits for the store to
have caught up, so that a message is found as soon as its receipt is there.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET

from relaymesh.errors import NotFound
from relaymesh.kernel.kernel import Kernel
from relaymesh.kernel.looks import Stay, stay_of, stays_of
from relaymesh.kernel.pending import STATE_NAMES, Pending
from relaymesh.kernel.token import format_token
from relaymesh.server.exchange import Exchange
from relaymesh.server.served import CATCH_UP_S, Served
from relaymesh.store.views import LetterRow, MessageRow, Views
from relaymesh.wire.api import FailureBody, StoryAnswer, StoryEntry
from relaymesh.wire.envelope import iso
from relaymesh.wire.letter import failure_body
from relaymesh.wire.old_forms import read_failures


async def story(exchange: Exchange) -> StoryAnswer:
    """Everything the node knows of the messages with this id. An agent follows those it sent or got."""
    principal, served = exchange.principal, exchange.served
    principal.require_looking()
    message_id = exchange.parameters["id"]
    if served.views is None:
        entries = _in_memory(served, message_id)
    else:
        entries = await asyncio.to_thread(_from_store, served, served.views, message_id)
    visible = [
        entry if principal.may_look(entry.mailbox) else _for_its_sender(entry)
        for entry in entries
        if principal.may_follow(entry.sender, entry.mailbox)
    ]
    if not visible:
        raise NotFound(f"there is no message {message_id[:128]!r}", hint="settled ones are kept for a week")
    return StoryAnswer(message_id=message_id, entries=visible)


def _for_its_sender(entry: StoryEntry) -> StoryEntry:
    """Without what is the receiver's own: its lease, and the stacks of its program."""
    failures = [msgspec.structs.replace(failure, stack="") for failure in entry.failures]
    return msgspec.structs.replace(
        entry, holder=UNSET, lease_token=UNSET, lease_deadline=UNSET, failures=failures
    )


def _from_store(served: Served, views: Views, message_id: str) -> list[StoryEntry]:
    """In a thread of its own: it waits for the disk."""
    node = served.node
    node.catch_up(CATCH_UP_S)
    rows = views.message(message_id)
    letters = [_letter(views, row) for row in rows]

    def look(kernel: Kernel) -> list[tuple[Stay | None, str]]:
        return [
            (stay_of(row.mailbox, row.sequence, kernel), _redriven_as(kernel, letter))
            for row, letter in zip(rows, letters, strict=True)
        ]

    seen = node.core.read(look)
    return [
        _settled(row, letter, redriven_as) if stay is None else _stay(row, stay)
        for row, letter, (stay, redriven_as) in zip(rows, letters, seen, strict=True)
    ]


def _letter(views: Views, row: MessageRow) -> LetterRow | None:
    if row.state not in ("dead", "redriven"):
        return None
    return next((letter for letter in views.dead_letters_of(row) if letter.sequence == row.sequence), None)


def _redriven_as(kernel: Kernel, letter: LetterRow | None) -> str:
    """The id of the edited message that went back in a letter's place; empty if none did."""
    kept = None if letter is None else kernel.state.letters.find(letter.mailbox, letter.dead_sequence)
    return "" if kept is None else kept.redriven_as


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


def _settled(row: MessageRow, letter: LetterRow | None, redriven_as: str) -> StoryEntry:
    told = _told(row, "ready" if row.state == "pending" else row.state)  # settled since the store was asked
    if letter is None:
        return told
    return msgspec.structs.replace(
        told,
        dead_sequence=letter.dead_sequence,
        dead_reason=UNSET if letter.reason is None else letter.reason,
        redriven_as=redriven_as or UNSET,
        failures=_told_failures(letter.failures),
    )


def _in_memory(served: Served, message_id: str) -> list[StoryEntry]:
    """A mesh in memory has no store: what is settled is forgotten."""
    stays: list[Stay] = served.node.core.read(partial(stays_of, message_id))
    return [_stay(_row(stay.mailbox, stay.pending), stay) for stay in stays]


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
