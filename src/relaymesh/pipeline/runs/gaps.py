"""Known gaps, read again: a segment that could not be read may have been restored since.

Each run asks the journals for what bronze lacks. Events that can be read now go into a folder of their own,
and the log entry with the gap is replaced by one that names that folder; the tables are then refreshed whole.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from msgspec import structs
from pyspark.sql import Row

from relaymesh.errors import JournalDamaged, NotFound
from relaymesh.pipeline.bronze.content import keeps_content
from relaymesh.pipeline.bronze.folder import Bronze
from relaymesh.pipeline.bronze.snapshot import Batch, Generation
from relaymesh.pipeline.bronze.spans import Arrived, Gap, joined, merged
from relaymesh.pipeline.runs.ingest import Told, told_apart
from relaymesh.pipeline.runs.sources import path_option
from relaymesh.pipeline.source.batch import BatchReader
from relaymesh.pipeline.source.options import SourceOptions
from relaymesh.pipeline.tables.sources import Source, known_sources

__all__ = ["mend_gaps"]

log = logging.getLogger("relaymesh.pipeline")


def mend_gaps(bronze: Bronze, run_id: str) -> int:
    """Take in what can be read by now. Returns how many events. Needs the lock of the warehouse."""
    snapshot = bronze.snapshot()
    mended = 0
    entries: list[Generation | Batch] = [snapshot.generation, *snapshot.batches]
    for number, entry in enumerate(entries):
        if entry.gaps:
            mended += _mend(bronze, entry, run_id, f"g{number}-{run_id}")
    return mended


def _mend(bronze: Bronze, entry: Generation | Batch, run_id: str, name: str) -> int:
    arrived: list[Arrived] = []
    left: list[Gap] = []
    sources = known_sources(bronze.root)
    for gap in entry.gaps:
        source = sources.get(gap.source)
        told = Told([], [gap], []) if source is None else _read_again(bronze, gap, source, run_id)
        arrived += told.arrived
        left += told.gaps
    if not arrived:
        return 0
    stretches = [each.stretch for each in arrived]
    pieces = bronze.pieces(bronze.take(arrived, name))
    mended = structs.replace(
        entry,
        pieces=[*entry.pieces, *pieces],
        stretches=merged([*entry.stretches, *stretches]),
        gaps=joined(left),
        content=entry.content or keeps_content(bronze.root),
    )
    if isinstance(mended, Generation):
        bronze.switch(mended)
    else:
        bronze.commit(mended)
    return sum(each.rows for each in stretches)


def _read_again(bronze: Bronze, gap: Gap, source: Source, run_id: str) -> Told:
    """Files with the events that can be read, and the gaps that cannot."""
    options = {
        "path": path_option([source]),
        "fromSequence": str(gap.first),
        "throughSequence": str(gap.last),
        "quarantine": "rows",
        "includeContent": str(keeps_content(bronze.root)),
        "into": str(bronze.incoming(run_id)),
        "runId": run_id,
    }
    try:
        return told_apart(list(_rows(BatchReader(SourceOptions.parse(options)))))
    except (JournalDamaged, NotFound) as error:  # the segment, or the directory, is gone
        log.info("events %d to %d of %s are still missing: %s", gap.first, gap.last, source.path, error)
        return Told([], [gap], [])


def _rows(reader: BatchReader) -> Iterator[Row]:
    for piece in reader.partitions():
        for told in reader.read(piece):
            yield from (Row(**row) for row in told.to_pylist())
