"""The option `into`: tasks write what they decode into Parquet, and answer with the files."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import pyarrow.parquet as pq  # type: ignore[import-untyped]

from relaymesh.errors import JournalDamaged
from relaymesh.kernel.records import AnyRecord
from tests.pipeline.source.journals import (
    T0,
    accepted,
    mesh_of,
    one_of_each,
    read_rows,
    segments,
    traffic,
    write_frames,
)

DAY_MS = 86_400_000


def rows_of(files: list[dict[str, object]]) -> list[dict[str, object]]:
    """The rows of the files, with the day that their reader knows from the path."""
    found = [
        {**row, "event_date": file["day"]}
        for file in files
        for row in pq.ParquetFile(str(file["path"])).read().to_pylist()
    ]
    return sorted(found, key=lambda row: (row["partition"], row["sequence"]))


def test_the_files_hold_exactly_the_rows_of_a_read_and_the_answer_says_what_is_in_them(
    tmp_path: Path,
) -> None:
    frames: list[list[AnyRecord]] = [
        one_of_each(),
        [accepted(100, 3, T0 + DAY_MS)],
        [accepted(103, 2, T0 + 3 * DAY_MS)],
    ]
    write_frames(tmp_path / "data", frames)
    files = read_rows(tmp_path / "data", into=tmp_path / "out", runId="r-1")
    assert [file["day"] for file in files] == ["2026-01-01", "2026-01-02", "2026-01-04"]
    events = read_rows(tmp_path / "data")
    told = [{**row, "event_date": str(row["event_date"]), "run_id": "r-1"} for row in events]
    assert rows_of(files) == told
    for file in files:
        own = [row["sequence"] for row in events if str(row["event_date"]) == file["day"]]
        assert (file["first"], file["last"], file["rows"]) == (min(own), max(own), len(own))
        assert (file["source"], file["partition"]) == (mesh_of(tmp_path / "data"), 0)
        assert "event_date" not in pq.read_schema(str(file["path"])).names


def test_every_task_writes_files_of_its_own_and_a_task_that_runs_again_too(tmp_path: Path) -> None:
    write_frames(tmp_path / "data", traffic(8))
    first = read_rows(tmp_path / "data", into=tmp_path / "out", rowsPerPartition=20)
    again = read_rows(tmp_path / "data", into=tmp_path / "out", rowsPerPartition=20)
    assert len(first) > 1
    assert {file["path"] for file in first}.isdisjoint(file["path"] for file in again)
    assert rows_of(first) == rows_of(again)
    assert sum(file["rows"] for file in first) == 72


def test_a_read_that_fails_leaves_no_file_behind(tmp_path: Path) -> None:
    write_frames(tmp_path / "data", traffic(8))
    damaged = segments(tmp_path / "data")[0]
    data = bytearray(damaged.read_bytes())
    data[-200] ^= 0xFF
    data[len(data) // 2] ^= 0xFF
    damaged.write_bytes(data)
    with pytest.raises(JournalDamaged):
        read_rows(tmp_path / "data", into=tmp_path / "out")
    assert list((tmp_path / "out").glob("*")) == []


def test_nothing_to_read_is_no_file(tmp_path: Path) -> None:
    write_frames(tmp_path / "data", traffic(1))
    assert read_rows(tmp_path / "data", into=tmp_path / "out", fromSequence=1_000) == []
    assert not (tmp_path / "out").exists()
