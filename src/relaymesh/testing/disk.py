"""A simulated disk that forgets, tears and fails on request, always the same way for the same seed.

It keeps apart what a real disk keeps apart: bytes written and bytes synced, names made and
names synced. `crash()` returns the disk as the next start would find it.

    disk = MemoryDisk()
    ...                                   # run the code under test
    disk = disk.crash(Keep.SUBSET, seed=7)  # power loss: some unsynced sectors made it, some did not

`disk.faults.append(Fault("sync", nth=3, error=errno.EIO))` fails the third sync from now;
`disk.cut_power_after(12)` lets twelve changing calls through and then raises `PowerLost`;
`disk.shorten` makes the operating system write less than it was asked to; `disk.watch` is told of every
call before it is done, and may do something else meanwhile: what it writes during a sync, that sync
does not cover. `flip`, `put` and `lose` are changes to a disk without a call.
"""

from __future__ import annotations

import enum
import errno
import os
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Fault", "Keep", "MemoryDisk", "MemoryFile", "MemoryLock", "PowerLost"]

SECTOR_BYTES = 512
"""What a disk writes at once: a larger unsynced write may survive in pieces of this size."""


class PowerLost(BaseException):
    """The machine is off. Not an `Exception`: no error path of the code under test may catch it."""


class Keep(enum.Enum):
    """What of the unsynced survives a crash."""

    NOTHING = "nothing"
    EVERYTHING = "everything"  # a killed process: the page cache lives on
    PREFIX = "prefix"  # of each file's unsynced writes, in order, the first few
    SUBSET = "subset"  # any sectors of any unsynced writes, any names
    TORN = "torn"  # a prefix, and the write behind it cut at any byte


@dataclass(slots=True)
class Fault:
    """Fail the `nth` next call of this kind on a name that begins with `within`.

    `lasting` fails all calls from then on. `keep_bytes` of a failing write still arrive: a short
    write whose rest could not be written.
    """

    call: str
    nth: int = 1
    error: int = errno.EIO
    lasting: bool = False
    within: str = ""
    keep_bytes: int = 0

    def strikes(self, call: str, name: str) -> bool:
        if call != self.call or not name.startswith(self.within):
            return False
        self.nth -= 1
        return self.nth == 0 or (self.lasting and self.nth < 0)


@dataclass(frozen=True, slots=True)
class _Write:
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class _Resize:
    length: int


class _Content:
    """Bytes and a length; what lies between the last written byte and the length is zero, at no cost."""

    __slots__ = ("data", "length")

    def __init__(self, data: bytes = b"", length: int = 0) -> None:
        self.data = bytearray(data)
        self.length = max(length, len(data))

    def apply(self, change: _Write | _Resize) -> None:
        if isinstance(change, _Resize):
            self.length = change.length
            del self.data[change.length :]
            return
        end = change.offset + len(change.data)
        if len(self.data) < change.offset:
            self.data.extend(bytes(change.offset - len(self.data)))
        self.data[change.offset : end] = change.data
        self.length = max(self.length, end)

    def read(self, offset: int, size: int) -> bytes:
        size = max(0, min(size, self.length - offset))
        found = bytes(self.data[offset : offset + size])
        return found + bytes(size - len(found))


class _Inode:
    """One file apart from its name: what readers see, what is durable, and the changes in between."""

    __slots__ = ("durable", "modified_ns", "now", "unsynced")

    def __init__(self, data: bytes = b"") -> None:
        self.modified_ns = 0
        self.now = _Content(data)
        self.durable = _Content(data)
        self.unsynced: list[_Write | _Resize] = []

    def change(self, change: _Write | _Resize) -> None:
        self.now.apply(change)
        self.unsynced.append(change)

    def sync(self, covered: int) -> None:
        """Make the first so many changes durable: those that were there when the sync began."""
        for change in self.unsynced[:covered]:
            self.durable.apply(change)
        del self.unsynced[:covered]

    def after_crash(self, keep: Keep, rng: random.Random) -> bytes:
        content = _Content(bytes(self.durable.data), self.durable.length)
        for change in _surviving(self.unsynced, keep, rng):
            content.apply(change)
        return content.read(0, content.length)


@dataclass(frozen=True, slots=True)
class _Named:
    """A change of names: `old` goes, `new` comes (either may be None); a folder has no inode."""

    old: str | None
    new: str | None
    inode: _Inode | None

    def touches(self, folder: str) -> bool:
        return any(_folder_of(name) == folder for name in (self.old, self.new) if name is not None)

    def apply(self, names: dict[str, _Inode | None]) -> None:
        if self.old is not None:
            names.pop(self.old, None)
        if self.new is not None:
            names[self.new] = self.inode


def _surviving(changes: list[_Write | _Resize], keep: Keep, rng: random.Random) -> Iterable[_Write | _Resize]:
    if keep is Keep.NOTHING or not changes:
        return []
    if keep is Keep.EVERYTHING:
        return changes
    if keep is Keep.SUBSET:
        return [piece for change in changes for piece in _sectors(change) if rng.random() < 0.5]
    whole = rng.randrange(len(changes) + 1)
    kept = changes[:whole]
    if keep is Keep.TORN and whole < len(changes):
        torn = changes[whole]
        if isinstance(torn, _Write):
            kept.append(_Write(torn.offset, torn.data[: rng.randrange(len(torn.data) + 1)]))
    return kept


def _sectors(change: _Write | _Resize) -> Iterable[_Write | _Resize]:
    if isinstance(change, _Resize):
        yield change
        return
    at = 0
    while at < len(change.data):
        size = SECTOR_BYTES - (change.offset + at) % SECTOR_BYTES
        yield _Write(change.offset + at, change.data[at : at + size])
        at += size


def _folder_of(name: str) -> str:
    return name.rpartition("/")[0]


class MemoryFile:
    """An open file of a `MemoryDisk`."""

    def __init__(self, disk: MemoryDisk, name: str, inode: _Inode, writable: bool) -> None:
        self._disk = disk
        self._name = name
        self._inode = inode
        self._writable = writable
        self._open = True

    def write_at(self, data: bytes, offset: int) -> None:
        """As `RealDisk` does: what a short write left over is another write, and may fail on its own."""
        written = self._write_some(data, offset)
        while written < len(data):
            written += self._write_some(data[written:], offset + written)

    def _write_some(self, data: bytes, offset: int) -> int:
        fault = self._enter("write_at", writes=True)
        self._inode.modified_ns = self._disk.wall_ns()
        if fault is not None:
            if fault.keep_bytes:
                self._inode.change(_Write(offset, bytes(data[: fault.keep_bytes])))
            raise _error(fault.error, self._name)
        shorten = self._disk.shorten
        taken = len(data) if shorten is None else min(len(data), max(1, shorten(self._name, len(data))))
        self._inode.change(_Write(offset, bytes(data[:taken])))
        return taken

    def read_at(self, offset: int, size: int) -> bytes:
        self._enter_or_fail("read_at")
        return self._inode.now.read(offset, size)

    def sync(self) -> None:
        covered = len(self._inode.unsynced)  # another thread may add more meanwhile
        fault = self._enter("sync")
        if fault is not None:
            # As Linux does: the failed pages count as clean, and a second sync would "succeed".
            del self._inode.unsynced[:covered]
            raise _error(fault.error, self._name)
        self._inode.sync(covered)

    def allocate(self, size: int) -> None:
        self._enter_or_fail("allocate", writes=True)
        if size > self._inode.now.length:
            self._inode.change(_Resize(size))

    def size(self) -> int:
        self._enter_or_fail("size")
        return self._inode.now.length

    def truncate(self, size: int) -> None:
        self._enter_or_fail("truncate", writes=True)
        self._inode.change(_Resize(size))

    def close(self) -> None:
        self._open = False

    def _enter(self, call: str, *, writes: bool = False) -> Fault | None:
        if not self._open or (writes and not self._writable):
            raise _error(errno.EBADF, self._name)
        return self._disk.enter(call, self._name)

    def _enter_or_fail(self, call: str, *, writes: bool = False) -> None:
        fault = self._enter(call, writes=writes)
        if fault is not None:
            raise _error(fault.error, self._name)


class MemoryLock:
    """A held lock of a `MemoryDisk`."""

    def __init__(self, disk: MemoryDisk, name: str) -> None:
        self._disk = disk
        self._name = name

    def note(self, text: bytes) -> None:
        file = self._disk.open(self._name, create=True)
        file.write_at(text, 0)
        file.close()

    def release(self) -> None:
        self._disk.locked.discard(self._name)


CHANGING = frozenset(
    {"write_at", "sync", "allocate", "truncate", "create", "rename", "remove", "make_folder", "sync_folder"}
)
"""The calls that `cut_power_after` counts: between any two of them a crash may fall."""


class MemoryDisk:
    """One data directory in memory.

    free: what `free_bytes` answers; tests assign it. The disk does not enforce it: inject ENOSPC for that.
    process: what `process_id` answers.
    calls: how often each call was made. changes: how many of them were `CHANGING`.
    watch: called with the call and its file before anything is done; may raise.
    shorten: asked how many of so many bytes the next write to a file takes; None writes all.
    lost_at: the call and file at which the power went, once it has.
    wall_ns: the time of the wall clock, for `modified_ns`; tests assign a clock.
    """

    def __init__(
        self, files: Mapping[str, bytes] | None = None, *, seed: int = 0, free: int = 10**12
    ) -> None:
        self.free = free
        self.process = 1
        self.faults: list[Fault] = []
        self.calls: Counter[str] = Counter()
        self.changes = 0
        self.locked: set[str] = set()
        self.watch: Callable[[str, str], None] | None = None
        self.shorten: Callable[[str, int], int] | None = None
        self.lost_at: tuple[str, str] | None = None
        self.wall_ns: Callable[[], int] = _no_time
        self._rng = random.Random(seed)
        self._power_left: int | None = None
        self._unsynced_names: list[_Named] = []
        self._names: dict[str, _Inode | None] = {name: _Inode(data) for name, data in (files or {}).items()}
        for name in files or {}:
            folder = _folder_of(name)
            while folder:
                self._names[folder] = None
                folder = _folder_of(folder)
        self._durable_names = dict(self._names)

    # Faults

    def cut_power_after(self, changes: int) -> None:
        """Let that many changing calls through; every call after them raises `PowerLost`."""
        self._power_left = changes

    def crash(self, keep: Keep = Keep.NOTHING, *, seed: int = 0) -> MemoryDisk:
        """The disk as the next start finds it. This one is off from now on."""
        rng = random.Random(seed)
        names = dict(self._durable_names)
        for change in self._surviving_names(keep, rng):
            change.apply(names)
        alive = {name: inode for name, inode in names.items() if self._reachable(name, names)}
        files = {
            name: inode.after_crash(keep, rng) for name, inode in sorted(alive.items()) if inode is not None
        }
        after = MemoryDisk(files, seed=rng.getrandbits(64), free=self.free)
        after.wall_ns = self.wall_ns
        for name, inode in alive.items():
            if inode is not None:
                after._existing(name).modified_ns = inode.modified_ns
        for folder in (name for name, inode in alive.items() if inode is None):
            after._names[folder] = after._durable_names[folder] = None
        self._power_left = -1
        return after

    def kill(self) -> MemoryDisk:
        """The disk after a kill -9: locks gone, the page cache as it was, unsynced bytes still unsynced."""
        after = MemoryDisk(seed=self._rng.getrandbits(64), free=self.free)
        after._names, after._durable_names = self._names, self._durable_names
        after._unsynced_names = self._unsynced_names
        after.wall_ns = self.wall_ns
        self._power_left = -1
        return after

    def files(self) -> dict[str, bytes]:
        """Every file as a reader sees it now: `MemoryDisk(disk.files())` is a copy with everything synced."""
        return {
            name: inode.now.read(0, inode.now.length)
            for name, inode in self._names.items()
            if inode is not None
        }

    def enter(self, call: str, name: str) -> Fault | None:
        """Count the call; raise when the power is off; return the fault that strikes it, if any."""
        self.calls[call] += 1
        if call in CHANGING:
            self.changes += 1
            if self._power_left is not None:
                self._power_left -= 1
        if self._power_left is not None and self._power_left < 0:
            self.lost_at = self.lost_at or (call, name)
            raise PowerLost
        if self.watch is not None:
            self.watch(call, name)
        if not self.faults:
            return None
        return next((fault for fault in self.faults if fault.strikes(call, name)), None)

    # Changes without a call: nothing to sync

    def is_synced(self, name: str, offset: int, size: int) -> bool:
        """Whether these bytes of the file would be back after a power loss that keeps nothing unsynced."""
        inode = self._names.get(name)
        if inode is None or self._durable_names.get(name) is not inode:
            return False
        return inode.durable.read(offset, size) == inode.now.read(offset, size)

    def has_synced(self, name: str, size: int) -> bool:
        """Whether so many bytes of the file are durable, under whatever name."""
        inode = self._existing(name)
        return inode.durable.read(0, size) == inode.now.read(0, size)

    def content(self, name: str) -> bytes | None:
        """The file as a reader sees it now; None when there is none."""
        inode = self._names.get(name)
        return None if inode is None else inode.now.read(0, inode.now.length)

    def flip(self, name: str, offset: int, bit: int) -> None:
        """One bit of the medium is wrong from now on, for readers too."""
        inode = self._existing(name)
        for content in (inode.now, inode.durable):
            byte = content.read(offset, 1)
            content.apply(_Write(offset, bytes([byte[0] ^ 1 << bit])))

    def put(self, name: str, data: bytes) -> None:
        """The file has this content, durably; also when it was not there."""
        self._names[name] = self._durable_names[name] = _Inode(data)

    def lose(self, name: str) -> bytes | None:
        """The file is gone, durably. Returns what was in it; None when it was not there."""
        inode = self._names.pop(name, None)
        self._durable_names.pop(name, None)
        return None if inode is None else inode.now.read(0, inode.now.length)

    # The Disk port

    def open(self, name: str, *, create: bool = False, write: bool = True) -> MemoryFile:
        self._enter_or_fail("create" if create else "open", name)
        inode = self._names.get(name)
        if inode is None:
            if not create or name in self._names or not self._has_folder(_folder_of(name)):
                raise _error(errno.ENOENT, name)
            inode = _Inode()
            self._rename(_Named(None, name, inode))
        elif create:
            inode.change(_Resize(0))
        return MemoryFile(self, name, inode, write or create)

    def exists(self, name: str) -> bool:
        self._enter_or_fail("exists", name)
        return name == "" or name in self._names

    def list(self, folder: str) -> list[str]:
        self._enter_or_fail("list", folder)
        inside = [
            name for name, inode in self._names.items() if inode is not None and _folder_of(name) == folder
        ]
        return sorted(name.rpartition("/")[2] for name in inside)

    def modified_ns(self, name: str) -> int:
        self._enter_or_fail("modified_ns", name)
        return self._existing(name).modified_ns

    def rename(self, old: str, new: str) -> None:
        self._enter_or_fail("rename", old)
        inode = self._existing(old)
        if not self._has_folder(_folder_of(new)):
            raise _error(errno.ENOENT, new)
        self._rename(_Named(old, new, inode))

    def remove(self, name: str) -> None:
        self._enter_or_fail("remove", name)
        self._existing(name)
        self._rename(_Named(name, None, None))

    def make_folder(self, folder: str) -> None:
        self._enter_or_fail("make_folder", folder)
        parts = folder.split("/") if folder else []
        for depth in range(1, len(parts) + 1):
            made = "/".join(parts[:depth])
            if made not in self._names:
                self._rename(_Named(None, made, None))

    def sync_folder(self, folder: str) -> None:
        self._enter_or_fail("sync_folder", folder)
        if not self._has_folder(folder):
            raise _error(errno.ENOENT, folder)
        for change in [each for each in self._unsynced_names if each.touches(folder)]:
            change.apply(self._durable_names)
            self._unsynced_names.remove(change)

    def free_bytes(self) -> int:
        self._enter_or_fail("free_bytes", "")
        return self.free

    def lock(self, name: str) -> MemoryLock:
        self._enter_or_fail("lock", name)
        if name in self.locked:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), name)
        self.open(name, create=name not in self._names).close()
        self.locked.add(name)
        return MemoryLock(self, name)

    def process_id(self) -> int:
        return self.process

    def salt(self) -> int:
        return self._rng.getrandbits(64)

    # Inside

    def _enter_or_fail(self, call: str, name: str) -> None:
        fault = self.enter(call, name)
        if fault is not None:
            raise _error(fault.error, name)

    def _existing(self, name: str) -> _Inode:
        inode = self._names.get(name)
        if inode is None:
            raise _error(errno.ENOENT, name)
        return inode

    def _has_folder(self, folder: str) -> bool:
        return folder == "" or (folder in self._names and self._names[folder] is None)

    def _rename(self, change: _Named) -> None:
        change.apply(self._names)
        self._unsynced_names.append(change)

    def _surviving_names(self, keep: Keep, rng: random.Random) -> Sequence[_Named]:
        changes = self._unsynced_names
        if keep is Keep.NOTHING:
            return []
        if keep is Keep.EVERYTHING:
            return changes
        if keep is Keep.SUBSET:
            return [change for change in changes if rng.random() < 0.5]
        return changes[: rng.randrange(len(changes) + 1)]

    def _reachable(self, name: str, names: dict[str, _Inode | None]) -> bool:
        folder = _folder_of(name)
        return folder == "" or (folder in names and self._reachable(folder, names))


def _no_time() -> int:
    return 0


def _error(number: int, name: str) -> OSError:
    return OSError(number, os.strerror(number), name)
