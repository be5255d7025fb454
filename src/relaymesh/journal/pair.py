"""Two data directories behind one Disk port: the primary, and a side that gets every change as well.

Everything above the port (writer, rotation, checkpoints, archive, retention) works on the pair as on
one disk, so the mirror holds the same bytes under the same names without any of them knowing it.
Reads come from the primary. What a change on the side means is the side's to say: `lockstep.py`
makes it part of the call, `trailing.py` lets it follow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from relaymesh.journal.disk import Disk, File, Lock

__all__ = ["MirroredDisk", "MirroredLock", "Side", "SideFile", "Task"]


class Task(Protocol):
    """A sync of the side that runs beside the primary's."""

    def finish(self) -> None:
        """Return once the sync is done, or raise its `OSError`."""

    def abandon(self) -> None:
        """The primary's sync failed: wait until nothing runs any more; the outcome is not needed."""


class SideFile(Protocol):
    """The side's half of an open file."""

    def write_at(self, data: bytes, offset: int) -> None: ...

    def begin_sync(self) -> Task: ...

    def allocate(self, size: int) -> None: ...

    def truncate(self, size: int) -> None: ...

    def close(self) -> None: ...


class Side(Protocol):
    """The mirror's end of a pair. Each change was made on the primary just before."""

    @property
    def state(self) -> str:
        """`in step`, `behind N bytes`, `catching up`, or `lost: why`."""

    def open(self, name: str, *, create: bool) -> SideFile: ...

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, name: str) -> None: ...

    def make_folder(self, folder: str) -> None: ...

    def sync_folder(self, folder: str) -> None: ...

    def free_bytes(self, primary_free: int) -> int:
        """How much the pair may still write."""

    def call(self, work: Callable[[Disk], object]) -> None:
        """Have something done to the mirror alone, in its turn."""

    def close(self) -> None:
        """Finish what is under way and give the mirror free."""


class MirroredFile:
    """One file, open for writing in both directories."""

    __slots__ = ("_primary", "_side")

    def __init__(self, primary: File, side: SideFile) -> None:
        self._primary = primary
        self._side = side

    def write_at(self, data: bytes, offset: int) -> None:
        self._primary.write_at(data, offset)
        self._side.write_at(data, offset)

    def read_at(self, offset: int, size: int) -> bytes:
        return self._primary.read_at(offset, size)

    def sync(self) -> None:
        task = self._side.begin_sync()
        try:
            self._primary.sync()
        except BaseException:
            task.abandon()
            raise
        task.finish()

    def allocate(self, size: int) -> None:
        self._primary.allocate(size)
        self._side.allocate(size)

    def size(self) -> int:
        return self._primary.size()

    def truncate(self, size: int) -> None:
        self._primary.truncate(size)
        self._side.truncate(size)

    def close(self) -> None:
        try:
            self._primary.close()
        finally:
            self._side.close()


class MirroredDisk:
    """The pair. The primary goes first in everything, so that the mirror never leads by a name."""

    def __init__(self, primary: Disk, side: Side) -> None:
        self.primary = primary
        self._side = side

    @property
    def mirror_state(self) -> str:
        return self._side.state

    def on_mirror(self, work: Callable[[Disk], object]) -> None:
        """Have something done to the mirror's own directory."""
        self._side.call(work)

    def open(self, name: str, *, create: bool = False, write: bool = True) -> File:
        file = self.primary.open(name, create=create, write=write)
        if not (create or write):
            return file
        try:
            return MirroredFile(file, self._side.open(name, create=create))
        except BaseException:
            file.close()
            raise

    def exists(self, name: str) -> bool:
        return self.primary.exists(name)

    def list(self, folder: str) -> list[str]:
        return self.primary.list(folder)

    def modified_ns(self, name: str) -> int:
        return self.primary.modified_ns(name)

    def rename(self, old: str, new: str) -> None:
        self.primary.rename(old, new)
        self._side.rename(old, new)

    def remove(self, name: str) -> None:
        self.primary.remove(name)
        self._side.remove(name)

    def make_folder(self, folder: str) -> None:
        self.primary.make_folder(folder)
        self._side.make_folder(folder)

    def sync_folder(self, folder: str) -> None:
        self.primary.sync_folder(folder)
        self._side.sync_folder(folder)

    def free_bytes(self) -> int:
        return self._side.free_bytes(self.primary.free_bytes())

    def lock(self, name: str) -> Lock:
        return self.primary.lock(name)

    def process_id(self) -> int:
        return self.primary.process_id()

    def salt(self) -> int:
        return self.primary.salt()


class MirroredLock:
    """Both directories held: the mirror is given free first, when the side has ended."""

    def __init__(self, primary: Lock, side: Side) -> None:
        self._primary = primary
        self._side = side

    def note(self, text: bytes) -> None:
        self._primary.note(text)

    def release(self) -> None:
        try:
            self._side.close()
        finally:
            self._primary.release()
