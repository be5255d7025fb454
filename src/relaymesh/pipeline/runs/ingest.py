"""The journal into bronze: one Spark stream over all data directories, every event exactly once.

Spark's checkpoint fixes the events of a batch before the batch runs, and the journal never changes, so a
batch that is repeated after a crash holds the same events. Bronze takes each batch number once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as f

from relaymesh.journal import FIRST_SEQUENCE
from relaymesh.journal.consumers import write_consumer
from relaymesh.node.disk import RealDisk
from relaymesh.pipeline.bronze.content import keeps_content
from relaymesh.pipeline.bronze.folder import Bronze
from relaymesh.pipeline.bronze.snapshot import Batch
from relaymesh.pipeline.bronze.spans import Arrived, Gap, SegmentRead, Stretch, furthest, joined, merged
from relaymesh.pipeline.runs.completeness import CHECKPOINT, against_checkpoint, how_to_rebuild
from relaymesh.pipeline.runs.failures import IngestFailed
from relaymesh.pipeline.runs.record import RunRecord, now_iso
from relaymesh.pipeline.runs.settings import PipelineSettings
from relaymesh.pipeline.runs.sources import CONSUMER, path_option
from relaymesh.pipeline.runs.stages import Observer, Stage
from relaymesh.pipeline.source.offsets import latest
from relaymesh.pipeline.tables.inspection import WarehouseDamaged
from relaymesh.pipeline.tables.sources import Source, known_sources

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["BatchTaker", "Ingest", "Told", "told_apart"]

log = logging.getLogger("relaymesh.pipeline")

SLOW_START = "Python worker failed to connect back"
"""Spark allows a Python process ten seconds to start, without a setting; a busy machine may take longer."""
STARTS = 12


@dataclass(frozen=True)
class BatchTaker:
    """Takes the batches of the stream one by one; Spark calls it, in order, and again after a crash.

    It holds no session, so that Spark Connect can ship it to the server and run it there.
    """

    warehouse: Path
    run_id: str
    observer: Observer

    def __call__(self, df: DataFrame, batch: int) -> None:
        bronze = Bronze(self.warehouse)
        if bronze.has(batch):
            return  # committed here, and Spark was stopped before it recorded that
        told = told_apart(df.collect())
        arrived = told.arrived
        pieces = bronze.pieces(bronze.take(arrived, f"{batch:08}-{self.run_id}"))
        self.observer(Stage.BATCH_WRITTEN, f"batch {batch}", batch, 0)
        entry = Batch(
            batch=batch,
            run_id=self.run_id,
            committed_at=now_iso(),
            pieces=pieces,
            stretches=merged(each.stretch for each in arrived),
            gaps=told.gaps,
            segments=told.segments,
            content=keeps_content(self.warehouse),
        )
        bronze.commit(entry)
        _tell_nodes(entry, known_sources(self.warehouse))
        self.observer(Stage.BATCH_COMMITTED, f"batch {batch}, {entry.rows} events", batch, 0)


class Told(NamedTuple):
    """What the tasks of a batch report."""

    arrived: list[Arrived]
    gaps: list[Gap]
    segments: list[SegmentRead]


def told_apart(rows: Iterable[Row]) -> Told:
    """Rows of the source's `into`, of files and of what is missing: see source/files.py."""
    arrived: list[Arrived] = []
    gaps: list[Gap] = []
    segments: list[SegmentRead] = []
    for row in rows:
        segments.append(SegmentRead(row.source, row.segment, row.salt, row.offset, row.end))
        if row.missing is None:
            stretch = Stretch(row.source, row.partition, row.day, row.first, row.last, row.rows)
            arrived.append(Arrived(row.path, stretch))
        else:
            gaps.append(Gap(row.source, row.partition, row.first, row.last, row.missing))
    return Told(arrived, joined(gaps), furthest(segments))


def _tell_nodes(entry: Batch, sources: Mapping[str, Source]) -> None:
    """The batch is durable: retention need no longer keep its events for this consumer."""
    through: dict[str, int] = {}
    for stretch in entry.stretches:
        through[stretch.source] = max(through.get(stretch.source, 0), stretch.last)
    for source, last in through.items():
        try:
            write_consumer(RealDisk(Path(sources[source].path)), CONSUMER, last + 1)
        except OSError as error:  # a read-only mirror or copy has no retention that could wait
            log.warning("%s is not told how far it was read: %s", sources[source].path, error)


class Ingest:
    """The stream of one run."""

    def __init__(
        self,
        spark: SparkSession,
        bronze: Bronze,
        sources: Mapping[str, Source],
        settings: PipelineSettings,
        record: RunRecord,
        observer: Observer,
    ) -> None:
        self._spark = spark
        self._bronze = bronze
        self.sources = sources
        self._settings = settings
        self._record = record
        self._observer = observer
        self._checkpoint = settings.warehouse / CHECKPOINT

    def start(self, **trigger: Any) -> StreamingQuery:
        """Start the stream, with a trigger as `DataStreamWriter.trigger` takes it."""
        self._check_agreement()
        taker = BatchTaker(self._settings.warehouse, self._record.run_id, self._observer)
        writer = self.files().writeStream.foreachBatch(taker)
        return writer.option("checkpointLocation", str(self._checkpoint)).trigger(**trigger).start()

    def available_now(self) -> None:
        """Everything that is in the journals now, in as many batches as it takes."""
        for _ in range(STARTS - 1):
            if self._runs_to_its_end(self.start(availableNow=True)):
                return
        self.wait(self.start(availableNow=True))

    def keep_on(self, query: StreamingQuery, **trigger: Any) -> StreamingQuery:
        """The stream, or a new one if it could not start. Raises any other error that ended it."""
        if query.isActive or self._runs_to_its_end(query):
            return query
        return self.start(**trigger)

    def _runs_to_its_end(self, query: StreamingQuery) -> bool:
        """Wait for it. Returns False when it could not start and may be started again."""
        try:
            self.wait(query)
        except IngestFailed as error:
            if SLOW_START not in error.message:
                raise
            log.warning("Spark's Python process took too long to start; the ingest is started again")
            return False
        return True

    def note_what_was_taken(self) -> None:
        """Into the run's record, from the log of bronze."""
        own = [each for each in self._bronze.snapshot().batches if each.run_id == self._record.run_id]
        self._record.batches = [each.batch for each in own]
        self._record.events = sum(each.rows for each in own)
        events = {each.batch: each.rows for each in own}
        for told in self._record.progress:  # Spark saw a row for each file
            told["rows"] = events.get(told["batch"], 0)
            seconds = told["ms"].get("triggerExecution", 0) / 1000
            told["rows_per_s"] = round(told["rows"] / seconds, 1) if seconds else None

    def is_behind(self) -> bool:
        """Whether any journal has an event that bronze has not; a stream would take seconds to find out."""
        taken = {each.source: each.through_sequence for each in self._bronze.snapshot().inputs()}
        return any(
            latest(RealDisk(Path(source.path))).sequence
            > max(taken.get(source.id, FIRST_SEQUENCE - 1) + 1, source.first)
            for source in self.sources.values()
        )

    @staticmethod
    def wait(query: StreamingQuery) -> None:
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            raise IngestFailed(_cause(error)) from error

    def files(self) -> DataFrame:
        """The stream: a row for each file that a task has written."""
        options = {
            "path": path_option(self.sources.values()),
            "maxRowsPerBatch": str(self._settings.batch_events),
            "quarantine": self._settings.quarantine,
            "includeContent": str(keeps_content(self._bronze.root)),
            "into": str(self._bronze.incoming(self._record.run_id)),
            "runId": self._record.run_id,
        }
        return self._spark.readStream.format("relaymesh").options(**options).load()

    def quarantine(self) -> DataFrame:
        """The events of all journals that cannot be read at present."""
        path = path_option(self.sources.values())
        found = self._spark.read.format("relaymesh").options(path=path, table="quarantine").load()
        return found.withColumn("run_id", f.lit(self._record.run_id))

    def _check_agreement(self) -> None:
        """Bronze and the checkpoint must agree; if one of them was removed, raise."""
        found = against_checkpoint(self._bronze)
        if found:
            raise WarehouseDamaged(found, hint=how_to_rebuild(self._bronze.root, self._bronze.snapshot()))


def _cause(error: StreamingQueryException) -> str:
    """The line with the cause: the last one that a Python worker wrote, else Spark's own."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith(("relaymesh.errors.", "relaymesh.pipeline."))]
    return (ours[-1].partition(": ")[2] if ours else lines[0] if lines else "the stream failed")[:500]
