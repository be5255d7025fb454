"""Journal to bronze: what decoding costs alone, and the whole way through Spark's stream into Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.pipeline.spent import spent_by

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["decode", "ingest"]


def decode(journal: Path, events: int) -> dict[str, Any]:
    """One core, no Spark: reading, checking and decoding by themselves."""
    from relaymesh.pipeline.source.batch import BatchReader
    from relaymesh.pipeline.source.options import SourceOptions

    reader = BatchReader(SourceOptions.parse({"path": str(journal)}))
    pieces, planning = spent_by(reader.partitions)
    rows, spent = spent_by(lambda: sum(batch.num_rows for piece in pieces for batch in reader.read(piece)))
    assert rows == events, f"{rows} rows of {events} events"
    return {"pieces": len(pieces), "planning_s": round(planning.cpu_s, 3), **spent.figures(events)}


def ingest(spark: SparkSession, journal: Path, warehouse: Path, events: int) -> dict[str, Any]:
    """As `relaymesh pipeline run` does it: every event exactly once, synced, in the log of bronze."""
    from relaymesh.pipeline.bronze.content import settle_content
    from relaymesh.pipeline.bronze.folder import Bronze
    from relaymesh.pipeline.runs.ingest import Ingest
    from relaymesh.pipeline.runs.record import RunRecord, new_run_id
    from relaymesh.pipeline.runs.settings import PipelineSettings
    from relaymesh.pipeline.runs.sources import remember_sources
    from relaymesh.pipeline.runs.stages import unobserved

    warehouse.mkdir(parents=True)
    bronze = Bronze(warehouse)
    settings = PipelineSettings(directories=(journal,), warehouse=warehouse)
    settle_content(warehouse, None)
    sources = remember_sources(warehouse, settings.directories)
    record = RunRecord(run_id=new_run_id(), kind="run")
    stream = Ingest(spark, bronze, sources, settings, record, unobserved)
    _, spent = spent_by(stream.available_now)
    taken = bronze.snapshot()
    assert taken.rows == events, f"{taken.rows} rows of {events} events"
    size = sum(piece.bytes for piece in taken.pieces)
    return {"batches": len(taken.batches), "parquet_bytes": size, **spent.figures(events)}
