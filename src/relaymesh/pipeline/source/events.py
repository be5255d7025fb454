"""Makes rows of bronze from frames: one row for each event of a record, directly in Arrow columns.

Decoding keeps no state: a row has only the data of its own record. `EventBatch` takes frames until it is full
and then becomes one RecordBatch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from msgspec.structs import replace

from relaymesh.errors import JournalDamaged
from relaymesh.journal import Frame
from relaymesh.journal.aside import Aside
from relaymesh.kernel import records
from relaymesh.kernel.contract import Rule
from relaymesh.kernel.envelope import IN_FILE, Envelope
from relaymesh.kernel.payload import REFERENCE_MARK, full_size
from relaymesh.kernel.records import AnyRecord, Failure
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.pipeline.schema.content import CONTENT
from relaymesh.pipeline.source.columns import Cells, Runs, spread
from relaymesh.pipeline.source.plans import plan_json, steps_json, undoing_json
from relaymesh.pipeline.source.results import hash_of, parts_hash
from relaymesh.pipeline.source.usage import usage_in
from relaymesh.wire.named import named_by
from relaymesh.wire.operations import code_of, operation_of
from relaymesh.wire.payload import Get, no_payloads, whole
from relaymesh.wire.records import Skipped, Unreadable

__all__ = ["EventBatch", "Misfit", "records_of", "time_of"]

TIME_MS_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999: what every reader of the tables can show."""
_DAY_MS = 86_400_000

_encode = msgspec.msgpack.Encoder().encode
_decode_raws = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_decode_head = msgspec.msgpack.Decoder(list[object]).decode


class Misfit(Exception):
    """A frame with a valid checksum whose records are not what its header, or they themselves, say."""


def records_of(frame: Frame, aside: Aside) -> Sequence[AnyRecord | Skipped | Unreadable]:
    """The frame's records, whole; those set aside are `Unreadable`.

    Raises `Misfit`, `JournalDamaged` when there are none in it, or what `Aside.records` raises.
    """
    decoded = aside.records(frame)
    events = 0
    for record in decoded:
        _check_lengths(record)
        events += record.count
    if events != frame.events:
        raise Misfit(f"the frame's header says {frame.events} events, its records have {events}")
    return decoded


def time_of(frame: Frame) -> int | None:
    """When the frame's first event happened, in mesh time; None if its records cannot be read."""
    try:
        return _raw_time(_raw(frame, 0), frame)
    except (msgspec.MsgspecError, IndexError):
        return None


def _raw(frame: Frame, i: int) -> bytes:
    return bytes(_decode_raws(frame.payload)[i])


def _raw_time(raw: bytes, frame: Frame) -> int:
    """All records, known or not, have their time in third place."""
    head = _decode_head(raw)
    at = head[2] if len(head) > 2 else None
    return at if isinstance(at, int) else frame.written_at_ns // 1_000_000


class EventBatch:
    """Collects rows. Each method after `finish` writes one kind of record into its columns."""

    def __init__(
        self,
        schema: pa.Schema,
        source: str,
        partition: int,
        *,
        content: bool,
        aside: Aside | None = None,
        get: Get = no_payloads,
        must_have: bool = True,
    ) -> None:
        """`get`: reads payload files. `must_have`: one that cannot be read is an error; else the row has no
        content.
        """
        self.rows = 0
        self.bytes = 0
        """Content that came from payload files."""
        self._get = get
        self._must_have = must_have
        self._aside = Aside() if aside is None else aside
        self._schema = schema
        self._source = source
        self._partition = partition
        self._content = content
        self._bases = Runs()
        self._times = Runs()
        self._runs: defaultdict[str, Runs] = defaultdict(Runs)
        self._cells: defaultdict[str, Cells] = defaultdict(Cells)
        self._envelopes = Cells()
        self._failures = Cells()

    def add(self, frame: Frame) -> None:
        """All events of a frame; raises what `records_of` raises before anything of it is added."""
        decoded = records_of(frame, self._aside)
        if self._content and REFERENCE_MARK in frame.payload:
            decoded = [self._with_content(record) for record in decoded]
        row, runs = self.rows, self._runs
        base = frame.first_sequence - row
        self._bases.put(row, frame.events, base)
        runs["epoch"].put(row, frame.events, frame.epoch)
        runs["segment"].put(row, frame.events, frame.segment)
        runs["frame_offset"].put(row, frame.events, frame.offset)
        operation, code = runs["operation"], runs["operation_code"]
        for i, record in enumerate(decoded):
            count = record.count
            if isinstance(record, Skipped):
                raw = _raw(frame, i)
                runs["raw"].put(row, count, raw)
                at = _raw_time(raw, frame)
            elif isinstance(record, Unreadable):
                runs["raw"].put(row, count, record.raw)
                runs["mailbox"].put(row, count, named_by(record).mailbox)
                at = frame.written_at_ns // 1_000_000
            else:
                at = record.at
                _FILLS.get(type(record), EventBatch._other)(self, record, row, base + row)
            self._times.put(row, count, at)
            operation.put(row, count, operation_of(record))
            code.put(row, count, code_of(record))
            row += count
        self.rows = row

    def _with_content(self, record: Any) -> Any:
        """The record with the content that is in payload files."""
        if isinstance(record, records.Accepted | records.Published):
            return replace(record, envelopes=[self._whole(each) for each in record.envelopes])
        if isinstance(record, records.Redriven):
            return replace(record, envelope=self._whole(record.envelope))
        return record

    def _whole(self, envelope: Envelope) -> Envelope:
        if envelope.encoding < IN_FILE:
            return envelope
        try:
            filled = whole(envelope, self._get)
        except JournalDamaged:
            if self._must_have:
                raise
            return envelope
        self.bytes += len(filled.content)
        return filled

    def finish(self) -> pa.RecordBatch:
        """The rows as one RecordBatch of the schema."""
        rows = self.rows
        columns = self._columns_of_all()
        columns |= self._columns_of(
            self._envelopes, _ENVELOPE_COLUMNS if self._content else _ENVELOPE_COLUMNS | _USAGE_COLUMN
        )
        columns |= self._columns_of(self._failures, _FAILURE_COLUMNS)
        parts: list[tuple[str, Runs | Cells]] = [*self._runs.items(), *self._cells.items()]
        for name, column in parts:
            if not self._content and name in CONTENT:
                continue
            array = column.array(rows, self._kind(name))
            columns[name] = pc.coalesce(columns[name], array) if name in columns else array
        arrays = [
            columns[field.name] if field.name in columns else pa.nulls(rows, field.type)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _kind(self, name: str) -> pa.DataType:
        return self._schema.field(name).type

    def _columns_of_all(self) -> dict[str, pa.Array]:
        """Columns that every row has."""
        rows = self.rows
        at_ms = np.minimum(self._times.numbers(), TIME_MS_MAX)
        return {
            "partition": pa.array(np.full(rows, self._partition, np.int32)),
            "sequence": pa.array(self._bases.numbers() + np.arange(rows)),
            "timestamp": pa.array(at_ms * 1000).view(self._kind("timestamp")),
            "event_date": pa.array((at_ms // _DAY_MS).astype(np.int32)).view(pa.date32()),
            "source": pa.array([self._source]).take(pa.array(np.zeros(rows, np.int32))),
        }

    def _columns_of(
        self, cells: Cells, getters: dict[str, Callable[[list[Any]], list[Any]]]
    ) -> dict[str, pa.Array]:
        """The columns that each envelope, or failure, fills."""
        if not cells.values:
            return {}
        positions = cells.positions()
        return {
            name: spread(pa.array(values_of(cells.values), self._kind(name)), self.rows, positions)
            for name, values_of in getters.items()
            if self._content or name not in CONTENT
        }

    # -- what each kind of record says -----------------------------------------------------------

    def _other(self, record: Any, row: int, _: int) -> None:
        """A record that has no columns of its own: kept as it is."""
        mailbox = getattr(record, "mailbox", None)
        if mailbox is not None:
            self._runs["mailbox"].put(row, record.count, mailbox)
        self._runs["raw"].put(row, record.count, _encode(record))

    def _started(self, record: records.EpochStarted, row: int, _: int) -> None:
        """The epoch of the frame has all of its data."""

    def _opened(self, record: records.MailboxOpened, row: int, _: int) -> None:
        self._runs["mailbox"].put(row, record.count, record.mailbox)
        self._runs["settings"].put(row, record.count, _settings_json(record.settings))

    def _subscribed(self, record: records.Subscribed, row: int, _: int) -> None:
        self._runs["mailbox"].put(row, record.count, record.mailbox)
        self._runs["pattern"].put(row, record.count, record.pattern)
        self._runs["settings"].put(row, record.count, _settings_json(record.settings))

    def _unsubscribed(self, record: records.Unsubscribed, row: int, _: int) -> None:
        self._runs["mailbox"].put(row, record.count, record.mailbox)
        self._runs["pattern"].put(row, record.count, record.pattern)

    def _suspended(self, record: records.Suspended, row: int, _: int) -> None:
        self._runs["mailbox"].put(row, record.count, record.mailbox)
        self._runs["reason"].put(row, record.count, record.reason)

    def _resumed(self, record: records.Resumed, row: int, _: int) -> None:
        self._runs["mailbox"].put(row, record.count, record.mailbox)

    def _of_task(self, record: Any, row: int, _: int) -> None:
        """A record about a task. Inputs and results stay in the journal; only the hashes of results are
        taken."""
        self._runs["task_id"].put(row, record.count, record.task)
        for name in ("mailbox", "code", "reason", "status"):
            if value := getattr(record, name, None):
                self._runs[name].put(row, record.count, value)

    def _submitted(self, record: records.TaskSubmitted, row: int, sequence: int) -> None:
        self._of_task(record, row, sequence)
        self._runs["sender"].put(row, record.count, record.owner)
        self._runs["traceparent"].put(row, record.count, record.trace)
        self._runs["settings"].put(row, record.count, plan_json(record.plan, record.given))

    def _steps_sent(self, record: records.StepsSent, row: int, sequence: int) -> None:
        self._of_task(record, row, sequence)
        self._cells["message_sequence"].put(row, record.sequences)
        self._cells["step"].put(row, record.steps)

    def _steps_added(self, record: records.StepsAdded, row: int, sequence: int) -> None:
        self._of_task(record, row, sequence)
        self._runs["step"].put(row, record.count, record.step)
        self._runs["items"].put(row, record.count, len(record.plans) or len(record.items))
        if record.plans:
            self._runs["settings"].put(row, record.count, steps_json(record.plans))

    def _steps_ended(self, record: records.StepsEnded, row: int, sequence: int) -> None:
        self._of_task(record, row, sequence)
        self._cells["step"].put(row, record.steps)
        if record.token:
            self._runs["lease_token"].put(row, record.count, record.token)
        if record.outputs:
            self._cells["result_hash"].put(row, [hash_of(output) for output in record.outputs])

    def _task_ended(self, record: records.TaskEnded, row: int, sequence: int) -> None:
        self._of_task(record, row, sequence)
        if record.status == "SUCCESS":
            self._runs["result_hash"].put(row, record.count, hash_of(record.result))
            self._runs["parts_hash"].put(row, record.count, parts_hash(record.result))

    def _step_waits(self, record: records.StepWaits, row: int, sequence: int) -> None:
        self._of_task(record, row, sequence)
        self._runs["step"].put(row, record.count, record.step)
        self._runs["type"].put(row, record.count, record.kind)
        if record.until:
            self._cells["due_at"].put(row, [min(record.until, TIME_MS_MAX) * 1000])
        if record.sequence >= 0:
            self._runs["mailbox"].put(row, record.count, record.asked)
            self._cells["message_sequence"].put(row, [record.sequence])

    def _signalled(self, record: records.SignalReceived, row: int, sequence: int) -> None:
        self._of_task(record, row, sequence)
        self._runs["type"].put(row, record.count, record.name)
        self._runs["sender"].put(row, record.count, record.by or None)

    def _steps_withdrawn(self, record: records.StepsWithdrawn, row: int, sequence: int) -> None:
        self._of_task(record, row, sequence)
        self._cells["step"].put(row, record.steps)

    def _task_undoing(self, record: records.TaskUndoing, row: int, sequence: int) -> None:
        self._of_task(record, row, sequence)
        self._runs["items"].put(row, record.count, len(record.steps))
        self._runs["settings"].put(row, record.count, undoing_json(record))

    def _used(self, record: records.UsageNoted, row: int, sequence: int) -> None:
        self._of_task(record, row, sequence)
        self._runs["step"].put(row, record.count, record.step)
        self._runs["lease_token"].put(row, record.count, record.token)
        self._amounts(record, row)

    def _budget_set(self, record: records.BudgetSet, row: int, sequence: int) -> None:
        self._of_task(record, row, sequence)
        self._runs["sender"].put(row, record.count, record.by or None)
        self._amounts(record, row)

    def _amounts(self, record: records.UsageNoted | records.BudgetSet, row: int) -> None:
        self._runs["cost_micros"].put(row, record.count, record.cost_micros)
        self._runs["tokens"].put(row, record.count, record.tokens)

    def _notice(self, record: records.NoticeSent, row: int, sequence: int) -> None:
        self._of_task(record, row, sequence)
        self._runs["type"].put(row, record.count, record.kind)

    def _workflow(self, record: records.WorkflowPut | records.WorkflowRemoved, row: int, _: int) -> None:
        """Which workflow and versions. The document stays in the journal."""
        self._runs["settings"].put(row, record.count, _workflow_json(record))

    def _schedule(self, record: Any, row: int, _: int) -> None:
        """The schedule, and what its tick started. Documents, inputs and messages stay in the journal."""
        self._runs["settings"].put(row, record.count, _schedule_json(record))
        if isinstance(record, records.ScheduleFired) and record.reason:
            self._runs["reason"].put(row, record.count, record.reason)

    def _registered(self, record: records.AgentRegistered, row: int, _: int) -> None:
        self._runs["mailbox"].put(row, record.count, record.mailbox)
        self._runs["settings"].put(row, record.count, _registration_json(record))

    def _accepted(self, record: records.Accepted, row: int, sequence: int) -> None:
        self._runs["mailbox"].put(row, record.count, record.mailbox)
        self._enters(record.envelopes, row, sequence)

    def _published(self, record: records.Published, row: int, sequence: int) -> None:
        self._runs["topic"].put(row, record.count, record.topic)
        self._runs["targets"].put(row, record.count, record.targets)
        self._enters(record.envelopes, row, sequence)

    def _redriven(self, record: records.Redriven, row: int, sequence: int) -> None:
        self._runs["mailbox"].put(row, 1, record.mailbox)
        self._runs["source_mailbox"].put(row, 1, record.source)
        self._cells["dead_sequence"].put(row, (record.dead_sequence,))
        self._enters((record.envelope,), row, sequence)

    def _enters(self, envelopes: Sequence[Envelope], row: int, sequence: int) -> None:
        self._cells["message_sequence"].put(row, range(sequence, sequence + len(envelopes)))
        self._envelopes.put(row, envelopes)

    def _names(self, record: Any, row: int, _: int) -> None:
        """Most records: a mailbox, and the messages in it that they are about."""
        self._runs["mailbox"].put(row, record.count, record.mailbox)
        self._cells["message_sequence"].put(row, record.sequences)

    def _granted(self, record: records.Granted, row: int, sequence: int) -> None:
        count, runs = record.count, self._runs
        self._names(record, row, sequence)
        runs["holder"].put(row, count, record.holder)
        runs["lease_ms"].put(row, count, record.lease_ms)
        runs["remote"].put(row, count, record.remote)
        self._cells["lease_token"].put(row, range(record.token, record.token + count))

    def _taken(self, record: records.StepsTaken, row: int, sequence: int) -> None:
        self._names(record, row, sequence)
        self._runs["lease_ms"].put(row, record.count, record.lease_ms)

    def _dropped(self, record: records.Dropped, row: int, sequence: int) -> None:
        self._names(record, row, sequence)
        self._runs["code"].put(row, record.count, record.code or None)

    def _returned(self, record: records.Returned, row: int, sequence: int) -> None:
        self._names(record, row, sequence)
        self._cells["due_at"].put(row, [min(due, TIME_MS_MAX) * 1000 for due in record.due])
        if record.failures:
            self._failures.put(row, record.failures)

    def _dead_lettered(self, record: records.DeadLettered, row: int, sequence: int) -> None:
        self._names(record, row, sequence)
        self._runs["reason"].put(row, record.count, record.reason)
        self._runs["alert"].put(row, record.count, record.alert)
        if record.failures:
            self._failures.put(row, record.failures)

    def _purged(self, record: records.DeadLettersPurged, row: int, _: int) -> None:
        self._runs["mailbox"].put(row, record.count, record.mailbox)
        self._cells["dead_sequence"].put(row, record.dead_sequences)

    def _reprioritised(self, record: records.Reprioritised, row: int, sequence: int) -> None:
        self._names(record, row, sequence)
        self._runs["priority"].put(row, record.count, record.priority)


_FILLS: dict[type, Callable[[EventBatch, Any, int, int], None]] = {
    records.EpochStarted: EventBatch._started,
    records.MailboxOpened: EventBatch._opened,
    records.Subscribed: EventBatch._subscribed,
    records.Unsubscribed: EventBatch._unsubscribed,
    records.Accepted: EventBatch._accepted,
    records.Published: EventBatch._published,
    records.Granted: EventBatch._granted,
    records.Acked: EventBatch._names,
    records.Dropped: EventBatch._dropped,
    records.Returned: EventBatch._returned,
    records.DeadLettered: EventBatch._dead_lettered,
    records.Redriven: EventBatch._redriven,
    records.DeadLettersPurged: EventBatch._purged,
    records.Reprioritised: EventBatch._reprioritised,
    records.DelayedForced: EventBatch._names,
    records.Completed: EventBatch._names,
    records.Suspended: EventBatch._suspended,
    records.Resumed: EventBatch._resumed,
    records.TaskSubmitted: EventBatch._submitted,
    records.StepsSent: EventBatch._steps_sent,
    records.StepsEnded: EventBatch._steps_ended,
    records.StepsAdded: EventBatch._steps_added,
    records.TaskClosing: EventBatch._of_task,
    records.TaskEnded: EventBatch._task_ended,
    records.WorkflowPut: EventBatch._workflow,
    records.WorkflowRemoved: EventBatch._workflow,
    records.StepsTaken: EventBatch._taken,
    records.ScheduleSet: EventBatch._schedule,
    records.ScheduleRemoved: EventBatch._schedule,
    records.ScheduleFired: EventBatch._schedule,
    records.SchedulePaused: EventBatch._schedule,
    records.StepWaits: EventBatch._step_waits,
    records.SignalReceived: EventBatch._signalled,
    records.StepsWithdrawn: EventBatch._steps_withdrawn,
    records.TaskUndoing: EventBatch._task_undoing,
    records.UsageNoted: EventBatch._used,
    records.BudgetPaused: EventBatch._of_task,
    records.BudgetSet: EventBatch._budget_set,
    records.NoticeSent: EventBatch._notice,
    records.AgentRegistered: EventBatch._registered,
}

_ENVELOPE_COLUMNS: dict[str, Callable[[list[Envelope]], list[Any]]] = {
    "message_id": lambda envelopes: [each.id for each in envelopes],
    "sender": lambda envelopes: [each.sender for each in envelopes],
    "type": lambda envelopes: [each.type for each in envelopes],
    "priority": lambda envelopes: [each.priority for each in envelopes],
    "ttl_ms": lambda envelopes: [each.ttl_ms for each in envelopes],
    "delay_ms": lambda envelopes: [each.delay_ms for each in envelopes],
    "task_id": lambda envelopes: [each.task for each in envelopes],
    "ordering_key": lambda envelopes: [each.key for each in envelopes],
    "correlation_id": lambda envelopes: [each.correlation_id for each in envelopes],
    "reply_to": lambda envelopes: [each.reply_to for each in envelopes],
    "requires_ack": lambda envelopes: [each.requires_ack for each in envelopes],
    "tags": lambda envelopes: [each.tags for each in envelopes],
    "traceparent": lambda envelopes: [each.trace for each in envelopes],
    "max_retries": lambda envelopes: [each.max_retries for each in envelopes],
    "sent_at": lambda envelopes: [_micros(each.timestamp_ms) for each in envelopes],
    "origin_id": lambda envelopes: [each.origin for each in envelopes],
    "encoding": lambda envelopes: [each.encoding % IN_FILE for each in envelopes],
    "content_bytes": lambda envelopes: [
        len(each.content) if each.encoding < IN_FILE else full_size(each.content) for each in envelopes
    ],
    "content": lambda envelopes: [None if each.encoding >= IN_FILE else each.content for each in envelopes],
    "extra": lambda envelopes: [_text(each.extra) for each in envelopes],
}
_USAGE_COLUMN: dict[str, Callable[[list[Envelope]], list[Any]]] = {
    "extra": lambda envelopes: [usage_in(each.extra) for each in envelopes],
}
_FAILURE_COLUMNS: dict[str, Callable[[list[Failure | None]], list[Any]]] = {
    "attempt": lambda failures: [None if each is None else each.attempt for each in failures],
    "code": lambda failures: [None if each is None else each.code for each in failures],
    "error": lambda failures: [None if each is None else each.reason for each in failures],
    "stack": lambda failures: [None if each is None else each.stack or None for each in failures],
}

_LISTS: dict[type, tuple[str, ...]] = {
    records.Accepted: ("envelopes",),
    records.Published: ("envelopes",),
    records.Returned: ("sequences", "due"),
    records.DeadLettersPurged: ("dead_sequences",),
    records.StepsSent: ("sequences", "steps"),
    records.StepsEnded: ("steps",),
    records.StepsWithdrawn: ("steps",),
    **dict.fromkeys(
        (
            records.Granted,
            records.Acked,
            records.Dropped,
            records.DeadLettered,
            records.Reprioritised,
            records.DelayedForced,
            records.Completed,
            records.StepsTaken,
        ),
        ("sequences",),
    ),
}
"""One value for each event."""


def _check_lengths(record: AnyRecord | Skipped | Unreadable) -> None:
    lists = _LISTS.get(type(record))
    if lists is None:
        whole = not isinstance(record, records.Redriven) or record.count == 1
    else:
        whole = all(len(getattr(record, name)) == record.count for name in lists)
    optional = getattr(record, "failures", None) or getattr(record, "outputs", None)
    if not whole or (optional and len(optional) != record.count):
        raise Misfit(f"a record {operation_of(record)} of {record.count} events has not as many values")


def _micros(ms: int | None) -> int | None:
    return None if ms is None else max(-TIME_MS_MAX, min(ms, TIME_MS_MAX)) * 1000


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def _settings_json(settings: MailboxSettings) -> str:
    """All settings by name, because the defaults at the time when the mailbox was opened are part of the
    event."""
    fields = {name: msgspec.to_builtins(getattr(settings, name)) for name in settings.__struct_fields__}
    if settings.contract is not None:
        fields["contract"] = {code: _rule(rule) for code, rule in settings.contract.items()}
    return msgspec.json.encode(fields).decode()


def _registration_json(record: records.AgentRegistered) -> str:
    said = {
        "role": record.role,
        "capabilities": record.capabilities,
        "protocol": record.protocol,
        "metadata": msgspec.Raw(record.metadata),
        "draining": record.draining,
    }
    if not record.settles:  # rows of older journals stay as they are
        said["settles"] = False
    return msgspec.json.encode(said).decode()


def _workflow_json(record: records.WorkflowPut | records.WorkflowRemoved) -> str:
    said: dict[str, Any] = {"namespace": record.namespace, "workflow": record.name}
    if isinstance(record, records.WorkflowPut):
        said |= {"version": record.version, "digest": record.digest.hex(), "owner": record.owner}
    else:
        said |= {"versions": record.versions, "by": record.by}
    return msgspec.json.encode(said).decode()


def _schedule_json(record: Any) -> str:
    said: dict[str, Any] = {"namespace": record.namespace, "schedule": record.name}
    for name in ("cron", "tz", "missed", "owner", "tick_at", "next_at", "run", "skipped", "paused", "by"):
        if hasattr(record, name):
            said[name] = getattr(record, name)
    if isinstance(record, records.ScheduleSet):
        said |= {"workflow": record.work.workflow} if record.work.workflow else {"to": record.work.to}
    return msgspec.json.encode(said).decode()


def _rule(rule: Rule) -> dict[str, Any]:
    return {name: getattr(rule, name) for name in rule.__struct_fields__}
