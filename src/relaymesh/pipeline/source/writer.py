"""Rows as messages: `df.write.format("relaymesh")` and `writeStream`.

There are two phases. Tasks on executors check their rows and pass them to the driver; nothing is sent. When
all tasks are done, the driver sends everything, under ids made from the place of each row. Promised:

- A job that fails before all its tasks are done has sent nothing.
- One that is refused while the driver sends has sent the rows before that, and its error says how many, and
  under which `idPrefix` a run of the same rows, in the same order and partitions, sends only the rest.
- A task that ran twice counts once. A commit that is repeated (a crash between sending and Spark's own note
  of it) meets its own ids and adds nothing, for as long as the mesh remembers ids.

The room of mailboxes is checked before the first row leaves, if the ids are new, nothing waits for room
(`timeout`) and the mesh tells this client of them. Other senders may still take the room meanwhile.

Only the driver opens the mesh, because one process at a time may hold a data directory, and because tasks
that sent by themselves could not take it back.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from relaymesh.errors import InvalidEnvelope, InvalidSettings, MailboxFull, MeshError
from relaymesh.kernel.address import DEFAULT_NAMESPACE
from relaymesh.modes import create_file, make_folder
from relaymesh.pipeline.source.options import OPTIONS_HINT
from relaymesh.pipeline.tables.warehouse_folder import folder_of
from relaymesh.sdk.compose import OPTIONS
from relaymesh.sdk.mesh import Mesh
from relaymesh.wire.content import decode_content
from relaymesh.wire.envelope import build_envelope

__all__ = ["BatchWriter", "StreamWriter", "WriterOptions"]

COLUMNS = OPTIONS | {"to", "topic", "content"}
SENT_AT_ONCE = 500
AGAIN = "the same rows under the same ids send the rest, and nothing twice"
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"

_encode = msgspec.msgpack.Encoder().encode


class StagedRow(msgspec.Struct, array_like=True, gc=False):
    """A checked row on its way to the driver: its content as bytes, its other columns as given."""

    content: bytes
    encoding: int
    fields: dict[str, Any]


_decode = msgspec.msgpack.Decoder(list[StagedRow]).decode


@dataclass(frozen=True, slots=True)
class Staged(WriterCommitMessage):
    """What a task hands over: its rows, or the file they are in."""

    partition: int
    run: str
    rows: bytes = b""
    file: str | None = None

    def load(self) -> list[StagedRow]:
        return _decode(self.rows if self.file is None else Path(self.file).read_bytes())

    def discard(self) -> None:
        if self.file is not None:
            Path(self.file).unlink(missing_ok=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class WriterOptions:
    """Where the messages go.

    path, or url and token: the mesh: a data directory on the driver's machine, or a node.
    sender: in whose name they are sent.
    idPrefix: what the ids of rows without an `id` begin with. Give the same one to run a failed job again.
        Default: the streaming query's id, also in `foreachBatch` (with the batch and a digest of the
        rows, for it may write several frames); else a new one for each batch job.
    staging: a directory that driver and executors share, for rows too many to pass through the driver's
        memory.
    timeout: how many seconds a full mailbox is waited for.
    """

    mesh_at: str
    token: str | None = None
    sender: str = "spark"
    prefix: str | None = None
    staging: str | None = None
    timeout: float | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> WriterOptions:
        """Raises `InvalidSettings` for options with which nothing can be sent, before any task has run."""
        options = {name.lower(): value for name, value in given.items()}
        if overwrite:
            raise InvalidSettings("messages cannot be overwritten", hint='use .mode("append")')
        mesh_at = options.get("url") or options.get("path")
        if not mesh_at:
            raise InvalidSettings("the option path is missing", hint="name a data directory, or a node's url")
        unknown = set(schema.fieldNames()) - COLUMNS
        if unknown:
            raise InvalidSettings(
                f"a message has no column {', '.join(sorted(unknown))}",
                hint=f"columns are {', '.join(sorted(COLUMNS))}; put the rest into content: struct(…)",
            )
        if "content" not in schema.fieldNames() or not {"to", "topic"} & set(schema.fieldNames()):
            raise InvalidSettings("rows need the columns content, and to or topic", hint=OPTIONS_HINT)
        if options.get("staging"):
            folder_of(options["staging"], "the option staging")
        try:
            timeout = float(options["timeout"]) if "timeout" in options else None
        except ValueError:
            raise InvalidSettings(
                f"the option timeout must be seconds, not {options['timeout']!r}", hint=OPTIONS_HINT
            ) from None
        return cls(
            mesh_at=mesh_at,
            token=options.get("token"),
            sender=options.get("sender", "spark"),
            prefix=options.get("idprefix") or options.get("id_prefix"),
            staging=options.get("staging"),
            timeout=timeout,
        )


class BatchWriter(DataSourceWriter):
    """`write` runs on executors, `commit` and `abort` on the driver."""

    def __init__(self, options: WriterOptions) -> None:
        self._options = options
        self._run = options.prefix or uuid.uuid4().hex  # made once, on the driver: a task's retry has it too

    def write(self, iterator: Iterator[Row]) -> Staged:
        rows = _encoded(iterator)
        return _stage(rows, self._options, self._options.prefix or _micro_batch(rows) or self._run)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        parts = _staged(messages)
        new = self._options.prefix is None and all(part.run == self._run for part in parts)
        again = f'.option("idPrefix", "{self._run}") and the same rows send the rest, and nothing twice'
        _commit(parts, self._options, new=new, again=again if new else AGAIN)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _discard(messages)


class StreamWriter(DataSourceStreamWriter):
    """The same for each micro-batch, whose number is part of the ids."""

    def __init__(self, options: WriterOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Row]) -> Staged:
        query = _property(_QUERY_ID)
        return _stage(_encoded(iterator), self._options, self._options.prefix or query or "stream")

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        _commit(_staged(messages), self._options, f"-{batchId}")

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        _discard(messages)


# -- on executors -------------------------------------------------------------------------------


def _encoded(rows: Iterable[Row]) -> bytes:
    return _encode([_checked(i, row.asDict(recursive=True)) for i, row in enumerate(rows)])


def _property(name: str) -> str | None:
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)


def _micro_batch(rows: bytes) -> str | None:
    """A batch write inside `foreachBatch`: what a restart of the query calls it again."""
    query, batch = _property(_QUERY_ID), _property(_BATCH_ID)
    if query is None or batch is None:
        return None
    return f"{query}-{batch}-{hashlib.blake2b(rows, digest_size=8).hexdigest()}"


def _stage(data: bytes, options: WriterOptions, run: str) -> Staged:
    context = TaskContext.get()
    partition = 0 if context is None else context.partitionId()
    if options.staging is None:
        return Staged(partition, run, data)
    file = Path(options.staging) / f"{uuid.uuid4().hex}.rows"  # each attempt its own: a dead one may linger
    make_folder(file.parent)
    with os.fdopen(create_file(file, os.O_WRONLY), "wb") as staged:
        staged.write(data)
    return Staged(partition, run, file=str(file))


def _checked(i: int, columns: dict[str, Any]) -> StagedRow:
    """All errors of rows are found here, before anything is sent."""
    fields = {name: value for name, value in columns.items() if value is not None}
    content = fields.pop("content", None)
    targets = [name for name in ("to", "topic") if name in fields]
    if len(targets) != 1:
        given = " and ".join(targets) or "neither"
        raise InvalidEnvelope(f"row {i} must have either to or topic, and has {given}")
    try:
        named = {name: value for name, value in fields.items() if name not in ("to", "topic")}
        envelope = build_envelope("default/spark", content, **{"id": f"row-{i}", **named})
    except InvalidEnvelope as error:
        raise InvalidEnvelope(f"row {i}: {error.message}", hint=error.hint) from None
    return StagedRow(envelope.content, envelope.encoding, fields)


# -- on the driver ------------------------------------------------------------------------------


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return sorted(
        (message for message in messages if isinstance(message, Staged)), key=lambda staged: staged.partition
    )


def _discard(messages: Sequence[WriterCommitMessage | None]) -> None:
    for staged in _staged(messages):
        staged.discard()


def _commit(
    parts: list[Staged], options: WriterOptions, batch: str = "", *, new: bool = False, again: str = AGAIN
) -> None:
    """Send everything. Rows that an earlier try has sent are duplicates by their ids, and are not sent again.

    `new`: no earlier try can have sent a row. `again`: what to do after a refusal.
    """
    messages = _messages(parts, batch)
    first = next(messages, None)
    if first is not None:  # an empty micro-batch opens no mesh
        with Mesh(options.mesh_at, token=options.token) as mesh:
            if new and not options.timeout:
                _check_room(mesh, parts)
            sent = 0
            waiting = [first, *islice(messages, SENT_AT_ONCE - 1)]
            while waiting:
                try:
                    for count in _send(mesh, waiting, options):
                        sent += count
                except MeshError as error:
                    rows = sum(len(part.load()) for part in parts)
                    told = f"{error.message}; {sent} of {rows} rows were sent"
                    raise type(error)(told, hint=f"{error.hint}; then {again}" if sent else None) from error
                waiting = list(islice(messages, SENT_AT_ONCE))
    for staged in parts:
        staged.discard()


def _check_room(mesh: Mesh, parts: list[Staged]) -> None:
    """Raise the error that the mesh would raise later. Mailboxes that this client may not see are not
    checked."""
    boxes = mesh.stats().mailboxes
    wanted: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for part in parts:
        for row in part.load():
            if "to" in row.fields:
                wanted[row.fields["to"]] += 1
                sizes[row.fields["to"]] += len(row.content)
    for to, count in sorted(wanted.items()):
        box = boxes.get(to if "/" in to else f"{DEFAULT_NAMESPACE}/{to}")
        if box is None:
            continue
        room, room_bytes = box.capacity - box.pending, box.capacity_bytes - box.bytes
        if count > room or sizes[to] > room_bytes:
            raise MailboxFull(
                f"{to} has room for {max(room, 0)} messages of {max(room_bytes, 0)} bytes, and the rows are"
                f" {count} of {sizes[to]} bytes; none was sent",
                hint="let its consumer catch up, raise its capacity, or wait with the option timeout",
            )


def _messages(parts: list[Staged], batch: str) -> Iterator[dict[str, Any]]:
    for staged in parts:
        for i, row in enumerate(staged.load()):
            id = f"{staged.run}{batch}-{staged.partition}-{i}"
            yield {"id": id, **row.fields, "content": decode_content(row.content, row.encoding)}


def _send(mesh: Mesh, messages: list[dict[str, Any]], options: WriterOptions) -> Iterator[int]:
    """Send, and yield how many rows each call has sent: a call takes all of them or none."""
    by_topic: dict[str, list[dict[str, Any]]] = {}
    sends: list[dict[str, Any]] = []
    for message in messages:
        topic = message.pop("topic", None)
        (sends if topic is None else by_topic.setdefault(topic, [])).append(message)
    if sends:
        mesh.agent(options.sender).send_many(sends, timeout=options.timeout)
        yield len(sends)
    for topic, published in by_topic.items():
        mesh.publish_many(topic, published, sender=options.sender, timeout=options.timeout)
        yield len(published)
