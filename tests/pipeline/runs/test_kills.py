"""kill -9 of the driver and its Java in the middle of every stage; then the run is simply started again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

from tests.pipeline.runs.traffic import Traffic
from tests.pipeline.runs.whole import assert_bronze_is_the_journal, watching
from tests.project.tree import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.runs.conftest import Opening

KILLED = -9


class Drivers:
    """So many of them, one after the other. The next one starts its Java while this one works."""

    def __init__(self, data: Path, warehouse: Path, count: int) -> None:
        self._words = [sys.executable, "-m", "tests.pipeline.runs.driver", str(data), str(warehouse)]
        self._left = count
        self._next = self._started()

    def _started(self) -> subprocess.Popen[str]:
        self._left -= 1
        pipe = subprocess.PIPE
        return subprocess.Popen(self._words, cwd=ROOT, stdin=pipe, stderr=pipe, text=True)

    def killed(self, command: str, stage: str, times: int = 1) -> None:
        """One driver dies when it reaches the stage."""
        driver = self._next
        if self._left:
            self._next = self._started()
        _, said = driver.communicate(json.dumps([command, stage, times]) + "\n", timeout=400)
        assert driver.returncode == KILLED, said[-3000:]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """One that still waits has nothing to read any more, and ends by itself."""
        self._next.communicate(timeout=60)


@pytest.mark.slow
def test_whatever_is_killed_bronze_is_exact_and_published_tables_are_whole(
    pipeline: Opening, traffic: Traffic, spark: SparkSession, tmp_path: Path
) -> None:
    from tests.pipeline.runs.tiny import entries

    warehouse = tmp_path / "tables"
    opened = pipeline()
    first = opened.run()
    with Drivers(traffic.path, warehouse, 5) as drivers, watching(opened.store) as seen:
        for _ in range(2):
            traffic.day()
        drivers.killed("run", "ingest: batch written", 2)
        drivers.killed("run", "refresh: table written", 2)
        drivers.killed("run", "publish: files synced")
        resumed = opened.run()
        assert resumed.status == "published"
        assert resumed.events == 0, "what the killed runs had committed is not read again"
        assert_bronze_is_the_journal(opened.store, traffic.path)
        full = sorted(entries(opened.bronze.read(spark, opened.bronze.snapshot().pieces)).collect())
        assert sorted(opened.store.current(spark, "entries").collect()) == full

        drivers.killed("compact", "compact: files written")
        drivers.killed("compact", "compact: bronze switched")
        assert_bronze_is_the_journal(opened.store, traffic.path)
        traffic.day()
        last = opened.run()
        assert_bronze_is_the_journal(opened.store, traffic.path)
        assert opened.bronze.snapshot().generation.generation == 1
    assert [run for run in seen if run not in (first.run_id, resumed.run_id, last.run_id)] == []
    left = {path.name for path in (warehouse / "bronze").glob("batch=*")}
    named = {piece.folder for manifest in opened.store.history() for piece in manifest.bronze}
    assert {f"bronze/{name}" for name in left} == named, "what crashed runs left behind is swept"
