"""A disk that does nothing but hold bytes: what one crash state is recovered on, many times a second."""

from __future__ import annotations

import builtins
import errno
import os
from collections.abc import Mapping

__all__ = ["PlainDisk", "PlainFile", "PlainLock"]

FOLDERS = ("journal", "archive", "checkpoints")
_SALT_STEP = 0x9E3779B97F4A7C15


class PlainFile:
    """An open file of a `PlainDisk`. Content is replaced, not changed, so that states can share it."""

    __slots__ = ("_disk", "_name")

    def __init__(self, disk: PlainDisk, name: str) -> None:
        self._disk = disk
        self._name = name

    def write_at(self, data: bytes, offset: int) -> None:
        content = self._disk.files[self._name]
        if len(content) < offset:
            content += bytes(offset - len(content))
        self._disk.files[self._name] = content[:offset] + data + content[offset + len(data) :]

    def read_at(self, offset: int, size: int) -> bytes:
        return self._disk.files[self._name][offset : offset + size]

    def sync(self) -> None:
        pass

    def allocate(self, size: int) -> None:
        content = self._disk.files[self._name]
        self._disk.files[self._name] = content + bytes(max(0, size - len(content)))

    def size(self) -> int:
        return len(self._disk.files[self._name])

    def truncate(self, size: int) -> None:
        content = self._disk.files[self._name]
        self._disk.files[self._name] = content[:size] + bytes(max(0, size - len(content)))

    def close(self) -> None:
        pass


class PlainLock:
    """A held lock of a `PlainDisk`."""

    def __init__(self, disk: PlainDisk) -> None:
        self._disk = disk

    def note(self, text: bytes) -> None:
        pass

    def release(self) -> None:
        self._disk.locked = False


class PlainDisk:
    """One data directory as a dict of names and bytes. The lock file is no part of it."""

    def __init__(self, files: Mapping[str, bytes], salt: int = 1) -> None:
        self.files = dict(files)
        self.locked = False
        self._salt = salt

    def open(self, name: str, *, create: bool = False, write: bool = True) -> PlainFile:
        if create:
            self.files[name] = b""
        elif name not in self.files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return PlainFile(self, name)

    def exists(self, name: str) -> bool:
        return name in self.files or name in FOLDERS or name == ""

    def list(self, folder: str) -> builtins.list[str]:
        if folder == "":
            return sorted(name for name in self.files if "/" not in name)
        start = len(folder) + 1
        return sorted(name[start:] for name in self.files if name.startswith(folder + "/"))

    def modified_ns(self, name: str) -> int:
        return 0

    def rename(self, old: str, new: str) -> None:
        self.files[new] = self.files.pop(old)

    def remove(self, name: str) -> None:
        del self.files[name]

    def make_folder(self, folder: str) -> None:
        pass

    def sync_folder(self, folder: str) -> None:
        pass

    def free_bytes(self) -> int:
        return 10**12

    def lock(self, name: str) -> PlainLock:
        if self.locked:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), name)
        self.locked = True
        return PlainLock(self)

    def process_id(self) -> int:
        return 1

    def salt(self) -> int:
        self._salt = (self._salt * 6364136223846793005 + _SALT_STEP) % 2**64
        return self._salt
