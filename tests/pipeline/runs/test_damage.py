"""Damage between two runs: a file of bronze, its log, the manifest or a table that is gone or changed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from relaymesh.cli.failure import Exit
from relaymesh.cli.main import main
from relaymesh.errors import Conflict
from relaymesh.pipeline.runs.sources import remember_sources
from relaymesh.pipeline.runs.verify import verify_warehouse
from relaymesh.pipeline.tables.inspection import WarehouseDamaged
from relaymesh.pipeline.tables.sources import known_sources
from tests.pipeline.runs.filled import EVENTS, Filled, filled_in
from tests.pipeline.runs.traffic import Traffic
from tests.pipeline.source.journals import segments, traffic, write_frames

if TYPE_CHECKING:
    from tests.pipeline.runs.conftest import Opening


@pytest.fixture
def filled(tmp_path: Path) -> Filled:
    return filled_in(tmp_path)


def removed(path: Path) -> None:
    path.unlink()


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def renamed(path: Path) -> None:
    path.rename(path.with_name(f"was-{path.name}"))


def doubled(path: Path) -> None:
    shutil.copy(path, path.with_name(f"copy-of-{path.name}"))


def edited(path: Path) -> None:
    """One bit in the middle: the footer still reads back."""
    data = bytearray(path.read_bytes())
    data[len(data) // 4] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("harm", [removed, truncated, emptied, renamed, doubled, edited])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_file_of_bronze_that_is_not_what_was_written_is_named(
    filled: Filled, harm: Callable[[Path], None], number: int
) -> None:
    path = filled.files()[number]
    harm(path)
    said = filled.refused()
    assert path.name in said
    assert path.parent.parent.name in said
    assert "the journals still hold every event" in said
    [first, *_] = verify_warehouse(filled.root).found
    assert path.name in first.path


@pytest.mark.parametrize("harm", [removed, truncated, emptied, renamed])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_log_entry_that_is_gone_or_damaged_is_named(
    filled: Filled, harm: Callable[[Path], None], number: int
) -> None:
    path = sorted(filled.root.glob("bronze/log/*.json"))[number]
    harm(path)
    with pytest.raises(Exception, match=r"nothing was published|does not read back") as refusal:
        filled.require()
    assert path.name in str(refusal.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [('"rows": 36', '"rows": 35'), ('"first": 37', '"first": 38'), ('"last": 72', '"last": 71')],
)
def test_a_log_entry_that_was_edited_is_found_by_its_files(filled: Filled, old: str, new: str) -> None:
    path = filled.root / "bronze" / "log" / "00000001.json"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    assert "00000001.json was changed: its checksum is another" in filled.refused()
    path.write_text(text)
    filled.unseal()
    path.write_text(path.read_text().replace(old, new))
    assert "batch=00000001" in filled.refused() or "00000001.json" in filled.refused()


def test_a_log_entry_under_the_name_of_another_batch_does_not_count_twice(filled: Filled) -> None:
    log = filled.root / "bronze" / "log"
    shutil.copy(log / "00000001.json", log / "1 (copy).json")
    filled.require()
    shutil.copy(log / "00000001.json", log / "00000003.json")
    with pytest.raises(Exception, match=r"00000003.json is the log entry of batch 1") as refusal:
        filled.require()
    assert "remove the copy" in getattr(refusal.value, "hint", "")


def test_an_edit_that_puts_the_time_back_is_found_by_verify(
    filled: Filled, capsys: pytest.CaptureFixture[str]
) -> None:
    path = filled.files()[0]
    before = path.stat()
    edited(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    filled.require()  # size, time, inode and footer are as they were
    code = main(["pipeline", "verify", "--warehouse", str(filled.root), "--dir", str(filled.data), "--json"])
    out, err = capsys.readouterr()
    assert code == Exit.CHECK_FAILED
    [found] = json.loads(out)["found"]
    assert found["path"].endswith(path.name)
    assert found["why"] == "its content was changed: the checksum is another"
    assert "restore it from a copy, or move" in err


def test_a_copied_warehouse_is_whole_though_every_inode_is_another(filled: Filled) -> None:
    shutil.copytree(filled.root, filled.root.with_name("elsewhere"))
    assert verify_warehouse(filled.root.with_name("elsewhere")).found == []
    shutil.rmtree(filled.root)
    filled.root.with_name("elsewhere").rename(filled.root)
    filled.require()


def test_bronze_must_reach_from_the_first_event_of_the_journal_to_where_it_ended(tmp_path: Path) -> None:
    write_frames(tmp_path / "data", traffic(12))
    late = Filled(tmp_path / "data", tmp_path / "late")
    late.take(37, 72)
    assert f"it lacks events 1 to 36 of {late.data}" in late.refused()
    hole = Filled(tmp_path / "data", tmp_path / "hole")
    hole.take(1, 36)
    hole.require(through=36)
    assert "it lacks events 37 to 108" in hole.refused(through=EVENTS)
    hole.take(73, EVENTS)
    assert "it lacks events 37 to 72" in hole.refused()
    twice = Filled(tmp_path / "data", tmp_path / "twice")
    twice.take(1, 36)
    twice.take(28, EVENTS)
    assert "it has events 28 to 36" in twice.refused()
    nothing = Filled(tmp_path / "data", tmp_path / "nothing")
    nothing.require()
    assert "it lacks events 1 to 108" in nothing.refused(through=EVENTS)


def test_what_the_journal_no_longer_has_is_said_before_it_is_given_up(filled: Filled) -> None:
    segments(filled.data)[0].unlink()  # retention dropped it: bronze has what it held
    filled.require(through=EVENTS)
    removed(filled.files()[0])
    said = filled.refused()
    assert "the journals no longer hold the events 1 to" in said
    assert "restore it from a copy" in said


def test_another_journal_under_the_same_path_and_a_lost_list_of_sources_are_refused(
    filled: Filled, tmp_path: Path
) -> None:
    (filled.root / "sources.json").rename(filled.root / "sources.old")
    assert "sources.json: bronze has events of" in filled.refused()
    (filled.root / "sources.old").rename(filled.root / "sources.json")
    shutil.rmtree(filled.data)
    write_frames(filled.data, traffic(4))
    assert "holds another mesh than the source" in filled.refused()


def test_a_copy_of_a_known_directory_is_refused_and_another_spelling_is_the_same(filled: Filled) -> None:
    """`cp -r` of a data directory, given to the same warehouse, once doubled every message."""
    known = known_sources(filled.root)
    (filled.root.parent / "link").symlink_to(filled.data)
    assert remember_sources(filled.root, [filled.root.parent / "link"]) == known
    copy = filled.root.parent / "copy"
    shutil.copytree(filled.data, copy)
    with pytest.raises(Conflict, match="hold the same mesh"):
        remember_sources(filled.root, [copy])
    assert known_sources(filled.root) == known
    write_frames(filled.root.parent / "other", traffic(1))
    assert len(remember_sources(filled.root, [filled.root.parent / "other"])) == 2


def test_a_log_without_checksums_is_held_to_its_bytes_and_rows(filled: Filled) -> None:
    """As version 0.1.0 wrote it, before files were noted one by one."""
    filled.unseal()
    for path in filled.root.glob("bronze/log/*.json"):
        entry = json.loads(path.read_text())
        for piece in entry["pieces"]:
            del piece["contents"]
        path.write_text(json.dumps(entry))
    filled.require(through=EVENTS)
    assert verify_warehouse(filled.root).without_checksum == len(filled.files())
    path = filled.files()[1]
    kept = path.read_bytes()
    removed(path)
    assert path.parent.as_posix().partition("tables/")[2] in filled.refused()
    path.write_bytes(filled.files()[0].read_bytes().ljust(len(kept)))
    assert path.name in filled.refused()


def test_a_run_refuses_a_hole_and_the_advice_of_its_error_publishes_again(
    pipeline: Opening, traffic: Traffic, tmp_path: Path
) -> None:
    """Deleting bronze once published what was left of it, as if that were all."""
    opened = pipeline(batch_events=40)
    opened.run()
    root = tmp_path / "tables"
    before = opened.store.published()
    first = min(root.glob("bronze/batch=*/*/*.parquet"))
    first.unlink()
    with pytest.raises(WarehouseDamaged, match=first.name):
        opened.run()  # with nothing new too
    traffic.day()
    with pytest.raises(WarehouseDamaged, match=first.name) as refused:
        opened.run()
    assert opened.store.published() == before

    for name in ("bronze", "checkpoints"):
        assert f"{root / name}" in refused.value.hint
        (root / name).rename(tmp_path / f"{name}-away")
    again = opened.run()
    assert again.status == "published"
    after = opened.store.published()
    assert after.tables["entries"].rows > before.tables["entries"].rows
    assert after.inputs[0].events == again.events
    assert verify_warehouse(root).found == []

    # A table is no source of anything: one that was harmed is built anew.
    for number, harm in enumerate((removed, truncated, edited)):
        [name, table] = list(opened.store.published().tables.items())[number]
        harm(root / table.parts[0].files[0].path)
        assert verify_warehouse(root).found
        assert opened.run().status == "published", name
        assert verify_warehouse(root).found == []
        rows = {each.name: each.rows for each in opened.store.published().tables.values()}
        assert rows["entries"] == after.tables["entries"].rows

    manifest = root / "manifest.json"
    text = manifest.read_text()
    manifest.write_text(text.replace('"through_batch": ', '"through_batch": 1'))
    with pytest.raises(WarehouseDamaged, match=r"manifest.json: it differs from its copy"):
        opened.run()
    manifest.unlink()
    assert opened.run().status == "published"
