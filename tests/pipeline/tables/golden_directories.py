"""The directories in tests/golden, read through the pipeline, as figures that can be checked in.

    python -m tests.pipeline.tables.golden_directories    writes the figures beside this file, with this code

All of them feed one warehouse, each as a partition of its own, in the order of their names.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq  # type: ignore[import-untyped]

from relaymesh.pipeline.runs.pipeline import Pipeline
from relaymesh.pipeline.runs.settings import PipelineSettings
from relaymesh.pipeline.tables.store import TableStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIGURES = Path(__file__).with_suffix(".json")
GOLDEN = Path(__file__).parents[2] / "golden"
LEFT_OUT = {"run_id", "source", "found_at", "content"}
"""Columns that tell of the run or of the place; and the content, which a warehouse may be made without."""
OF_THE_RUN = {"pipeline_metrics"}


def golden_directories() -> list[Path]:
    """Those with a journal; a mirror holds the same mesh as its primary."""
    found = sorted(GOLDEN.glob("v*/*"))
    return [path for path in found if (path / "journal").is_dir() and path.suffix != ".mirror"]


def published(spark: SparkSession, into: Path) -> TableStore:
    """A warehouse of copies of them all."""
    for path in golden_directories():
        shutil.copytree(path, into / path.name)
    directories = tuple(into / path.name for path in golden_directories())
    settings = PipelineSettings(
        directories=directories, warehouse=into / "tables", quarantine="rows", content="keep"
    )
    pipeline = Pipeline(spark, settings)
    pipeline.run()
    return pipeline.store


def figures(store: TableStore) -> dict[str, dict[str, Any]]:
    """By table, how many rows, and a checksum of them all in every column that counts."""
    manifest = store.published()
    found = {
        name: _figure(store.root / file.path for part in table.parts for file in part.files)
        for name, table in manifest.tables.items()
        if name not in OF_THE_RUN
    }
    pieces = [store.root / piece.folder / f"event_date={piece.day}" for piece in manifest.bronze]
    found["bronze"] = _figure(file for piece in pieces for file in piece.glob("*.parquet"))
    return dict(sorted(found.items()))


def _figure(files: Iterable[Path]) -> dict[str, Any]:
    rows = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    lines = sorted(json.dumps(_counted(row), default=str, sort_keys=True) for row in rows)
    return {"rows": len(lines), "sha256": hashlib.sha256("\n".join(lines).encode()).hexdigest()}


def _counted(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in LEFT_OUT}


def main() -> None:
    from relaymesh.pipeline.spark import spark_session
    from tests.pipeline.conftest import SETTINGS

    logging.disable(logging.WARNING)
    spark = spark_session(master="local[2]", app="golden directories", settings=SETTINGS)
    with tempfile.TemporaryDirectory() as path:
        FIGURES.write_text(json.dumps(figures(published(spark, Path(path))), indent=1) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
