"""Rows that do not pass through Java: a task writes the events that it decodes into Parquet files itself.

Spark then only decides which task reads what, and repeats it after a failure. The events go from the journal
into the file inside one process, several times faster than as rows of Spark. Spark gets one row per file. A
file counts only if the receiver of that row uses it: a file that a failed or repeated task left is named in
no row.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import date
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from relaymesh.modes import create_file, make_folder

__all__ = ["FILES", "write_by_day"]

FILES = StructType(
    [
        StructField("path", StringType(), False, {"comment": "the file"}),
        StructField("day", StringType(), False, {"comment": "UTC day of its events"}),
        StructField(
            "source",
            StringType(),
            False,
            {"comment": "mesh id of the directory"},
        ),
        StructField("partition", IntegerType(), False, {"comment": "journal stream of the events"}),
        StructField("first", LongType(), False, {"comment": "the lowest sequence in it"}),
        StructField("last", LongType(), False, {"comment": "the highest sequence in it"}),
        StructField("rows", LongType(), False, {"comment": "how many events it holds"}),
        StructField("missing", StringType(), True, {"comment": "why these events are in no file; else null"}),
        StructField("segment", StringType(), False, {"comment": "segment they were read from"}),
        StructField("salt", StringType(), False, {"comment": "its salt; empty when its header is damaged"}),
        StructField("offset", LongType(), False, {"comment": "where in it the task stopped reading"}),
        StructField("end", LongType(), False, {"comment": "the first event that it left to the next task"}),
    ]
)
"""What a task returns: a row for each file, each with the events of one day of one directory.

With quarantine=rows also a row for each stretch of unreadable events: it has no path, day or rows.
"""

DAY = "event_date"
RUN = "run_id"

BYTES_WAITING_MAX = 256 << 20
"""Rows of one file that a task holds before it writes them. Raising it makes larger row groups."""
ROWS_TOGETHER_MAX = 250_000
"""Rows of one row group."""
ROWS_APART_MIN = 20_000
"""Below this size, the metadata of row groups by operation would be larger than the rows."""

_GROWING = ("sequence", "message_sequence", "lease_token", "frame_offset", "timestamp")
"""Columns whose values lie near the one before: they are stored as differences."""
_UNLIKE = ("message_id", "content", "content_bytes", "extra", "traceparent", "stack", "raw", *_GROWING)
"""Columns whose values rarely repeat: a dictionary would not help."""


def write_by_day(
    batches: Iterator[pa.RecordBatch],
    into: Path,
    run_id: str | None,
    gaps: Sequence[dict[str, object]],
    read_from: Mapping[str, object],
) -> Iterator[pa.RecordBatch]:
    """Write the rows of one piece into new files under `into`, one a day; then the rows that say so.

    `gaps`: rows about what is missing, complete when the last of `batches` was taken.
    `read_from`: the last four fields of `FILES`, the same for all rows.

    The day is no column of a file: its reader takes it from the path, by Spark's convention. If anything
    fails, the files are removed.
    """
    files: dict[date, DayFile] = {}
    with ExitStack() as undo:
        for batch in batches:
            for day, own in _days(batch):
                if day not in files:
                    files[day] = DayFile(into, day, own, run_id)
                    undo.callback(files[day].discard)
                files[day].write(own)
        told = [*(each.close() for _, each in sorted(files.items())), *gaps]
        undo.pop_all()
    if told:
        rows = [{**each, **read_from} for each in told]
        yield pa.RecordBatch.from_pylist(rows, to_arrow_schema(FILES, timezone="UTC"))


class DayFile:
    """The events of one day, in the making."""

    def __init__(self, into: Path, day: date, like: pa.RecordBatch, run_id: str | None) -> None:
        make_folder(into)
        self._path = into / f"{uuid.uuid4().hex}.parquet"
        os.close(create_file(self._path, os.O_WRONLY))
        self._day = day
        self._run_id = run_id
        self._source: str = like.column("source")[0].as_py()
        self._partition: int = like.column("partition")[0].as_py()
        self._schema = pa.schema([field for field in like.schema if field.name != DAY])
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._rows = 0
        self._first: int | None = None
        self._last = 0
        self._writer = pq.ParquetWriter(
            self._path,
            self._schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=[name for name in self._schema.names if name not in _UNLIKE],
            column_encoding=dict.fromkeys(_GROWING, "DELTA_BINARY_PACKED"),
            store_schema=False,
        )

    def write(self, rows: pa.RecordBatch) -> None:
        columns = {name: rows.column(name) for name in self._schema.names}
        columns[RUN] = pa.repeat(pa.scalar(self._run_id, pa.string()), rows.num_rows)
        self._waiting.append(pa.RecordBatch.from_arrays(list(columns.values()), schema=self._schema))
        self._waiting_bytes += rows.nbytes
        span = pc.min_max(rows.column("sequence")).as_py()
        self._first = span["min"] if self._first is None else min(self._first, span["min"])
        self._last = max(self._last, span["max"])
        self._rows += rows.num_rows
        if self._waiting_bytes >= BYTES_WAITING_MAX:
            self._flush()

    def _flush(self) -> None:
        rows = pa.Table.from_batches(self._waiting, self._schema)
        self._waiting, self._waiting_bytes = [], 0
        if rows.num_rows < ROWS_APART_MIN:
            self._writer.write_table(rows)
            return
        operations = rows.column("operation")
        for operation in sorted(pc.unique(operations).to_pylist()):
            own = rows.filter(pc.equal(operations, operation))
            self._writer.write_table(own, row_group_size=ROWS_TOGETHER_MAX)

    def close(self) -> dict[str, object]:
        """The row about the file."""
        self._flush()
        self._writer.close()
        return {
            "path": str(self._path),
            "day": self._day.isoformat(),
            "source": self._source,
            "partition": self._partition,
            "first": self._first,
            "last": self._last,
            "rows": self._rows,
            "missing": None,
        }

    def discard(self) -> None:
        self._writer.close()
        self._path.unlink(missing_ok=True)


def _days(batch: pa.RecordBatch) -> Iterator[tuple[date, pa.RecordBatch]]:
    """The batch by day; usually there is only one."""
    span = pc.min_max(batch.column(DAY)).as_py()
    if span["min"] == span["max"]:
        yield span["min"], batch
        return
    for day in sorted(pc.unique(batch.column(DAY)).to_pylist()):
        yield day, batch.filter(pc.equal(batch.column(DAY), pa.scalar(day, pa.date32())))
