"""What is stored beside the published tables and can be queried like them: events, and records of runs.

They are not tables of the manifest: they have no version, and a page shows none of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.dataset as ds  # type: ignore[import-untyped]
from pyspark.sql.pandas.types import to_arrow_schema

from relaymesh.pipeline.runs.record import RunRecord, load_records
from relaymesh.pipeline.schema.audit import AUDIT_VIOLATIONS
from relaymesh.pipeline.schema.bronze import EVENTS
from relaymesh.pipeline.tables.manifest import Manifest

__all__ = ["BESIDE", "rows_beside"]

BESIDE = {
    "bronze": "Every event that the tables were made from, one row each.",
    "pipeline_runs": "What each run did and how it ended, also those that failed.",
    "failed_violations": "What the audit found in runs that were not published for it.",
}

RUNS_MAX = 10_000
_DAY = "event_date"
_RUNS = pa.schema(
    [
        ("run_id", pa.string()),
        ("kind", pa.string()),
        ("status", pa.string()),
        ("started_at", pa.string()),
        ("ended_at", pa.string()),
        ("events", pa.int64()),
        ("days", pa.list_(pa.string())),
        ("seconds", pa.float64()),
        ("error", pa.string()),
    ]
)


def rows_beside(root: Path, manifest: Manifest) -> dict[str, Any]:
    """By name; a file is read when a query asks for it."""
    return {
        "bronze": _events(root, manifest),
        "pipeline_runs": _runs(root),
        "failed_violations": _failed(root),
    }


def _events(root: Path, manifest: Manifest) -> ds.Dataset | pa.Table:
    """Bronze as the manifest has it. The day is in the path alone; the files have every other column."""
    schema = to_arrow_schema(EVENTS, timezone="UTC")
    folders = [root / piece.folder / f"{_DAY}={piece.day}" for piece in manifest.bronze]
    files = [str(path) for folder in folders for path in sorted(folder.glob("*.parquet"))]
    if not files:
        return schema.empty_table()
    by_day = ds.partitioning(pa.schema([(_DAY, pa.date32())]), flavor="hive")
    return ds.dataset(files, schema=schema, format="parquet", partitioning=by_day)


def _runs(root: Path) -> pa.Table:
    """The newest runs that are remembered."""
    return pa.Table.from_pylist([_row(each) for each in load_records(root, RUNS_MAX)], schema=_RUNS)


def _row(run: RunRecord) -> dict[str, object]:
    return {
        "run_id": run.run_id, "kind": run.kind, "status": run.status, "started_at": run.started_at,
        "ended_at": run.ended_at, "events": run.events, "days": run.days,
        "seconds": sum(run.seconds.values()), "error": run.error,
    }  # fmt: skip


def _failed(root: Path) -> ds.Dataset | pa.Table:
    """The violations that failed runs left, with the run that found them."""
    schema = to_arrow_schema(AUDIT_VIOLATIONS, timezone="UTC").append(pa.field("run_id", pa.string()))
    files = [str(path) for path in sorted((root / "failed").glob("run_id=*/audit_violations/*.parquet"))]
    if not files:
        return schema.empty_table()
    by_run = ds.partitioning(pa.schema([("run_id", pa.string())]), flavor="hive")
    return ds.dataset(files, schema=schema, format="parquet", partitioning=by_run)
