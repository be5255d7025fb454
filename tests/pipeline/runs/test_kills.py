"""kill -9 of the driver and its Java in the middle of every stage; then the run is simply started again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.runs.traffic import Traffic
from tests.pipeline.runs.whole import assert_bronze_is_the_journal, watching
from tests.project.tree import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.runs.conftest import Opening

KILLED = -9


def killed(traffic: Traffic, warehouse: Path, command: str, stage: str, times: int) -> None:
    """Run a driver that dies when it reaches the stage."""
    words = [str(traffic.path), str(warehouse), command, stage, str(times)]
    ran = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.runs.driver", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert ran.returncode == KILLED, ran.stderr[-3000:]


@pytest.mark.slow
def test_whatever_is_killed_bronze_is_exact_and_published_tables_are_whole(
    pipeline: Opening, traffic: Traffic, spark: SparkSession, tmp_path: Path
) -> None:
    from tests.pipeline.runs.tiny import entries

    warehouse = tmp_path / "tables"
    opened = pipeline()
    first = opened.run()
    with watching(opened.store) as seen:
        for _ in range(2):
            traffic.day()
        killed(traffic, warehouse, "run", "ingest: batch written", 2)
        killed(traffic, warehouse, "run", "refresh: table written", 2)
        killed(traffic, warehouse, "run", "publish: files synced", 1)
        resumed = opened.run()
        assert resumed.status == "published"
        assert resumed.events == 0, "what the killed runs had committed is not read again"
        assert_bronze_is_the_journal(opened.store, traffic.path)
        full = sorted(entries(opened.bronze.read(spark, opened.bronze.snapshot().pieces)).collect())
        assert sorted(opened.store.current(spark, "entries").collect()) == full

        killed(traffic, warehouse, "compact", "compact: files written", 1)
        killed(traffic, warehouse, "compact", "compact: bronze switched", 1)
        assert_bronze_is_the_journal(opened.store, traffic.path)
        traffic.day()
        last = opened.run()
        assert_bronze_is_the_journal(opened.store, traffic.path)
        assert opened.bronze.snapshot().generation.generation == 1
    assert [run for run in seen if run not in (first.run_id, resumed.run_id, last.run_id)] == []
    left = {path.name for path in (warehouse / "bronze").glob("batch=*")}
    named = {piece.folder for manifest in opened.store.history() for piece in manifest.bronze}
    assert {f"bronze/{name}" for name in left} == named, "what crashed runs left behind is swept"
