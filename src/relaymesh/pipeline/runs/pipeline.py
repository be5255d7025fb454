"""The entry point: `run`, `follow`, `backfill` and `compact` on one warehouse."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import structs

from relaymesh.errors import Conflict, InvalidSettings, NotFound
from relaymesh.pipeline.bronze.compaction import compact_bronze
from relaymesh.pipeline.bronze.content import keeps_content, settle_content
from relaymesh.pipeline.bronze.folder import Bronze
from relaymesh.pipeline.bronze.retention import days_to_forget, first_day, forget_days
from relaymesh.pipeline.bronze.snapshot import BronzeSnapshot
from relaymesh.pipeline.runs.compact import compact_tables
from relaymesh.pipeline.runs.completeness import journal_ends
from relaymesh.pipeline.runs.days import late_window, touched_days
from relaymesh.pipeline.runs.expectations import Measured
from relaymesh.pipeline.runs.failures import AuditFailed
from relaymesh.pipeline.runs.gaps import mend_gaps
from relaymesh.pipeline.runs.idle import is_idle, is_published
from relaymesh.pipeline.runs.ingest import Ingest
from relaymesh.pipeline.runs.progress import listening
from relaymesh.pipeline.runs.record import RunRecord, new_run_id, now_iso, prune_records
from relaymesh.pipeline.runs.refresh import BuiltTable, Refresh
from relaymesh.pipeline.runs.settings import PipelineSettings
from relaymesh.pipeline.runs.sources import remember_sources
from relaymesh.pipeline.runs.stages import Observer, Stage, unobserved
from relaymesh.pipeline.runs.verify import require_whole
from relaymesh.pipeline.schema.shapes import Shape
from relaymesh.pipeline.spark_failure import spark_failures
from relaymesh.pipeline.tables.durable import swap_file
from relaymesh.pipeline.tables.inspection import Inspection
from relaymesh.pipeline.tables.lock import warehouse_lock
from relaymesh.pipeline.tables.manifest import Manifest, encode
from relaymesh.pipeline.tables.store import Draft, TableStore
from relaymesh.pipeline.tables.sweep import sweep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Pipeline"]

log = logging.getLogger("relaymesh.pipeline")


class Pipeline:
    """Runs on one warehouse, one at a time: a second run is refused while the first holds the lock."""

    def __init__(
        self,
        spark: SparkSession | Callable[[], SparkSession],
        settings: PipelineSettings,
        *,
        tables: Sequence[BuiltTable] | None = None,
        observer: Observer = unobserved,
    ) -> None:
        """`spark`: a session, or a function that starts one. It is called when a session is needed; a run
        that finds nothing new needs none. `tables`: by default those of the catalog.
        """
        self._given = spark
        self._settings = settings
        self._tables = _catalog() if tables is None else tables
        self._observer = observer
        self.store = TableStore.open(settings.warehouse, settings.format)
        self.bronze = Bronze(self.store.root)
        self._inspection = Inspection(self.store.root)
        self._reached: dict[str, int] | None = None

    @cached_property
    def _spark(self) -> SparkSession:
        session = self._given() if callable(self._given) else self._given
        self.store.format.require(session)
        return session

    # -- the four kinds

    def run(self) -> RunRecord:
        """Read the new events of the journals, refresh the days that they touch, check, publish."""
        with self._recorded("run") as record:
            if is_idle(self.store, self._settings, self._inspection, self._shapes()):
                record.end(self.store.root, "nothing new")
                return record
            self._ingest(record)
            self._refresh(record)
            return record

    def backfill(self, first: date, last: date) -> RunRecord:
        """Rebuild the tables of these days from bronze, even if nothing changed. Idempotent."""
        if last < first:
            raise InvalidSettings(f"the range ends on {last}, before it begins on {first}")
        with self._recorded("backfill") as record:
            days = [day for day in self.bronze.snapshot().days if str(first) <= day <= str(last)]
            if not days:
                raise NotFound(
                    f"bronze has no events from {first} to {last}", hint="relaymesh pipeline status"
                )
            self._refresh(record, days)
            return record

    def follow(self, stop: threading.Event, published: Callable[[RunRecord], None] = lambda _: None) -> None:
        """Run until `stop` is set: read events as they come, publish every `publish_every_s`."""
        with self._recorded("follow") as record, listening(self._spark) as progress:
            ingest = self._new_ingest(record)
            mend_gaps(self.bronze, record.run_id)
            trigger = {"processingTime": f"{self._settings.trigger_s} seconds"}
            query = ingest.start(**trigger)
            try:
                while not stop.wait(self._settings.publish_every_s):
                    query = ingest.keep_on(query, **trigger)
                    self._publish_again(record.run_id, published)
            finally:
                query.stop()
                record.progress = progress.batches
                ingest.note_what_was_taken()
            ingest.wait(query)  # raises the error that ended it, if this run did not end it
            self._publish_again(record.run_id, published)
            record.end(self.store.root, "stopped")

    def compact(self) -> RunRecord:
        """Merge small files. Rows stay the same; readers switch in one rename."""
        with self._recorded("compact") as record:
            before = self.store.published()
            if before.table_format != self.store.format.name:
                raise InvalidSettings(
                    f"what is published is {before.table_format}, not {self.store.format.name}",
                    hint=f"--format {before.table_format}",
                )
            require_whole(self.store, self.bronze, self._inspection, before)
            self._require_published(before)
            settle_content(self.store.root, self._settings.content)
            draft = self.store.draft(record.run_id)
            generation = compact_bronze(
                self._spark,
                self.bronze,
                before.through_batch,
                record.run_id,
                content=keeps_content(self.store.root),
            )
            names = compact_tables(self._spark, draft)
            self._observer(Stage.COMPACTED, ", ".join(names) or "no table", len(names), len(draft.tables))
            if generation is None and not names:
                record.end(self.store.root, "nothing to do")
                return record
            if generation is not None:
                self.bronze.switch(generation)
                self._observer(Stage.SWITCHED, f"generation {generation.generation}", 1, 1)
            snapshot = self.bronze.snapshot().through(before.through_batch)
            self._publish(record, draft, snapshot, before.reconciliation, [])
            return record

    def _require_published(self, before: Manifest) -> None:
        """A compaction publishes the existing tables: they must be made from what bronze holds."""
        if self.bronze.snapshot().through(before.through_batch).inputs() != before.inputs:
            raise Conflict(
                "bronze holds other events than the tables were made from: a run did not get to its end",
                hint="relaymesh pipeline run, then compact",
            )

    # -- their parts

    @contextmanager
    def _recorded(self, kind: str) -> Iterator[RunRecord]:
        """Lock the warehouse, and record how the run went."""
        record = RunRecord(run_id=new_run_id(), kind=kind)
        with warehouse_lock(self.store.root, f"{kind} {record.run_id}", self._settings.shared):
            record.save(self.store.root)
            self._observer(Stage.STARTED, record.run_id, 0, 0)
            try:
                remember_sources(self.store.root, self._settings.directories)
                with spark_failures():
                    yield record
            except BaseException as error:
                record.end(self.store.root, "failed", f"{type(error).__name__}: {error}"[:2000])
                raise

    def _new_ingest(self, record: RunRecord) -> Ingest:
        settle_content(self.store.root, self._settings.content)
        sources = remember_sources(self.store.root, self._settings.directories)
        return Ingest(self._spark, self.bronze, sources, self._settings, record, self._observer)

    def _ingest(self, record: RunRecord) -> None:
        began = time.monotonic()
        ingest = self._new_ingest(record)
        mended = mend_gaps(self.bronze, record.run_id)
        self._reached = journal_ends(ingest.sources.values())
        if ingest.is_behind():
            with listening(self._spark) as progress:
                ingest.available_now()
            record.progress = progress.batches
        ingest.note_what_was_taken()
        record.events += mended
        record.seconds = record.seconds | {"ingest": round(time.monotonic() - began, 3)}
        record.save(self.store.root)
        self._observer(Stage.INGESTED, f"{record.events} events", record.events, record.events)

    def _publish_again(self, ingesting: str, published: Callable[[RunRecord], None]) -> None:
        """`follow`: one publish, with a record of its own if there was something to do."""
        through = self.bronze.snapshot().through_batch
        before = self.store.manifest()
        if through < 0 or (before is not None and before.through_batch >= through):
            return
        record = RunRecord(run_id=new_run_id(), kind="follow")
        try:
            with spark_failures():
                self._refresh(record, ingesting=ingesting)
        except BaseException as error:
            record.end(self.store.root, "failed", f"{type(error).__name__}: {error}"[:2000])
            raise
        published(record)

    def _refresh(self, record: RunRecord, wanted: Sequence[str] = (), ingesting: str = "") -> None:
        """Refresh the days that are behind, and the given ones; publish, or raise and publish nothing."""
        began = time.monotonic()
        snapshot = require_whole(self.store, self.bronze, self._inspection, reached=self._reached)
        if self._forget(record, snapshot):
            snapshot = self.bronze.snapshot()
        draft = self.store.draft(record.run_id)
        damaged = self._drop_damaged(draft)
        self._inspection.keep()
        after = -1 if draft.published is None else draft.published.through_batch
        if ingesting:  # another record counted the batches; this one counts what its publish adds
            new = snapshot.after(after)
            record.batches, record.events = [each.batch for each in new], sum(each.rows for each in new)
        before = draft.published
        if before is not None and not (wanted or damaged) and self._holds_all(snapshot, before):
            record.end(self.store.root, "nothing new")
            return
        refresh = Refresh(
            self._spark, self.bronze, snapshot, draft, self._tables, self._settings, self._observer
        )
        days: list[str] | None = None
        if refresh.continues():
            touched = touched_days(self._spark, self.bronze, snapshot, after)
            days = sorted({*wanted, *late_window(touched, snapshot.days, self._settings.late_days)})
        record.days = snapshot.days if days is None else days
        refresh.build(days)
        built = time.monotonic()
        quarantine = None
        if self._settings.quarantine == "rows" or snapshot.gaps:
            quarantine = self._new_ingest(record).quarantine()
        failed = refresh.check(quarantine, datetime.now(UTC))
        unmet = sorted(
            (each for each in refresh.measured if not each.passed), key=lambda each: not each.fails
        )
        record.expectations = [each.told() for each in unmet]
        record.seconds = record.seconds | {
            "refresh": round(built - began, 3),
            "check": round(time.monotonic() - built, 3),
        }
        if failed:
            raise self._fail(draft, failed)
        self._publish(record, draft, snapshot, refresh.reconciliation, record.days, ingesting)

    def _holds_all(self, snapshot: BronzeSnapshot, before: Manifest) -> bool:
        return is_published(self.store, snapshot, before, self._shapes())

    def _shapes(self) -> dict[str, Shape]:
        return {
            table.name: Shape(table.version, table.partition_by[0] if table.partition_by else None)
            for table in self._tables
        }

    def _forget(self, record: RunRecord, snapshot: BronzeSnapshot) -> bool:
        """Remove days from bronze that are too old. Returns whether there were any."""
        published = self.store.manifest()
        if self._settings.keep_days is None or published is None or published.table_format != "parquet":
            return False
        then = snapshot.through(published.through_batch)
        first = first_day(datetime.now(UTC).date(), self._settings.keep_days)
        days = days_to_forget(self.store.root, then, published, first)
        if not days:
            return False
        generation = forget_days(self._spark, self.bronze, then, days, record.run_id)
        self._observer(Stage.FORGOTTEN, f"{days[0]} to {days[-1]}", 0, 1)
        self.bronze.switch(generation)
        log.warning("forgotten: %s to %s; keep_days is %d", days[0], days[-1], self._settings.keep_days)
        self._observer(Stage.FORGOT, f"{days[0]} to {days[-1]}", 1, 1)
        return True

    def _drop_damaged(self, draft: Draft) -> list[str]:
        """Rebuild a table from bronze if its files are not what was published."""
        damaged = {} if draft.published is None else self._inspection.tables(draft.published)
        for name, found in damaged.items():
            log.warning("the table %s is built anew: %s", name, found[0])
            draft.drop(name)
        return list(damaged)

    def _publish(
        self,
        record: RunRecord,
        draft: Draft,
        snapshot: BronzeSnapshot,
        reconciliation: dict[str, object],
        days: list[str],
        ingesting: str = "",
    ) -> None:
        began = time.monotonic()
        draft.sync()
        self._observer(Stage.SYNCED, "", len(draft.written), len(draft.written))
        draft.publish(
            kind=record.kind,
            started_at=record.started_at,
            ended_at=now_iso(),
            through_batch=snapshot.through_batch,
            generation=snapshot.generation.generation,
            bronze=[structs.replace(piece, contents=[]) for piece in snapshot.pieces],
            inputs=snapshot.inputs(),
            days_refreshed=days,
            reconciliation=reconciliation,
        )
        self._observer(Stage.PUBLISHED, record.run_id, 1, 1)
        record.seconds = record.seconds | {"publish": round(time.monotonic() - began, 3)}
        record.end(self.store.root, "published")
        gone = sweep(self.store, self.bronze, self._settings.keep_runs, ingesting)
        prune_records(self.store.root, self._settings.metrics_runs)
        self._observer(Stage.SWEPT, f"{gone} folders", gone, gone)

    def _fail(self, draft: Draft, failed: Sequence[Measured]) -> AuditFailed:
        """Keep the findings in a folder that no run removes."""
        kept = self.store.root / "failed" / f"run_id={draft.run_id}"
        if "audit_violations" in draft.tables:
            violations = draft.read(self._spark, "audit_violations")
            violations.coalesce(1).write.parquet(str(kept / "audit_violations"))
        swap_file(kept / "expectations.json", encode([each.told() for each in failed]))
        more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
        return AuditFailed(f"{failed[0]}{more}; nothing was published", kept=kept)


def _catalog() -> Sequence[BuiltTable]:
    from relaymesh.pipeline.catalog import TABLES  # noqa: PLC0415 - loads every table's functions

    return TABLES
