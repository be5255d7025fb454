"""The mesh id: which mesh a directory holds, whatever its path."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from relaymesh.journal import Mirror, recover, verify
from relaymesh.journal.identity import read_mesh_id
from relaymesh.journal.restore import restore_from
from relaymesh.node.disk import RealDisk


def start(path: Path, mirror: Path | None = None) -> str:
    """Start on the directory, and stop; answers its id."""
    path.mkdir(exist_ok=True)
    other = None
    if mirror is not None:
        mirror.mkdir(exist_ok=True)
        other = Mirror(RealDisk(mirror), syncing="mirror first", name=str(mirror), of=str(path))
    writer = recover(RealDisk(path), mirror=other).open_writer(1)
    writer.append(b"one event", 1, 1)
    writer.sync()
    writer.close()
    found = read_mesh_id(RealDisk(path))
    assert found is not None
    return found


def test_an_id_is_made_once_and_is_of_one_mesh_alone(tmp_path: Path) -> None:
    first = start(tmp_path / "one")
    assert len(first) == 32
    assert start(tmp_path / "one") == first
    assert start(tmp_path / "two") != first


def test_an_older_directory_gets_its_id_at_the_next_start(tmp_path: Path) -> None:
    first = start(tmp_path / "data")
    (tmp_path / "data" / "mesh").unlink()
    assert read_mesh_id(RealDisk(tmp_path / "data")) is None
    assert verify(RealDisk(tmp_path / "data")).damage == []
    assert start(tmp_path / "data") != first


def test_a_directory_that_moves_or_is_copied_is_the_same_mesh(tmp_path: Path) -> None:
    first = start(tmp_path / "data")
    shutil.copytree(tmp_path / "data", tmp_path / "backup")
    (tmp_path / "data").rename(tmp_path / "moved")
    assert start(tmp_path / "moved") == start(tmp_path / "backup") == first


def test_a_mirror_and_what_is_restored_from_it_have_the_id(tmp_path: Path) -> None:
    first = start(tmp_path / "data", tmp_path / "mirror")
    assert read_mesh_id(RealDisk(tmp_path / "mirror")) == first
    (tmp_path / "data" / "mesh").unlink()
    assert start(tmp_path / "data", tmp_path / "mirror") == first, "the mirror knows it"
    (tmp_path / "mirror" / "mesh").write_text("id nothing\n")
    assert start(tmp_path / "data", tmp_path / "mirror") == first
    assert read_mesh_id(RealDisk(tmp_path / "mirror")) == first
    (tmp_path / "new").mkdir()
    restore_from(
        RealDisk(tmp_path / "mirror"), RealDisk(tmp_path / "new"), "set-aside-20260101T000000", print
    )
    assert read_mesh_id(RealDisk(tmp_path / "new")) == first


@pytest.mark.parametrize("harm", ["", "id", "id 0\ncrc 0\n", "id {other}\ncrc {crc}\n", "\x00" * 60])
def test_an_id_that_does_not_read_back_is_named_and_never_believed(tmp_path: Path, harm: str) -> None:
    first = start(tmp_path / "data")
    file = tmp_path / "data" / "mesh"
    crc = file.read_text().split()[-1]
    file.write_text(harm.format(other="0" * 32, crc=crc))
    assert read_mesh_id(RealDisk(tmp_path / "data")) is None
    assert [each.segment for each in verify(RealDisk(tmp_path / "data")).damage] == ["mesh"]
    assert start(tmp_path / "data") != first, "a mesh is not kept from its work by it"
