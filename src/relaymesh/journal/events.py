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
from relaymesh.kernel.token import format_token
from relaymesh.wire.envelope import envelope_json, iso
from relaymesh.wire.named import named_by
from relaymesh.wire.operations import operation_of
from relaymesh.wire.payload import Get, no_payloads, result_hash, shown_whole
from relaymesh.wire.records import Skipped, Unreadable, read_records

REMEMBERED_MAX = 200_000
"""Messages whose ids are kept while reading: about 50 MB."""

_UNBURNED = ("deferred", "released")
_SETTLED = (records.Acked, records.Dropped)

OfTask = (
    records.TaskSubmitted
    | records.StepsSent
    | records.StepsEnded
    | records.StepsAdded
    | records.TaskClosing
    | records.TaskEnded
    | records.StepWaits
    | records.SignalReceived
    | records.StepsWithdrawn
    | records.TaskUndoing
    | records.UsageNoted
    | records.BudgetPaused
    | records.BudgetSet
    | records.NoticeSent
)
OfSchedule = records.ScheduleSet | records.ScheduleRemoved | records.ScheduleFired | records.SchedulePaused


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

    def __init__(self, *, full: bool = False, get: Get = no_payloads) -> None:
        """`get`: reads payload files."""
        self._full = full
        self._get = get
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
                return self._other_detail(record)

    def _other_detail(self, record: Any) -> Callable[[int, int], dict[str, Any]]:
        if isinstance(record, records.StepsSent):
            return lambda i, _: self._names(record.mailbox, record.sequences[i]) | _of_task(record, i)
        if isinstance(record, records.StepWaits) and record.sequence >= 0:
            return lambda i, _: self._names(record.asked, record.sequence) | _of_task(record, i)
        if isinstance(record, OfTask):
            return lambda i, _: _of_task(record, i)
        if isinstance(record, records.WorkflowPut):
            return lambda _i, _at: {"workflow": record.name, "version": record.version, "owner": record.owner}
        if isinstance(record, records.WorkflowRemoved):
            return lambda _i, _at: {"workflow": record.name, "versions": record.versions}
        if isinstance(record, OfSchedule):
            return lambda _i, _at: _of_schedule(record)
        if isinstance(record, records.DeadLettersPurged):
            return lambda i, _: self._names(record.mailbox, record.dead_sequences[i])
        return lambda i, _: self._moves(record, record.sequences[i])

    def _enters(
        self, mailbox: str, envelope: Envelope, sequence: int, at: int, targets: int = 1
    ) -> dict[str, Any]:
        self._remember(sequence, _Message(envelope.id, targets))
        row = {"mailbox": mailbox, "message_id": envelope.id, "message_sequence": sequence, "retry_count": 0}
        if self._full:
            row["message"] = envelope_json(shown_whole(envelope, self._get), mailbox, at)
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


def _of_schedule(record: OfSchedule) -> dict[str, Any]:
    """What a record says about a schedule. Its document, input and message stay in the journal."""
    row: dict[str, Any] = {"schedule": record.name}
    match record:
        case records.ScheduleSet():
            work = record.work
            row |= {"cron": record.cron, "tz": record.tz, "next_at": iso(record.next_at)}
            row |= {"workflow": work.workflow} if work.workflow else {"mailbox": work.to}
            row["owner"] = record.owner
        case records.ScheduleFired():
            row |= {"tick_at": iso(record.tick_at), "next_at": iso(record.next_at), "run": record.run or None}
            row |= {"skipped": record.skipped, "reason": record.reason} if record.skipped else {}
        case records.SchedulePaused():
            row["paused"] = record.paused
    return row


def _of_task(record: OfTask, i: int) -> dict[str, Any]:
    """What event i says about a task: which step, how it ended, and by which grant."""
    row: dict[str, Any] = {"task": record.task}
    match record:
        case records.TaskSubmitted():
            row["workflow"] = record.plan.name
        case records.StepsAdded():
            row |= {"step": record.step, "items": len(record.items) or len(record.plans)}
        case records.StepsSent():
            row["step"] = record.steps[i]
        case records.StepsEnded():
            token = format_token(record.token) if record.token else None
            row |= {"step": record.steps[i], "status": record.status, "token": token}
            if record.outputs:
                row["result_hash"] = result_hash(record.outputs[i])
        case records.TaskClosing() | records.TaskEnded():
            row["status"] = record.status
        case _:
            row |= _more_of_task(record, i)
    if reason := getattr(record, "reason", ""):
        row["reason"] = reason
    return row


def _more_of_task(record: OfTask, i: int) -> dict[str, Any]:
    """Waits, signals, withdrawals, undoing, budgets and notices."""
    match record:
        case records.StepWaits():
            return {"step": record.step, "kind": record.kind}
        case records.SignalReceived():
            return {"signal": record.name, "by": record.by}
        case records.StepsWithdrawn():
            return {"step": record.steps[i]}
        case records.TaskUndoing():
            return {"steps": record.steps}
        case records.UsageNoted():
            used = {"cost_micros": record.cost_micros, "tokens": record.tokens}
            return {"step": record.step, "token": format_token(record.token), **used}
        case records.BudgetSet():
            return {"cost_micros": record.cost_micros, "tokens": record.tokens, "by": record.by}
        case records.NoticeSent():
            return {"kind": record.kind, "mailbox": record.mailbox}
    return {}
