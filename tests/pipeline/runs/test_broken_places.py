"""Runs over broken files and folders end in one line, in the error and in the run's record."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from relaymesh.errors import MeshError
from tests.pipeline.runs.conftest import Opening
from tests.pipeline.runs.traffic import Traffic

ALL = date(2026, 1, 1), date(2027, 1, 1)


def in_one_line(error: MeshError, *words: str) -> bool:
    return "\n" not in error.message and all(word in error.message for word in words)


def test_corrupt_bronze_an_unwritable_folder_and_a_moved_directory(
    pipeline: Opening, traffic: Traffic, tmp_path: Path
) -> None:
    from relaymesh.pipeline.runs.record import load_records

    pipeline().run()
    tables = tmp_path / "tables" / "tables"
    tables.rename(tmp_path / "aside")
    tables.write_text("a file where the folder was")
    with pytest.raises(MeshError) as unwritable:
        pipeline().backfill(*ALL)
    assert in_one_line(unwritable.value, "not a directory", str(tables))
    tables.unlink()
    (tmp_path / "aside").rename(tables)

    victim = min((tmp_path / "tables" / "bronze").rglob("*.parquet"))
    kept = victim.read_bytes()
    victim.write_bytes(kept[: len(kept) // 2])
    with pytest.raises(MeshError) as corrupt:
        pipeline().backfill(*ALL)
    assert in_one_line(corrupt.value, victim.name)
    record = load_records(tmp_path / "tables", 1)[0]
    assert record.error is not None
    assert len(record.error.splitlines()) == 1
    victim.write_bytes(kept)

    traffic.mesh.close()
    traffic.path.rename(tmp_path / "moved")
    with pytest.raises(MeshError) as moved:
        pipeline().run()
    assert in_one_line(moved.value, str(traffic.path))
    pipeline(directories=(tmp_path / "moved",)).run()
