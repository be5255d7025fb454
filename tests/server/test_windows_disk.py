"""What the disk does where Windows has no fdatasync, no pread, no flock, and no folder to sync.

The module is loaded once more, under a name of its own, beside doubles of `sys`, `os` and `msvcrt`.
"""

from __future__ import annotations

import errno
import os
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from relaymesh.node import disk as posix_disk

MISSING = ("fdatasync", "pread", "pwrite", "posix_fallocate", "O_DIRECTORY", "O_CLOEXEC", "register_at_fork")


class WindowsOs(types.ModuleType):
    """`os` without what Windows lacks; counts the syncs, and opens no folder."""

    def __init__(self) -> None:
        super().__init__("os")
        for name in dir(os):
            if name not in (*MISSING, "fsync", "open", "close"):
                setattr(self, name, getattr(os, name))
        self.syncs = 0
        self.closed: list[Any] = []
        self.O_BINARY = 0
        self.name = "nt"

    def fsync(self, descriptor: int) -> None:
        self.syncs += 1
        os.fsync(descriptor)

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        if Path(path).is_dir():
            raise PermissionError(errno.EACCES, "a folder cannot be opened", str(path))
        return os.open(path, flags, mode)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)
        for tell in self.closed:
            tell(descriptor)


class Msvcrt(types.ModuleType):
    """Locks of byte ranges, by file and not by descriptor: what `locking` shows to two processes."""

    LK_NBLCK = 2

    def __init__(self) -> None:
        super().__init__("msvcrt")
        self.held: dict[int, tuple[int, int]] = {}

    def locking(self, descriptor: int, mode: int, count: int) -> None:
        assert (mode, count) == (self.LK_NBLCK, 1)
        key = (os.fstat(descriptor).st_ino, os.lseek(descriptor, 0, os.SEEK_CUR))
        if key in self.held.values():
            raise OSError(errno.EACCES, "Permission denied")
        self.held[descriptor] = key

    def closed(self, descriptor: int) -> None:
        """A lock goes with its descriptor."""
        self.held.pop(descriptor, None)


class Windows:
    """The module as it is there, and the doubles it runs on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.os = WindowsOs()
        self.msvcrt = Msvcrt()
        self.os.closed.append(self.msvcrt.closed)
        there = types.ModuleType("sys")
        there.platform = "win32"  # type: ignore[attr-defined]
        for name, module in (("os", self.os), ("sys", there), ("msvcrt", self.msvcrt)):
            monkeypatch.setitem(sys.modules, name, module)
        self.module: Any = types.ModuleType("windows_disk")
        source = Path(posix_disk.__file__).read_text(encoding="utf-8")
        exec(compile(source, posix_disk.__file__, "exec"), self.module.__dict__)
        monkeypatch.undo()


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> Windows:
    return Windows(monkeypatch)


def test_a_sync_is_an_fsync_where_there_is_no_fdatasync(windows: Windows, tmp_path: Path) -> None:
    file = windows.module.RealDisk(tmp_path).open("data", create=True)
    file.write_at(b"abc", 0)
    file.sync()
    assert windows.os.syncs == 1
    file.close()


def test_reads_and_writes_at_an_offset_work_without_pread_and_pwrite(
    windows: Windows, tmp_path: Path
) -> None:
    file = windows.module.RealDisk(tmp_path).open("data", create=True)
    file.allocate(16)
    assert file.size() == 16
    file.write_at(b"end", 13)
    file.write_at(b"start", 0)
    assert file.read_at(0, 5) == b"start"
    assert file.read_at(13, 100) == b"end"
    assert file.read_at(5, 8) == bytes(8)
    file.truncate(5)
    assert file.read_at(0, 100) == b"start"
    file.close()
    assert (tmp_path / "data").read_bytes() == b"start"


def test_a_folder_is_not_synced_because_it_cannot_be_opened(windows: Windows, tmp_path: Path) -> None:
    disk = windows.module.RealDisk(tmp_path)
    disk.make_folder("journal")
    disk.sync_folder("journal")
    disk.sync_folder("")
    assert windows.os.syncs == 0
    assert (tmp_path / "journal").is_dir()


def test_a_second_lock_is_refused_as_on_every_system_and_the_note_stays_readable(
    windows: Windows, tmp_path: Path
) -> None:
    disk = windows.module.RealDisk(tmp_path)
    lock = disk.lock("lock")
    lock.note(b"pid 1\n")
    with pytest.raises(BlockingIOError):
        disk.lock("lock")
    assert (tmp_path / "lock").read_bytes() == b"pid 1\n"
    lock.release()
    again = disk.lock("lock")
    again.release()


def test_a_name_that_leads_out_of_the_directory_is_refused(windows: Windows, tmp_path: Path) -> None:
    disk = windows.module.RealDisk(tmp_path)
    for name in ("../x", "\\windows", "/etc", "a\\..\\..\\b", "C:\\x", "c:x"):
        with pytest.raises(ValueError, match="data directory"):
            disk.exists(name)


def test_a_rename_replaces_what_is_there(windows: Windows, tmp_path: Path) -> None:
    disk = windows.module.RealDisk(tmp_path)
    for name, text in (("old", b"1"), ("new", b"2")):
        file = disk.open(name, create=True)
        file.write_at(text, 0)
        file.close()
    disk.rename("old", "new")
    assert (tmp_path / "new").read_bytes() == b"1"
    assert disk.list("") == ["new"]
