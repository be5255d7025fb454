"""The work of a task: makes rows from the frames of a piece, for events or for unreadable places.

Runs on executors, and keeps nothing between two pieces.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from relaymesh.errors import AsideInvalid, JournalDamaged, MeshError, RecordUnreadable
from relaymesh.journal import Frame
from relaymesh.journal.aside import Aside, read_aside
from relaymesh.journal.extent import Unreadable, read_between
from relaymesh.journal.payloads import check_payload, read_payload
from relaymesh.journal.verdict import Damage
from relaymesh.kernel.payload import REFERENCE_MARK
from relaymesh.pipeline.schema.bronze import EVENTS, QUARANTINE
from relaymesh.pipeline.source.events import EventBatch, Misfit, records_of
from relaymesh.pipeline.source.files import FILES, write_by_day
from relaymesh.pipeline.source.options import SourceOptions
from relaymesh.pipeline.source.plan import Piece, lost_error
from relaymesh.wire.payload import named_in

__all__ = ["ROWS_PER_ARROW_BATCH", "read_piece", "schema_of"]

ROWS_PER_ARROW_BATCH = 16_384
BYTES_PER_ARROW_BATCH = 33_554_432
"""Content from payload files in one batch."""
_BAD = (Misfit, JournalDamaged, RecordUnreadable, AsideInvalid)
"""A whole frame whose records are not: `records_of` raises it."""


def schema_of(options: SourceOptions) -> StructType:
    if options.table == "quarantine":
        return QUARANTINE
    return EVENTS if options.into is None else FILES


def read_piece(piece: Piece, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """The rows of a piece. Raises `JournalDamaged` for unreadable bytes, unless the options say to
    continue."""
    if options.table == "quarantine":
        yield from _quarantine(piece, options)
    elif options.into is None:
        yield from _events(piece, options, [])
    else:
        gaps: list[dict[str, object]] = []
        events = _events(piece, options, gaps)
        yield from write_by_day(events, Path(options.into), options.run_id, gaps, _read_from(piece))


def _read_from(piece: Piece) -> dict[str, object]:
    """The fields of `FILES` about the segment; a piece that was dropped has no rows."""
    return {
        "segment": "" if piece.segment is None else piece.segment.name.file,
        "salt": "" if piece.salt is None else f"{piece.salt:016x}",
        "offset": piece.end.offset,
        "end": piece.end.sequence,
    }


def _events(piece: Piece, options: SourceOptions, gaps: list[dict[str, object]]) -> Iterator[pa.RecordBatch]:
    batch = _empty(piece, options)
    with _without_gc():
        for part in _parts(piece, options):
            if isinstance(part, Unreadable):
                if options.on_bad_frame == "fail":
                    raise _damage(piece, part)
                gaps += _gap(piece, part)
                continue
            try:
                batch.add(part)
            except _BAD as error:
                if options.on_bad_frame == "fail":
                    raise _damage(piece, _bad_records(part, error)) from error
                gaps += _gap(piece, _bad_records(part, error))
            if batch.rows >= ROWS_PER_ARROW_BATCH or batch.bytes >= BYTES_PER_ARROW_BATCH:
                yield from _wanted(batch.finish(), piece, options)
                batch = _empty(piece, options)
        if batch.rows:
            yield from _wanted(batch.finish(), piece, options)


def _gap(piece: Piece, bad: Unreadable) -> list[dict[str, object]]:
    """A row of `FILES` about the events of the piece that are missing there, if any."""
    first, last = max(bad.first, piece.first), min(bad.end, piece.limit) - 1
    if last < first:
        return []
    where = {"path": "", "day": "", "source": piece.directory.name, "partition": piece.directory.partition}
    return [where | {"first": first, "last": last, "rows": 0, "missing": bad.why}]


def _empty(piece: Piece, options: SourceOptions) -> EventBatch:
    schema = to_arrow_schema(EVENTS, timezone="UTC")
    return EventBatch(
        schema,
        piece.directory.name,
        piece.directory.partition,
        content=options.content,
        aside=read_aside(piece.directory.disk()),
        get=partial(read_payload, piece.directory.disk()),
        must_have=options.on_bad_frame == "fail",
    )


def _parts(piece: Piece, options: SourceOptions) -> Iterator[Frame | Unreadable]:
    if piece.segment is None:
        return
    try:
        yield from read_between(piece.directory.disk(), piece.segment, piece.start, piece.end, piece.salt)
    except FileNotFoundError:
        if options.on_data_loss == "fail":
            raise lost_error(piece.directory, piece.start.sequence, piece.end.sequence) from None
        if options.table == "quarantine":
            yield Unreadable(0, "retention dropped the segment", piece.start.sequence, piece.end.sequence)


def _quarantine(piece: Piece, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    if piece.segment is None:
        bad = [Unreadable(0, "retention dropped it before it was read", piece.first, piece.limit)]
    else:
        aside = read_aside(piece.directory.disk())
        bad = [each for part in _parts(piece, options) for each in _judged(part, aside, piece, options)]
    if bad:
        name = "" if piece.segment is None else piece.segment.name.file
        found_at = datetime.now(UTC)
        rows = [
            {
                "source": piece.directory.name,
                "segment": name,
                "frame_offset": each.offset,
                "reason": _reason(each),
                "found_at": found_at,
                "run_id": None,
            }
            for each in bad
        ]
        yield pa.RecordBatch.from_pylist(rows, to_arrow_schema(QUARANTINE, timezone="UTC"))


def _judged(part: Frame | Unreadable, aside: Aside, piece: Piece, options: SourceOptions) -> list[Unreadable]:
    if isinstance(part, Unreadable):
        return [part]
    try:
        found = records_of(part, aside)
    except _BAD as error:
        return [_bad_records(part, error)]
    if not options.content or REFERENCE_MARK not in part.payload:
        return []
    disk, at = piece.directory.disk(), part.first_sequence
    named = {each.sha256: each for each in named_in(found)}.values()
    damaged = [(each.path, why) for each in named if (why := check_payload(disk, each))]
    return [Unreadable(part.offset, f"{path}: {why}", at, at) for path, why in damaged]


def _bad_records(frame: Frame, error: Misfit | MeshError) -> Unreadable:
    why = error.message if isinstance(error, MeshError) else str(error)
    return Unreadable(frame.offset, why, frame.first_sequence, frame.next_sequence)


def _reason(bad: Unreadable) -> str:
    if bad.first == bad.end:
        return f"{bad.why}; no event is missing"
    return f"{bad.why}; events {bad.first} to {bad.end - 1} are missing"


def _damage(piece: Piece, bad: Unreadable) -> JournalDamaged:
    assert piece.segment is not None
    path = f"{piece.directory.given}/{piece.segment.path}"
    return JournalDamaged(
        Damage(path, bad.offset, _reason(bad)).error().message,
        hint="run relaymesh journal verify, or set the option quarantine=rows to read what is whole",
    )


def _wanted(batch: pa.RecordBatch, piece: Piece, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """The rows in the range asked for: pieces are cut between frames, options between events."""
    first = batch.column("sequence")[0].as_py()
    last = batch.column("sequence")[-1].as_py()
    if first < piece.first or last >= piece.limit:
        sequence = batch.column("sequence")
        batch = batch.filter(pc.and_(pc.greater_equal(sequence, piece.first), pc.less(sequence, piece.limit)))
    for bound, compare in ((options.from_ms, pc.greater_equal), (options.to_ms, pc.less)):
        if bound is not None:
            at = batch.column("timestamp")
            batch = batch.filter(compare(at, pa.scalar(bound * 1000, at.type)))
    if batch.num_rows:
        yield batch


@contextmanager
def _without_gc() -> Iterator[None]:
    """Garbage collection off: decoding makes millions of objects and no cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
