"""What people ask the store: which messages, how many in which state, which dead letters, which tasks."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import apsw
import msgspec

from relaymesh.kernel.tasks.status import Status
from relaymesh.kernel.tasks.views import StepView, TaskView
from relaymesh.store.connect import connect_reader
from relaymesh.store.projection import State
from relaymesh.store.queries import QUERIES
from relaymesh.store.tasks import (
    STEP_COLUMNS,
    TASK_COLUMNS,
    TaskPage,
    page_of,
    read_step,
    read_task,
    sequence_of,
)


class MessageRow(msgspec.Struct, frozen=True):
    """A message in a mailbox, as far as the store knows it."""

    sequence: int
    namespace: str
    mailbox: str
    msg_id: str
    redrive_count: int
    type: str
    from_agent: str
    to_agent: str
    task_id: str | None
    topic: str | None
    priority: int
    state: State
    attempts: int
    meta_path: str | None
    payload_path: str | None
    created_at_ms: int
    due_at_ms: int
    updated_at_ms: int
    failures: str | None
    """Attempts that failed, as in a `LetterRow`."""


class LetterRow(msgspec.Struct, frozen=True):
    """A dead letter. `failures` is JSON: [[attempt, at, code, reason, stack], …]."""

    id: int
    namespace: str
    mailbox: str
    message_id: str
    redrive_count: int
    sequence: int
    dead_sequence: int
    sender: str
    receiver: str
    type: str
    content: bytes
    encoding: int
    failed_at: int
    accepted_at_ms: int
    attempts: int
    retry_count: int
    code: str
    reason: str | None
    stack_trace: str | None
    failures: str
    status: str


_MESSAGE_COLUMNS = ", ".join(MessageRow.__struct_fields__)
_LETTER_COLUMNS = ", ".join(LetterRow.__struct_fields__)


class Views:
    """Reads for people. They have a connection of their own, so that none holds up an admission."""

    def __init__(self, path: Path) -> None:
        self._connection = connect_reader(path)
        self._lock = threading.Lock()

    def messages(self, *, state: State | None, mailbox: str | None, limit: int) -> list[MessageRow]:
        if state is None:
            return self._messages("messages", (mailbox, limit))
        if state == "pending":
            return self._messages("messages_pending", (mailbox, limit))
        return self._messages("messages_in_state", (mailbox, limit, state))

    def message(self, msg_id: str) -> list[MessageRow]:
        return self._messages("messages_by_id", (msg_id,))

    def entry(self, mailbox: str, sequence: int) -> MessageRow | None:
        """The stay of a message in one mailbox, named by the event that began it."""
        return next(iter(self._messages("message_entry", (sequence, mailbox))), None)

    def counts(self, mailbox: str | None) -> dict[State, int]:
        return dict[State, int](self._rows(QUERIES["counts"], (mailbox,)))

    def dead_letters(self, *, mailbox: str | None, status: str | None, limit: int) -> list[LetterRow]:
        rows = self._rows(QUERIES["letters"].replace("{columns}", _LETTER_COLUMNS), (mailbox, status, limit))
        return [LetterRow(*row) for row in rows]

    def dead_letters_of(self, row: MessageRow) -> list[LetterRow]:
        """The dead letters of a message in its mailbox, redriven ones too."""
        bindings = (row.namespace, row.mailbox, row.msg_id)
        rows = self._rows(QUERIES["letters_of"].replace("{columns}", _LETTER_COLUMNS), bindings)
        return [LetterRow(*each) for each in rows]

    def task(self, task_id: str) -> TaskView | None:
        rows = self._rows(QUERIES["task"].replace("{columns}", TASK_COLUMNS), (task_id,))
        return read_task(rows[0]) if rows else None

    def steps(self, task_id: str) -> list[StepView]:
        rows = self._rows(QUERIES["steps"].replace("{columns}", STEP_COLUMNS), (task_id,))
        return [read_step(row) for row in rows]

    def tasks(
        self,
        *,
        namespace: str | None,
        status: Status | None,
        workflow: str | None,
        limit: int,
        before: str | None,
    ) -> TaskPage:
        conditions = ""
        bindings: list[object] = [sequence_of(before), limit + 1]
        for column, value in (("namespace", namespace), ("status", status), ("workflow", workflow)):
            if value is not None:
                bindings.append(value)
                conditions += f" AND {column} = ?{len(bindings)}"
        text = QUERIES["tasks"].replace("{columns}", TASK_COLUMNS).replace("{conditions}", conditions)
        return page_of([read_task(row) for row in self._rows(text, tuple(bindings))], limit)

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _messages(self, name: str, bindings: apsw.Bindings) -> list[MessageRow]:
        rows = self._rows(QUERIES[name].replace("{columns}", _MESSAGE_COLUMNS), bindings)
        return [MessageRow(*row) for row in rows]

    def _rows(self, text: str, bindings: apsw.Bindings) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._connection.execute(text, bindings).fetchall()
