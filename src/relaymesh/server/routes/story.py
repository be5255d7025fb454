"""The story of a message: every mailbox it entered, where it is now, and what failed on the way.

The store knows every stay, the kernel the ones that are not over. The answer waits for the store to
have caught up, so that a message is found as soon as its receipt is there.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from msgspec import UNSET

from relaymesh.errors import NotFound
from relaymesh.kernel.entry import Entry
from relaymesh.kernel.kernel import Kernel
from relaymesh.kernel.pending import STATE_NAMES
from relaymesh.kernel.records import Failure
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

    def look(kernel: Kernel) -> list[tuple[_Alive | None, str]]:
        return [
            (_alive(kernel, row.mailbox, row.sequence), _redriven_as(kernel, letter))
            for row, letter in zip(rows, letters, strict=True)
        ]

    seen = node.core.read(look)
    return [
        _settled(row, letter, redriven_as) if entry is None else _stay(row, entry)
        for row, letter, (entry, redriven_as) in zip(rows, letters, seen, strict=True)
    ]


def _letter(views: Views, row: MessageRow) -> LetterRow | None:
    if row.state not in ("dead", "redriven"):
        return None
    return next((letter for letter in views.dead_letters_of(row) if letter.sequence == row.sequence), None)


def _redriven_as(kernel: Kernel, letter: LetterRow | None) -> str:
    """The id of the edited message that went back in a letter's place; empty if none did."""
    kept = None if letter is None else kernel.state.letters.find(letter.mailbox, letter.dead_sequence)
    return "" if kept is None else kept.redriven_as


class _Alive(msgspec.Struct, frozen=True):
    """What the kernel knew of an unsettled entry, at one moment."""

    state: Any
    priority: int
    attempts: int
    ready_at: int
    failures: list[Failure]
    holder: str | None
    token: int
    deadline: int
    origin: str | None


def _alive(kernel: Kernel, mailbox: str, sequence: int) -> _Alive | None:
    box = kernel.state.mailboxes.get(mailbox)
    entry = None if box is None else box.entries.look(sequence)
    return None if entry is None else _seen(entry)


def _seen(entry: Entry) -> _Alive:
    lease = entry.lease
    return _Alive(
        state=STATE_NAMES[entry.state],
        priority=entry.priority,
        attempts=entry.attempts,
        ready_at=entry.ready_at,
        failures=list(entry.failures or ()),
        holder=None if lease is None else lease.grant.holder,
        token=0 if lease is None else lease.token,
        deadline=0 if lease is None else lease.deadline,
        origin=entry.envelope.origin,
    )


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


def _stay(row: MessageRow, alive: _Alive) -> StoryEntry:
    return msgspec.structs.replace(
        _told(row, alive.state),
        priority=alive.priority,
        attempts=alive.attempts,
        due_at=iso(alive.ready_at),
        holder=UNSET if alive.holder is None else alive.holder,
        lease_token=UNSET if alive.holder is None else format_token(alive.token),
        lease_deadline=UNSET if alive.holder is None else iso(alive.deadline),
        failures=[failure_body(each) for each in alive.failures],
        origin_id=alive.origin or UNSET,
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

    def look(kernel: Kernel) -> list[StoryEntry]:
        return [
            _stay(_row(mailbox.address, entry), _seen(entry))
            for mailbox in kernel.state.mailboxes.values()
            for entry in mailbox.entries.values()
            if entry.envelope.id == message_id
        ]

    entries: list[StoryEntry] = served.node.core.read(look)
    return entries


def _row(mailbox: str, entry: Entry) -> MessageRow:
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
