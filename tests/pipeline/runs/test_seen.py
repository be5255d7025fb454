"""What a run has found good, a later run does not read again, unless it changed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from relaymesh.errors import JournalDamaged
from relaymesh.pipeline.bronze.folder import Bronze
from relaymesh.pipeline.runs.verify import require_whole, verify_warehouse
from relaymesh.pipeline.tables.inspection import Inspection, WarehouseDamaged
from relaymesh.pipeline.tables.store import TableStore
from tests.pipeline.runs.filled import Filled, filled_in
from tests.pipeline.runs.opened_files import opened_files
from tests.pipeline.runs.test_damage import edited


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A warehouse in another place: no file has the inode and the time that its log says."""
    filled = filled_in(tmp_path)
    return Path(shutil.copytree(filled.root, tmp_path / "copy", copy_function=shutil.copyfile))


def looked(root: Path) -> list[Path]:
    """Files of bronze that the look of a run opens."""
    inspection = Inspection(root)
    with opened_files() as files:
        require_whole(TableStore.open(root), Bronze(root), inspection)
    inspection.keep()
    return [path for path in files if path.suffix == ".parquet"]


def test_a_copied_warehouse_is_read_whole_by_the_first_run_and_not_by_the_second(copied: Path) -> None:
    assert set(looked(copied)) == set(copied.glob("bronze/batch=*/*/*.parquet"))
    assert looked(copied) == []


@pytest.mark.parametrize("what", ["bytes", "time", "log"])
def test_a_file_that_changed_since_it_was_seen_is_read_again(copied: Path, what: str) -> None:
    looked(copied)
    path = sorted(copied.glob("bronze/batch=*/*/*.parquet"))[1]
    if what == "time":
        os.utime(path, ns=(1, 1))
        assert looked(copied) == [path], "the same bytes: it is read, and good"
        return
    if what == "bytes":
        edited(path)
    else:
        for entry in copied.glob("bronze/log/*.json"):
            entry.write_text(entry.read_text().replace('"sha256": "', '"sha256": "0'))
    with pytest.raises(JournalDamaged if what == "log" else WarehouseDamaged):
        looked(copied)


def test_what_was_seen_only_skips_a_look(copied: Path) -> None:
    looked(copied)
    path = min(copied.glob("bronze/batch=*/*/*.parquet"))
    before = path.stat()
    edited(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    [found, *_] = verify_warehouse(copied).found
    assert path.name in found.path, "verify reads every byte, whatever was seen"


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"bronze/x": [1, 2]}', b"\xff\xfe"])
def test_a_list_of_what_was_seen_that_does_not_read_back_skips_nothing(copied: Path, content: bytes) -> None:
    looked(copied)
    (copied / "seen.json").write_bytes(content)
    assert set(looked(copied)) == set(copied.glob("bronze/batch=*/*/*.parquet"))
    assert looked(copied) == []


def test_files_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    filled: Filled = filled_in(tmp_path)
    looked(filled.root)
    known = (filled.root / "seen.json").read_text()
    assert all(path.name in known for path in filled.files())
    shutil.rmtree(filled.root / "bronze")
    shutil.rmtree(filled.root / "checkpoints")
    looked(filled.root)
    assert (filled.root / "seen.json").read_text() == "{}"
