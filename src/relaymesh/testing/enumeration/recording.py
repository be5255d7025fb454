"""A disk that writes down every call that changes it, and what was promised to users between two calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from relaymesh.testing.enumeration.plain import PlainDisk, PlainFile

__all__ = ["Call", "FolderSynced", "Named", "Promise", "RecordingDisk", "Resized", "Synced", "Wrote"]


class Wrote(NamedTuple):
    file: int
    offset: int
    data: bytes


class Resized(NamedTuple):
    file: int
    length: int


class Synced(NamedTuple):
    file: int


class Named(NamedTuple):
    """`old` goes, `new` comes; either may be None."""

    old: str | None
    new: str | None
    file: int


class FolderSynced(NamedTuple):
    folder: str


class Promise(NamedTuple):
    """What users know at one moment.

    tried: how many frames were handed to the writer; a recovery may show these and no other.
    kept: how many of them were synced; a recovery must show these.
    epoch: the largest one given out; the next must be larger.
    """

    tried: int
    kept: int
    epoch: int


Call = Wrote | Resized | Synced | Named | FolderSynced


class RecordedFile(PlainFile):
    """An open file of a `RecordingDisk`. Its number stays when its name changes."""

    __slots__ = ("_number", "_recorder")

    def __init__(self, disk: RecordingDisk, name: str, number: int) -> None:
        super().__init__(disk, name)
        self._recorder = disk
        self._number = number

    def write_at(self, data: bytes, offset: int) -> None:
        super().write_at(data, offset)
        self._recorder.record(Wrote(self._number, offset, bytes(data)))

    def sync(self) -> None:
        self._recorder.record(Synced(self._number))
        self._recorder.still_syncing()

    def allocate(self, size: int) -> None:
        if size > self.size():
            super().allocate(size)
            self._recorder.record(Resized(self._number, size))

    def truncate(self, size: int) -> None:
        super().truncate(size)
        self._recorder.record(Resized(self._number, size))


class RecordingDisk(PlainDisk):
    """A `PlainDisk` with a memory.

    calls: every changing call, in order. promises: the last promise told before the next call; one per
    call, and one for the moment before the first. numbers: which file has which name at the end.
    beside_sync: done once, by another thread as it were, while the next sync has not yet returned.
    """

    def __init__(self, files: Mapping[str, bytes], promise: Promise, salt: int = 1) -> None:
        super().__init__(files, salt)
        self.at_first = dict(files)
        self.calls: list[Call] = []
        self.promises = [promise]
        self.numbers = {name: number for number, name in enumerate(sorted(files))}
        self.first_numbers = dict(self.numbers)
        self.beside_sync: Callable[[], None] | None = None
        self._made = len(files)

    def record(self, call: Call) -> None:
        self.calls.append(call)
        self.promises.append(self.promises[-1])

    def tell(self, promise: Promise) -> None:
        """From now on, until the next call and after it, users know this."""
        self.promises[-1] = promise

    def still_syncing(self) -> None:
        act, self.beside_sync = self.beside_sync, None
        if act is not None:
            act()

    def open(self, name: str, *, create: bool = False, write: bool = True) -> RecordedFile:
        made = create and name not in self.files
        super().open(name, create=create, write=write)
        if made:
            self.numbers[name] = self._made
            self._made += 1
            self.record(Named(None, name, self.numbers[name]))
        elif create:
            self.record(Resized(self.numbers[name], 0))
        return RecordedFile(self, name, self.numbers[name])

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        self.numbers[new] = self.numbers.pop(old)
        self.record(Named(old, new, self.numbers[new]))

    def remove(self, name: str) -> None:
        super().remove(name)
        self.record(Named(name, None, self.numbers.pop(name)))

    def sync_folder(self, folder: str) -> None:
        self.record(FolderSynced(folder))
