"""A warehouse and a report are their owner's alone, unless they are shared."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from relaymesh.errors import InvalidSettings
from relaymesh.modes import PRIVATE, READABLE, Modes
from relaymesh.pipeline.runs.settings import PipelineSettings
from relaymesh.pipeline.tables.durable import swap_file
from relaymesh.pipeline.tables.lock import warehouse_lock
from relaymesh.pipeline.tables.sharing import SHARED, modes_of

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no modes")


def run(root: Path, shared: bool | None, umask: int = 0o022) -> None:
    """A run that writes a manifest, and lets Spark write a table as its umask says."""
    before = os.umask(umask)
    try:
        with warehouse_lock(root, "run", shared):
            swap_file(root / "manifest.json", b"{}", modes_of(root))
            table = root / "tables" / "messages" / "run_id=1"
            table.mkdir(parents=True, exist_ok=True)
            (table / "part-0.parquet").write_bytes(b"")
            (table / ".part-0.parquet.crc").write_bytes(b"")
    finally:
        os.umask(before)


def wrong(root: Path, modes: Modes) -> dict[str, str]:
    paths = [root, *root.rglob("*")]
    found = {path: stat.S_IMODE(path.lstat().st_mode) for path in paths}
    return {
        str(path): oct(mode)
        for path, mode in found.items()
        if mode != (modes.folder if path.is_dir() else modes.file)
    }


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077], ids=oct)
def test_a_warehouse_is_its_owners_alone(tmp_path: Path, umask: int) -> None:
    run(tmp_path / "warehouse", None, umask)
    assert wrong(tmp_path / "warehouse", PRIVATE) == {}


def test_a_shared_warehouse_stays_shared_until_it_is_made_private(tmp_path: Path) -> None:
    root = tmp_path / "warehouse"
    for shared, modes in (
        (None, PRIVATE),
        (True, READABLE),
        (None, READABLE),
        (False, PRIVATE),
        (None, PRIVATE),
    ):
        run(root, shared)
        assert wrong(root, modes) == {}, shared
        assert (root / SHARED).exists() == (modes == READABLE)


def test_a_strangers_file_in_a_warehouse_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()
    (tmp_path / "mine.txt").chmod(0o640)
    tmp_path.chmod(0o750)
    run(tmp_path, None)
    assert stat.S_IMODE((tmp_path / "mine.txt").stat().st_mode) == 0o640
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o750
    assert stat.S_IMODE((tmp_path / "tables").stat().st_mode) == 0o700


def test_a_warehouse_inside_a_data_directory_cannot_be_shared(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="lies in the data directory"):
        PipelineSettings(directories=(tmp_path,), warehouse=tmp_path / "tables", shared=True)
    PipelineSettings(directories=(tmp_path,), warehouse=tmp_path / "tables")
    PipelineSettings(directories=(tmp_path / "data",), warehouse=tmp_path / "tables", shared=True)


@pytest.mark.parametrize("modes", [PRIVATE, READABLE])
@pytest.mark.parametrize("umask", [0o000, 0o077], ids=oct)
def test_a_report_is_written_for_whom_it_is(tmp_path: Path, modes: Modes, umask: int) -> None:
    before = os.umask(umask)
    try:
        swap_file(tmp_path / "new" / "report.html", b"page", modes)
    finally:
        os.umask(before)
    assert wrong(tmp_path / "new", modes) == {}
