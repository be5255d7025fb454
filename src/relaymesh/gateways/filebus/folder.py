"""One directory of the bus. Everything is opened below it, by a plain name, and no link is followed.

Where the system has `openat` and `O_NOFOLLOW` (Linux, macOS, BSD) a folder is a descriptor: a process that
swaps a directory for a link while we work changes nothing. Elsewhere (Windows) a folder is its path, and
what was opened is held against what was looked at. That leaves a moment in which a process that may
write into the bus directory can swap a directory of it for a link.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from pathlib import Path

from relaymesh.errors import DirectoryError, InvalidEnvelope, PayloadTooLarge
from relaymesh.modes import GROUP, PRIVATE, Modes, create_file, set_mode

HAS_DIRECTORY_FDS = (
    hasattr(os, "O_NOFOLLOW")
    and {os.open, os.stat, os.unlink, os.rename, os.mkdir, os.rmdir} <= os.supports_dir_fd
    and os.scandir in os.supports_fd
)
TEMPORARY = ".new-"
RACY_NS = 2_000_000_000
"""A directory that changed so recently may change again without its time showing it."""

SEPARATORS = "/\0\\:" if os.name == "nt" else "/\0"

_ANY = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | _ANY
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _ANY
_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _ANY


class Folder:
    """A directory of the bus. `fd` is None where the system has no descriptors of directories."""

    def __init__(self, path: Path, fd: int | None) -> None:
        self.path = path
        self.fd = fd
        self._listed_at = -1
        self._files: tuple[str, ...] = ()
        self._others: tuple[str, ...] = ()

    # -- opening

    @classmethod
    def root(cls, path: Path, *, descriptors: bool = HAS_DIRECTORY_FDS) -> Folder:
        """The bus directory: the one path that comes from outside. It must not be a link itself."""
        if descriptors:
            return cls(path, _opened(path, None))
        _look_at(path)
        return cls(path, None)

    def folder(self, name: str, *, make: bool = False, mode: int | None = None) -> Folder:
        """A directory in this one. Raises `DirectoryError` if it is a link, or no directory.

        One that is made has this mode; None: for those for whom this one is.
        """
        at, path = self._at(name), self.path / name
        wanted = self.modes.folder if mode is None else mode
        made = make and self._make(at, wanted)
        if self.fd is not None:
            descriptor = _opened(Path(at), self.fd, path)
            if made:
                set_mode(descriptor, wanted, str(path))
            return Folder(path, descriptor)
        _look_at(path)
        return Folder(path, None)

    def _make(self, at: str, mode: int) -> bool:
        """False: it was there already."""
        try:
            os.mkdir(at, mode, dir_fd=self.fd)
        except FileExistsError:
            return False
        return True

    @property
    def modes(self) -> Modes:
        """For whom new files here are: the group, where this directory lets the group write."""
        return GROUP if self.status().st_mode & stat.S_IWGRP else PRIVATE

    def close(self) -> None:
        descriptor, self.fd = self.fd, None
        if descriptor is not None:
            os.close(descriptor)

    # -- looking

    def status(self) -> os.stat_result:
        return os.lstat(self.path) if self.fd is None else os.fstat(self.fd)

    def stat(self, name: str) -> os.stat_result | None:
        """Of the name itself, never of what it links to. None: it is not there."""
        try:
            return os.stat(self._at(name), dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def files(self, *, anew: bool = False) -> tuple[str, ...]:
        """Names of the plain files here, sorted. Read only when the directory changed, or `anew`."""
        changed = self.status().st_mtime_ns
        if anew or changed != self._listed_at:
            now = time.time_ns()
            files: list[str] = []
            others: list[str] = []
            with os.scandir(self.path if self.fd is None else self.fd) as entries:
                for entry in entries:
                    (files if entry.is_file(follow_symlinks=False) else others).append(entry.name)
            self._files, self._others = tuple(sorted(files)), tuple(sorted(others))
            self._listed_at = changed if self.fd is not None and now - changed > RACY_NS else -1
        return self._files

    def others(self, *, anew: bool = False) -> tuple[str, ...]:
        """Names of what is no plain file here: directories, links, pipes, devices."""
        self.files(anew=anew)
        return self._others

    def read(self, name: str, limit: int, owners: frozenset[int]) -> tuple[bytes, os.stat_result] | None:
        """The bytes of a plain file, and what it was when they had been read. None: it is not there.

        Nothing is read of what is no plain file, has a second name, is another user's, can be written by
        every user, or is larger than `limit`: `InvalidEnvelope` or `PayloadTooLarge`.
        """
        seen = self.stat(name)
        if seen is None:
            return None
        where = f"{self.path.name}/{name}"
        check_plain(seen, where, owners)
        if seen.st_size > limit:
            raise PayloadTooLarge(f"{where} has {seen.st_size} bytes; the limit is {limit}")
        try:
            descriptor = os.open(self._at(name), _READ, dir_fd=self.fd)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InvalidEnvelope(f"{where} cannot be read: {error.strerror}") from error
        try:
            opened = os.fstat(descriptor)
            if (opened.st_dev, opened.st_ino) != (seen.st_dev, seen.st_ino):
                raise InvalidEnvelope(f"{where} was replaced by another file while it was looked at")
            data = _read_all(descriptor, limit + 1)
            if len(data) > limit:
                raise PayloadTooLarge(f"{where} grew beyond the limit of {limit} bytes while it was read")
            return data, os.fstat(descriptor)
        finally:
            os.close(descriptor)

    # -- changing

    def write(self, name: str, data: bytes) -> None:
        """A whole file under its name, or none: written under another name first, then renamed."""
        new = TEMPORARY + name
        self.remove(new)
        descriptor = create_file(self._at(new), _CREATE, self.modes.file, dir_fd=self.fd)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
        finally:
            os.close(descriptor)
        self.move(new, self, name)

    def move(self, name: str, to: Folder, new: str | None = None) -> bool:
        """Rename, atomically, into another folder of the bus. False: another process was first."""
        try:
            os.replace(
                self._at(name), to._at(name if new is None else new), src_dir_fd=self.fd, dst_dir_fd=to.fd
            )
        except FileNotFoundError:
            return False
        return True

    def remove(self, name: str) -> bool:
        """False: it was not there."""
        try:
            os.unlink(self._at(name), dir_fd=self.fd)
        except FileNotFoundError:
            return False
        return True

    def remove_folder(self, name: str) -> None:
        """An empty one."""
        os.rmdir(self._at(name), dir_fd=self.fd)

    def _at(self, name: str) -> str:
        if not name or name in {".", ".."} or any(each in name for each in SEPARATORS):
            raise ValueError(f"{name!r} is no plain name in {self.path}")
        return name if self.fd is not None else str(self.path / name)


def check_plain(seen: os.stat_result, where: str, owners: frozenset[int]) -> None:
    """Whether it is a file to be read at all: ours, by one name, and no gate to somewhere else."""
    if not stat.S_ISREG(seen.st_mode):
        raise InvalidEnvelope(f"{where} is {kind_of(seen.st_mode)}", hint="write a plain file in its place")
    if seen.st_nlink > 1:
        raise InvalidEnvelope(
            f"{where} has {seen.st_nlink} names (hard links)", hint="copy the data into a file of its own"
        )
    if hasattr(os, "geteuid"):
        if seen.st_uid not in owners:
            raise InvalidEnvelope(
                f"{where} belongs to user {seen.st_uid}",
                hint="allow that user: relaymesh bus run --owner UID",
            )
        if seen.st_mode & stat.S_IWOTH:
            raise InvalidEnvelope(f"{where} can be written by every user", hint="use umask 077 or chmod o-w")


def kind_of(mode: int) -> str:
    for test, name in (
        (stat.S_ISLNK, "a symbolic link"),
        (stat.S_ISDIR, "a directory"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    ):
        if test(mode):
            return name
    return "no plain file"


def _opened(path: Path, parent: int | None, shown: Path | None = None) -> int:
    try:
        return os.open(path, _DIRECTORY, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise _no_directory(shown or path) from error
        raise


def _look_at(path: Path) -> None:
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        raise _no_directory(path)


def _no_directory(path: Path) -> DirectoryError:
    return DirectoryError(
        f"{path} is no directory, or a link to one", hint="the file bus follows no links: make it a directory"
    )


def _read_all(descriptor: int, most: int) -> bytes:
    parts = []
    while most > 0 and (part := os.read(descriptor, min(most, 1 << 20))):
        parts.append(part)
        most -= len(part)
    return b"".join(parts)
