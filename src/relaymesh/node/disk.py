"""The real disk: one folder of the file system as the journal's `Disk` port, readable by its owner only."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import sys
import threading
import weakref
from pathlib import Path

from relaymesh.modes import create_file, make_folder

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

__all__ = ["RealDisk", "RealFile", "RealLock"]

_OPEN_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class RealFile:
    """One descriptor. `write_at` and `sync` may run in two threads at once."""

    __slots__ = ("_cursor", "_fd", "_name")

    def __init__(self, descriptor: int, name: str) -> None:
        self._fd = descriptor
        self._name = name
        self._cursor = threading.Lock()

    def write_at(self, data: bytes, offset: int) -> None:
        written = self._write_some(data, offset)
        while written < len(data):  # a short write is legal and does not tell the reason
            more = self._write_some(memoryview(data)[written:], offset + written)
            if more == 0:
                raise OSError(errno.EIO, "the disk accepted no byte", self._name)
            written += more

    def read_at(self, offset: int, size: int) -> bytes:
        parts = []
        while size > 0:
            part = self._read_some(size, offset)
            if not part:
                break
            parts.append(part)
            offset += len(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def sync(self) -> None:
        if sys.platform == "darwin":
            fcntl.fcntl(self._fd, fcntl.F_FULLFSYNC)  # on macOS, fsync leaves the data in the drive's cache
        elif hasattr(os, "fdatasync"):
            os.fdatasync(self._fd)
        else:
            os.fsync(self._fd)

    def allocate(self, size: int) -> None:
        missing_from = self.size()
        if size <= missing_from:
            return
        if sys.platform == "linux":
            try:
                os.posix_fallocate(self._fd, missing_from, size - missing_from)
                return
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                    raise
        self.truncate(size)  # reserves no blocks, but later syncs need not change the size

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def close(self) -> None:
        descriptor, self._fd = self._fd, -1
        if descriptor >= 0:
            os.close(descriptor)

    if sys.platform == "win32":

        def _write_some(self, data: bytes | memoryview, offset: int) -> int:
            with self._cursor:
                os.lseek(self._fd, offset, os.SEEK_SET)
                return os.write(self._fd, data)

        def _read_some(self, size: int, offset: int) -> bytes:
            with self._cursor:
                os.lseek(self._fd, offset, os.SEEK_SET)
                return os.read(self._fd, size)

    else:

        def _write_some(self, data: bytes | memoryview, offset: int) -> int:
            return os.pwrite(self._fd, data, offset)

        def _read_some(self, size: int, offset: int) -> bytes:
            return os.pread(self._fd, size, offset)


class RealLock:
    """A lock of the operating system. It ends with the process, however the process ends."""

    def __init__(self, path: Path) -> None:
        self._fd = create_file(path, os.O_RDWR)
        try:
            _lock_now(self._fd)
        except BaseException:
            os.close(self._fd)
            raise
        _taken.add(self)

    def note(self, text: bytes) -> None:
        os.ftruncate(self._fd, 0)
        os.lseek(self._fd, 0, os.SEEK_SET)
        os.write(self._fd, text)

    def release(self) -> None:
        _taken.discard(self)
        descriptor, self._fd = self._fd, -1
        if descriptor >= 0:
            os.close(descriptor)


if sys.platform == "win32":

    def _lock_now(descriptor: int) -> None:
        os.lseek(descriptor, 1 << 30, os.SEEK_SET)  # far after the text, which stays readable
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            raise BlockingIOError(errno.EAGAIN, "locked by another process") from error

else:

    def _lock_now(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


_taken: weakref.WeakSet[RealLock] = weakref.WeakSet()


def _drop_inherited_locks() -> None:
    # A forked child shares the lock's open file. If the child kept it open, the directory would stay locked
    # after the parent was killed. Closing the child's copy leaves the parent's lock in place.
    for lock in list(_taken):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_inherited_locks)


class RealDisk:
    """The folder `root`. Nothing is read or written before the first call."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)

    def open(self, name: str, *, create: bool = False, write: bool = True) -> RealFile:
        path = self._path(name)
        if create:
            return RealFile(create_file(path, os.O_RDWR | os.O_TRUNC), name)
        return RealFile(os.open(path, (os.O_RDWR if write else os.O_RDONLY) | _OPEN_FLAGS), name)

    def exists(self, name: str) -> bool:
        return self._path(name).exists()

    def list(self, folder: str) -> list[str]:
        try:
            with os.scandir(self._path(folder)) as entries:
                return sorted(entry.name for entry in entries if entry.is_file())
        except FileNotFoundError:
            return []

    def modified_ns(self, name: str) -> int:
        return os.stat(self._path(name)).st_mtime_ns

    def rename(self, old: str, new: str) -> None:
        os.replace(self._path(old), self._path(new))

    def remove(self, name: str) -> None:
        os.unlink(self._path(name))

    def make_folder(self, folder: str) -> None:
        for made in make_folder(self._path(folder)):
            if not made.is_relative_to(self.root) or made == self.root:
                _sync_folder(made.parent)  # no other code syncs the folders above the root

    def sync_folder(self, folder: str) -> None:
        _sync_folder(self._path(folder))

    def free_bytes(self) -> int:
        return shutil.disk_usage(self.root).free

    def lock(self, name: str) -> RealLock:
        return RealLock(self._path(name))

    def process_id(self) -> int:
        return os.getpid()

    def salt(self) -> int:
        return secrets.randbits(64)

    def _path(self, name: str) -> Path:
        if name.startswith(("/", "\\")) or ".." in name or ":" in name:  # a colon ends a drive's letter
            raise ValueError(f"{name!r} does not lie inside the data directory")
        return self.root / name


def _sync_folder(path: Path) -> None:
    if sys.platform == "win32":
        return  # folders cannot be opened there; the file system journals its names by itself
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _OPEN_FLAGS)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
