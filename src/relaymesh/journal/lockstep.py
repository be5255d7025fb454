"""The side of a required mirror: a change is done when both directories have it.

The syncs of the live segment run at once, the mirror's in a thread of its own, so a commit waits for
the slower disk and not for the sum. Any error of the mirror is the journal's: it is poisoned.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Literal

from relaymesh.journal.disk import Disk, File, Lock
from relaymesh.journal.layout import JOURNAL, NEW
from relaymesh.journal.pair import Task

__all__ = ["Lockstep", "Syncing"]

Syncing = Literal["together", "mirror first", "primary first"]
"""How the two syncs of a commit run. `together` takes a thread; the others are for a simulation."""


class Lockstep:
    """Both or neither."""

    def __init__(self, disk: Disk, name: str, lock: Lock, syncing: Syncing) -> None:
        self._disk = disk
        self._name = name
        self._lock = lock
        self._syncing = syncing
        self._thread = _SyncThread() if syncing == "together" else None

    @property
    def state(self) -> str:
        return "in step"

    def open(self, name: str, *, create: bool) -> LockstepFile:
        try:
            file = self._disk.open(name, create=create)
        except OSError as error:
            raise self.named(error) from error
        return LockstepFile(self, file, self._beginning(name))

    def _beginning(self, name: str) -> Callable[[Callable[[], None]], Task]:
        """How a sync of this file begins: beside the primary's where commits wait for it, else behind it."""
        if not name.startswith(f"{JOURNAL}/") or name.endswith(NEW):
            return _Afterwards
        if self._thread is not None:
            return self._thread.begin
        return _Before if self._syncing == "mirror first" else _Afterwards

    def rename(self, old: str, new: str) -> None:
        self._do(lambda: self._disk.rename(old, new))

    def remove(self, name: str) -> None:
        def remove_if_there() -> None:
            if self._disk.exists(name):
                self._disk.remove(name)

        self._do(remove_if_there)

    def make_folder(self, folder: str) -> None:
        self._do(lambda: self._disk.make_folder(folder))

    def sync_folder(self, folder: str) -> None:
        self._do(lambda: self._disk.sync_folder(folder))

    def free_bytes(self, primary_free: int) -> int:
        try:
            return min(primary_free, self._disk.free_bytes())
        except OSError as error:
            raise self.named(error) from error

    def call(self, work: Callable[[Disk], object]) -> None:
        work(self._disk)

    def close(self) -> None:
        try:
            if self._thread is not None:
                self._thread.close()
        finally:
            self._lock.release()

    def named(self, error: OSError) -> OSError:
        """The same error, saying that the mirror had it."""
        return OSError(error.errno, f"{error.strerror or error} (on the mirror {self._name})", error.filename)

    def _do(self, change: Callable[[], None]) -> None:
        try:
            change()
        except OSError as error:
            raise self.named(error) from error


class LockstepFile:
    """The mirror's half of an open file."""

    __slots__ = ("_begin", "_file", "_side")

    def __init__(self, side: Lockstep, file: File, begin: Callable[[Callable[[], None]], Task]) -> None:
        self._side = side
        self._file = file
        self._begin = begin

    def write_at(self, data: bytes, offset: int) -> None:
        try:
            self._file.write_at(data, offset)
        except OSError as error:
            raise self._side.named(error) from error

    def begin_sync(self) -> Task:
        return self._begin(self._sync)

    def allocate(self, size: int) -> None:
        try:
            self._file.allocate(size)
        except OSError as error:
            raise self._side.named(error) from error

    def truncate(self, size: int) -> None:
        try:
            self._file.truncate(size)
        except OSError as error:
            raise self._side.named(error) from error

    def close(self) -> None:
        self._file.close()

    def _sync(self) -> None:
        try:
            self._file.sync()
        except OSError as error:
            raise self._side.named(error) from error


class _Before:
    """The mirror's sync first, in the caller's thread."""

    def __init__(self, work: Callable[[], None]) -> None:
        work()

    def finish(self) -> None:
        pass

    def abandon(self) -> None:
        pass


class _Afterwards:
    """The mirror's sync when the primary's is done, in the caller's thread."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work

    def finish(self) -> None:
        self._work()

    def abandon(self) -> None:
        pass


class _Beside:
    """The mirror's sync in the other thread."""

    __slots__ = ("_done", "_error", "_work")

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._error: BaseException | None = None
        self._done = threading.Lock()
        self._done.acquire()

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._error = error
        finally:
            self._done.release()

    def finish(self) -> None:
        self.abandon()
        if self._error is not None:
            raise self._error

    def abandon(self) -> None:
        self._done.acquire()


class _SyncThread:
    """One thread that does the mirror's syncs. One at a time: the writer has never two under way."""

    def __init__(self) -> None:
        self._asked: SimpleQueue[_Beside | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="relaymesh-mirror", daemon=True)
        self._thread.start()

    def begin(self, work: Callable[[], None]) -> Task:
        task = _Beside(work)
        self._asked.put(task)
        return task

    def close(self) -> None:
        self._asked.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (task := self._asked.get()) is not None:
            task.run()
