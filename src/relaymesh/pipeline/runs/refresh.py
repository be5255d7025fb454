"""Bronze into tables: build what changed, check it, and publish it together, or nothing.

Silver tables that are kept by day are rebuilt for the days that changed (see days.py). Gold and audit are
rebuilt whole from silver: they are small, and their days depend on each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import date, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql import functions as f

from relaymesh.pipeline.audit.known_gaps import without_known_gaps
from relaymesh.pipeline.bronze.folder import Bronze
from relaymesh.pipeline.bronze.snapshot import BronzeSnapshot
from relaymesh.pipeline.runs import expectations as expect
from relaymesh.pipeline.runs import metrics
from relaymesh.pipeline.runs.days import slice_for
from relaymesh.pipeline.runs.expectations import Measured, TableShape
from relaymesh.pipeline.runs.reconcile import begun_after, reconcile
from relaymesh.pipeline.runs.reconcile_tasks import READS, reconcile_tasks
from relaymesh.pipeline.runs.settings import PipelineSettings
from relaymesh.pipeline.runs.side_by_side import side_by_side
from relaymesh.pipeline.runs.stages import Observer, Stage
from relaymesh.pipeline.schema.bronze import QUARANTINE
from relaymesh.pipeline.schema.bronze import VERSION as BRONZE_VERSION
from relaymesh.pipeline.tables.sources import earlier_names, known_sources, under_its_id
from relaymesh.pipeline.tables.store import Draft

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["BuiltTable", "Refresh"]

AUDIT = "audit_violations"
OWN = (metrics.NAME, "quarantine")
"""Tables that the runs make themselves, in addition to those of the catalog."""


class BuiltTable(TableShape, Protocol):
    """A table of the catalog: everything a run knows about it."""

    @property
    def layer(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def inputs(self) -> tuple[str, ...]: ...
    @property
    def build(self) -> Callable[..., DataFrame]: ...
    @property
    def partition_by(self) -> tuple[str, ...]: ...


class Refresh:
    """One refresh: from a snapshot of bronze into a draft."""

    def __init__(
        self,
        spark: SparkSession,
        bronze: Bronze,
        snapshot: BronzeSnapshot,
        draft: Draft,
        tables: Sequence[BuiltTable],
        settings: PipelineSettings,
        observer: Observer,
    ) -> None:
        self._spark = spark
        self._bronze = bronze
        self._snapshot = snapshot
        self._draft = draft
        self._tables = tables
        self._settings = settings
        self._observer = observer
        self.everything = bronze.read(spark, snapshot.pieces)
        self.measured: list[Measured] = []
        self.reconciliation: dict[str, Any] = {}

    def continues(self) -> bool:
        """Whether silver may be refreshed by day: the published tables have the shape of the catalog."""
        published = self._draft.published
        if published is None:
            return False
        names = earlier_names(known_sources(self._bronze.root).values())
        held = [under_its_id(each, names) for each in published.inputs]
        if self._snapshot.through(published.through_batch).inputs() != held:
            return False  # bronze was built again, with other batches
        by_day = [table for table in self._tables if table.layer == "silver" and table.partition_by]
        return all(map(self._is_there, by_day))

    def _is_there(self, table: BuiltTable) -> bool:
        return self._draft.continues(table.name, table.version, _day_of(table))

    def build(self, days: Sequence[str] | None) -> None:
        """Build every table into the draft; silver by these days only, or whole (None)."""
        self._forget_tables_that_are_gone()
        sliced = None if days is None else slice_for(self._spark, self._bronze, self._snapshot, days)
        measured: dict[str, list[Measured]] = {}

        def made(table: BuiltTable) -> list[Measured]:
            return self._make(table, days, self.everything if sliced is None else sliced)

        with closing(side_by_side(self._tables, self._settings.tables_at_once, made)) as built:
            for number, (table, found) in enumerate(built, start=1):
                measured[table.name] = found
                self._observer(Stage.TABLE_WRITTEN, table.name, number, len(self._tables))
        names = [table.name for table in self._tables]
        self._draft.arrange(names)
        self.measured += [each for name in names for each in measured[name]]

    def _make(self, table: BuiltTable, days: Sequence[str] | None, sliced: DataFrame) -> list[Measured]:
        """Write one table into the draft, and measure it."""
        day = _day_of(table)
        refreshed_by = day if table.layer == "silver" else None
        by_day = None if refreshed_by is None else days
        events = self.everything if by_day is None else sliced
        inputs = {name: self._input(name, events) for name in table.inputs}
        df = table.build(**inputs)
        if table.name == AUDIT and self._snapshot.gaps:
            df = without_known_gaps(df, self._snapshot.gaps)
        written = self._draft.write(
            table.name, df, layer=table.layer, version=table.version, day_column=day, days=by_day
        )
        counts = partial(self._draft.counts, self._spark, table.name)
        return expect.of_table(table, df.schema, counts, written.rows, refreshed_by)

    def _input(self, name: str, events: DataFrame) -> DataFrame:
        return events if name == "bronze" else self._draft.read(self._spark, name)

    def _forget_tables_that_are_gone(self) -> None:
        known = {table.name for table in self._tables} | set(OWN)
        for name in set(self._draft.tables) - known:
            del self._draft.tables[name]

    def check(self, quarantine: DataFrame | None, now: datetime) -> list[Measured]:
        """Measure everything, write it as `pipeline_metrics`, and return what fails the run."""
        rows = quarantine if quarantine is not None else self._spark.createDataFrame([], QUARANTINE)
        bad = self._draft.write("quarantine", rows, layer="bronze", version=BRONZE_VERSION).rows
        gaps, sources = self._snapshot.gaps, known_sources(self._bronze.root)
        whole = not gaps and all(each.first_sequence <= 1 for each in self._snapshot.inputs())
        messages = self._draft.read(self._spark, "messages") if "messages" in self._draft.tables else None
        counted = begun_after(self.everything, self._snapshot.forgotten)
        self.reconciliation, newest = reconcile(counted, messages, whole=whole)
        days = [date.fromisoformat(each.day) for each in self._snapshot.forgotten]
        self.reconciliation["counts_from"] = str(max(days) + timedelta(days=1)) if days else None
        self.reconciliation["missing"] = [
            {
                "source": gap.source,
                "path": sources[gap.source].path if gap.source in sources else "",
                "first": gap.first,
                "last": gap.last,
                "why": gap.why,
            }
            for gap in gaps
        ]
        self.measured += [
            *expect.of_bronze(self._snapshot, newest, now, self._settings.freshness_s_max),
            *expect.of_quarantine(bad),
            *expect.of_sums(self.reconciliation),
            *self._sums_of_tasks(),
            *expect.of_audit(self._violations()),
        ]
        self._write_metrics(now)
        failed = expect.failures(self.measured)
        self._observer(Stage.CHECKED, f"{len(self.measured)} expectations", len(failed), len(self.measured))
        return failed

    def _sums_of_tasks(self) -> list[Measured]:
        """For tables of tasks: with a known gap, which may contain parts of a task, a difference is a
        warning."""
        if not self._draft.tables.keys() >= set(READS):
            return []
        tables = {name: self._draft.read(self._spark, name) for name in READS}
        told = self.reconciliation["tasks"] = reconcile_tasks(self.everything, tables)
        return expect.of_task_sums(told, judged=not self._snapshot.gaps)

    def _violations(self) -> dict[str, int]:
        found = self._draft.tables.get(AUDIT)
        if found is None or found.rows == 0:
            return {}
        violations = self._draft.read(self._spark, AUDIT)
        rows = violations.groupBy("rule").agg(f.count("*").alias("rows")).collect()
        return {row.rule: row["rows"] for row in rows}

    def _write_metrics(self, now: datetime) -> None:
        frame = metrics.metrics_frame(self._spark, self._draft.run_id, now, self.measured)
        if metrics.NAME in self._draft.tables:
            before = self._draft.read(self._spark, metrics.NAME)
            runs = [row.run_id for row in before.select("run_id").distinct().orderBy("run_id").collect()]
            oldest = runs[-self._settings.metrics_runs :][0] if runs else ""
            frame = before.where(f.col("run_id") >= oldest).unionByName(frame)
        self._draft.write(metrics.NAME, frame.coalesce(1), layer="audit", version=metrics.VERSION)


def _day_of(table: BuiltTable) -> str | None:
    return table.partition_by[0] if table.partition_by else None
