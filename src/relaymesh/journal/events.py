"""The journal's records as rows: one for each event, under the operations' names.

A record names a message by the sequence that accepted it. Its id and how often it was tried are
remembered while reading, for a bounded number of messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from relaymesh.kernel import records
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.records import AnyRecord, Failure
from relaymesh.wire.envelope import envelope_json, iso
from relaymesh.wire.named import named_by
from relaymesh.wire.operations import operation_of
from relaymesh.wire.records import Skipped, Unreadable, read_records

REMEMBERED_MAX = 200_000
"""Messages whose ids are kept while reading: about 50 MB."""

_UNBURNED = ("deferred", "released")
_SETTLED = (records.Acked, records.Dropped)


class Events(Protocol):
    """A frame, as far as it matters here."""

    @property
    def first_sequence(self) -> int: ...

    @property
    def events(self) -> int: ...

    @property
    def payload(self) -> bytes: ...


class _Message:
    """What is remembered of a message while reading."""

    __slots__ = ("attempts", "id", "targets")

    def __init__(self, id: str, targets: int = 1) -> None:
        self.id = id
        self.targets = targets
        self.attempts: dict[str, int] = {}


class EventRows:
    """Turns frames into rows, in order. `full` adds the message to the events that carry one."""

    def __init__(self, *, full: bool = False) -> None:
        self._full = full
        self._messages: dict[int, _Message] = {}

    def rows(self, frames: Iterable[Events]) -> Iterator[dict[str, Any]]:
        for frame in frames:
            sequence = frame.first_sequence
            for record in read_records(frame.payload):
                yield from self._rows(record, sequence)
                sequence += record.count

    def _rows(self, record: AnyRecord | Skipped | Unreadable, base: int) -> Iterator[dict[str, Any]]:
        detail = self._detail(record)
        at = None if isinstance(record, Skipped | Unreadable) else iso(record.at)
        operation = operation_of(record)
        for i in range(record.count):
            row: dict[str, Any] = {
                "sequence": base + i,
                "timestamp": at,
                "operation": operation,
                "mailbox": None,
                "message_id": None,
                "message_sequence": None,
                "retry_count": None,
            }
            row.update(detail(i, base + i))
            yield row

    def _detail(self, record: AnyRecord | Skipped | Unreadable) -> Callable[[int, int], dict[str, Any]]:
        """How event i of this record fills its row."""
        match record:
            case records.Accepted():
                return lambda i, at: self._enters(record.mailbox, record.envelopes[i], at, record.at)
            case records.Published():
                return lambda i, at: self._enters(
                    record.topic, record.envelopes[i], at, record.at, record.targets
                )
            case records.Redriven():
                return lambda _, at: self._enters(record.mailbox, record.envelope, at, record.at)
            case records.DeadLettersPurged():
                return lambda i, _: self._names(record.mailbox, record.dead_sequences[i])
            case records.MailboxOpened() | records.Subscribed() | records.Unsubscribed() | records.Resumed():
                return lambda _i, _at: {"mailbox": record.mailbox}
            case records.Suspended():
                return lambda _i, _at: {"mailbox": record.mailbox, "reason": record.reason}
            case records.AgentRegistered():
                return lambda _i, _at: {"mailbox": record.mailbox, "role": record.role}
            case records.EpochStarted() | Skipped():
                return lambda _i, _at: {}
            case Unreadable():
                mailbox = named_by(record).mailbox
                return lambda _i, _at: {"mailbox": mailbox, "unreadable": record.why}
            case records.Returned() | records.DeadLettered():
                return lambda i, at: self._ends(record, i, at)
            case _:
                return lambda i, _: self._moves(record, record.sequences[i])

    def _enters(
        self, mailbox: str, envelope: Envelope, sequence: int, at: int, targets: int = 1
    ) -> dict[str, Any]:
        self._remember(sequence, _Message(envelope.id, targets))
        row = {"mailbox": mailbox, "message_id": envelope.id, "message_sequence": sequence, "retry_count": 0}
        if self._full:
            row["message"] = envelope_json(envelope, mailbox, at)
        return row

    def _moves(self, record: Any, sequence: int) -> dict[str, Any]:
        message = self._messages.get(sequence)
        if message is not None and isinstance(record, records.Granted):
            message.attempts[record.mailbox] = message.attempts.get(record.mailbox, 0) + 1
        row = self._names(record.mailbox, sequence)
        if message is not None and isinstance(record, _SETTLED) and message.targets <= 1:
            del self._messages[sequence]
        return row

    def _ends(self, record: records.Returned | records.DeadLettered, i: int, at: int) -> dict[str, Any]:
        sequence = record.sequences[i]
        failure = record.failures[i] if i < len(record.failures) else None
        row = self._names(record.mailbox, sequence) | _why(failure)
        message = self._messages.get(sequence)
        if message is not None and isinstance(record, records.DeadLettered):
            row["reason"] = record.reason
            self._remember(at, message)  # a purge names the letter by this event
        elif message is not None and isinstance(record, records.Returned) and record.cause in _UNBURNED:
            message.attempts[record.mailbox] = max(0, message.attempts.get(record.mailbox, 0) - 1)
        return row

    def _names(self, mailbox: str, sequence: int) -> dict[str, Any]:
        message = self._messages.get(sequence)
        retries = None if message is None else max(0, message.attempts.get(mailbox, 0) - 1)
        return {
            "mailbox": mailbox,
            "message_id": None if message is None else message.id,
            "message_sequence": sequence,
            "retry_count": retries,
        }

    def _remember(self, sequence: int, message: _Message) -> None:
        self._messages[sequence] = message
        if len(self._messages) > REMEMBERED_MAX:
            del self._messages[next(iter(self._messages))]


def _why(failure: Failure | None) -> dict[str, Any]:
    if failure is None:
        return {}
    return {"retry_count": max(0, failure.attempt - 1), "code": failure.code, "error": failure.reason}
