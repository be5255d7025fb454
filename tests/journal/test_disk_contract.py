"""One contract over every disk: the real one in a folder and the simulated one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from relaymesh.journal import Disk
from relaymesh.node.disk import RealDisk
from relaymesh.testing.disk import MemoryDisk


@pytest.fixture(params=["real", "memory"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    made: Disk = RealDisk(tmp_path / "data") if request.param == "real" else MemoryDisk()
    made.make_folder("journal")
    return made


def put(disk: Disk, name: str, data: bytes) -> None:
    file = disk.open(name, create=True)
    file.write_at(data, 0)
    file.close()


def get(disk: Disk, name: str) -> bytes:
    file = disk.open(name, write=False)
    try:
        return file.read_at(0, 1000)
    finally:
        file.close()


def test_bytes_come_back_where_they_were_put(disk: Disk) -> None:
    file = disk.open("journal/a", create=True)
    file.write_at(b"world", 6)
    file.write_at(b"hello ", 0)
    file.sync()
    assert file.read_at(0, 100) == b"hello world"
    assert file.read_at(4, 3) == b"o w"
    assert file.read_at(50, 3) == b""
    assert file.size() == 11
    file.close()


def test_a_hole_reads_as_zeros(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.write_at(b"x", 5)
    assert file.read_at(0, 10) == bytes(5) + b"x"
    file.close()


def test_allocated_space_reads_as_zeros_and_never_shrinks(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.write_at(b"data", 0)
    file.allocate(1000)
    assert file.size() == 1000
    assert file.read_at(0, 2000) == b"data" + bytes(996)
    file.allocate(10)
    file.allocate(0)
    assert file.size() == 1000
    file.close()


def test_truncate_cuts_and_extends(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.write_at(b"abcdef", 0)
    file.truncate(3)
    file.truncate(5)
    assert file.read_at(0, 10) == b"abc\0\0"
    file.close()


def test_opening_with_create_empties_what_was_there(disk: Disk) -> None:
    put(disk, "a", b"old")
    put(disk, "a", b"")
    assert get(disk, "a") == b""


def test_opening_a_missing_file_says_so(disk: Disk) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open("journal/none")
    with pytest.raises(FileNotFoundError):
        disk.open("nowhere/a", create=True)


def test_a_file_opened_for_reading_refuses_writes(disk: Disk) -> None:
    put(disk, "a", b"x")
    file = disk.open("a", write=False)
    with pytest.raises(OSError, match="descriptor"):
        file.write_at(b"y", 0)
    file.close()


def test_rename_replaces_and_crosses_folders(disk: Disk) -> None:
    put(disk, "journal/a", b"new")
    put(disk, "b", b"old")
    disk.rename("journal/a", "b")
    disk.sync_folder("")
    disk.sync_folder("journal")
    assert get(disk, "b") == b"new"
    assert not disk.exists("journal/a")
    with pytest.raises(FileNotFoundError):
        disk.rename("journal/a", "c")


def test_a_renamed_open_file_can_still_be_read(disk: Disk) -> None:
    put(disk, "a", b"x")
    file = disk.open("a", write=False)
    disk.rename("a", "b")
    assert file.read_at(0, 1) == b"x"
    file.close()


def test_remove_removes(disk: Disk) -> None:
    put(disk, "a", b"x")
    disk.remove("a")
    assert not disk.exists("a")
    with pytest.raises(FileNotFoundError):
        disk.remove("a")


def test_a_listing_is_sorted_and_holds_files_of_that_folder_only(disk: Disk) -> None:
    for name in ("journal/b", "journal/a", "c"):
        put(disk, name, b"")
    disk.make_folder("journal/deeper")
    assert disk.list("journal") == ["a", "b"]
    assert disk.list("") == ["c"]
    assert disk.list("nowhere") == []


def test_making_a_folder_twice_is_fine(disk: Disk) -> None:
    disk.make_folder("journal")
    disk.make_folder("x/y")
    put(disk, "x/y/a", b"1")
    assert disk.list("x/y") == ["a"]


def test_a_lock_is_held_once_and_says_by_whom(disk: Disk) -> None:
    held = disk.lock("lock")
    held.note(b"a longer note")
    held.note(b"pid 7\n")
    assert get(disk, "lock") == b"pid 7\n"
    with pytest.raises(BlockingIOError):
        disk.lock("lock")
    held.release()
    held.release()
    disk.lock("lock").release()


def test_salts_differ_and_are_64_bits(disk: Disk) -> None:
    salts = {disk.salt() for _ in range(50)}
    assert len(salts) == 50
    assert all(0 <= salt < 2**64 for salt in salts)


def test_free_bytes_and_process_are_told(disk: Disk) -> None:
    assert disk.free_bytes() > 0
    assert disk.process_id() > 0


def test_the_real_disk_loops_over_short_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: whole(fd, bytes(data)[:3], at))
    disk = RealDisk(tmp_path)
    put(disk, "a", b"a write in many pieces")
    assert get(disk, "a") == b"a write in many pieces"


def test_a_disk_that_accepts_nothing_is_an_error_not_a_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: 0)
    with pytest.raises(OSError, match="accepted no byte"):
        put(RealDisk(tmp_path), "a", b"x")


def test_the_real_disk_stays_inside_its_folder(tmp_path: Path) -> None:
    for name in ("../a", "/etc/a", "journal/../../a"):
        with pytest.raises(ValueError, match="inside"):
            RealDisk(tmp_path).open(name, create=True)


def test_files_are_closed_on_exec(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    file = disk.open("a", create=True)
    assert not os.get_inheritable(file._fd)
    file.close()
