"""The side of a best-effort mirror: the primary alone decides, the mirror follows as well as it can.

Changes are queued and made by a thread of its own, in order. A mirror that fails, or falls further behind
than the queue holds, is lost: the journal goes on without it, says so once, and brings it back by
copying. That is tried at the start and at each rotation and checkpoint.

Coming back is done while the journal runs. Everything old is copied first; then changes are queued again,
and what the newest files got in between is copied once more. So a queued change may find its effect
already there, which is why each may be made twice.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from relaymesh.errors import MeshError
from relaymesh.journal.bell import Bell
from relaymesh.journal.catch_up import bring_in_step, check_same_journal, declare_complete, lacks
from relaymesh.journal.copying import copy_file
from relaymesh.journal.disk import Disk, File, Lock
from relaymesh.journal.layout import MARK, NEW, prepare, take_lock
from relaymesh.journal.standing import standing_of

__all__ = ["Trailing"]

log = logging.getLogger("relaymesh.journal")

CLOSE_SECONDS_MAX = 10.0
"""How long a close waits for a mirror that is behind."""
_WAKE_BYTES = 1_000_000
_CHANGE_BYTES = 200  # what a queued change takes beside its data


class Change(NamedTuple):
    """One queued change: what it is, to which file, how to make it."""

    kind: str
    name: str
    make: Callable[[], None]
    bytes: int = 0


class Trailing:
    """A mirror that follows. `threaded=False` makes each change at once, for one thread that simulates."""

    def __init__(
        self, primary: Disk, disk: Disk, name: str, lock: Lock | None, queue_bytes_max: int, threaded: bool
    ) -> None:
        self._primary = primary
        self._disk = disk
        self._name = name
        self._lock = lock
        self._queue_bytes_max = queue_bytes_max
        self._guard = threading.Lock()
        self._queue: deque[Change] = deque()
        self._behind = 0
        self._attached = False
        self._asked = False
        self._closing = False
        self._lost: str | None = None
        self._files: dict[str, File] = {}
        self._wake = Bell()
        self._thread: threading.Thread | None = None
        if threaded:
            self._thread = threading.Thread(target=self._run, name="relaymesh-mirror", daemon=True)
            self._thread.start()

    @property
    def state(self) -> str:
        if self._lost is not None:
            return f"lost: {self._lost}"
        if not self._attached:
            return "catching up"
        return f"behind {self._behind} bytes" if self._behind else "in step"

    def begin(self) -> None:
        """Take up the mirror before anything is written: at once when it lacks nothing, else by copying.

        So an ordinary restart leaves it usable at every moment, and a new mirror does not hold up the start.
        """
        try:
            check_same_journal(self._primary, self._disk)
            if not lacks(standing_of(self._primary), standing_of(self._disk)):
                bring_in_step(self._primary, self._disk)
                declare_complete(self._disk)
                self._attached = True
        except MeshError as error:
            self.lose(error.message)
        except OSError as error:
            self.lose(str(error))
        else:
            self.come_back()

    def come_back(self) -> None:
        """Have the mirror brought in step, unless it is."""
        if self._attached or self._closing:
            return
        self._asked = True
        self._go_on()

    def lose(self, why: str) -> None:
        with self._guard:
            said = self._lost is not None
            self._lost = why
            self._attached = False
            self._queue.clear()
            self._behind = 0
        if not said:
            log.warning("the mirror %s is lost: %s; the journal goes on without it", self._name, why)

    # The side of a pair

    def open(self, name: str, *, create: bool) -> TrailingFile:
        if create:
            self.post("create", name, lambda: self._create(name))
        return TrailingFile(self, name)

    def rename(self, old: str, new: str) -> None:
        self.post("rename", old, lambda: self._rename(old, new))
        if self._lost is not None:
            self.come_back()  # a rotation or a checkpoint: a good moment to try again

    def remove(self, name: str) -> None:
        self.post("remove", name, lambda: self._remove(name))

    def make_folder(self, folder: str) -> None:
        self.post("make_folder", folder, lambda: self._disk.make_folder(folder))

    def sync_folder(self, folder: str) -> None:
        self.post("sync_folder", folder, lambda: self._disk.sync_folder(folder))

    def free_bytes(self, primary_free: int) -> int:
        return primary_free

    def call(self, work: Callable[[Disk], object]) -> None:
        def do() -> None:
            work(self._disk)

        self.post("call", "", do)

    def close(self) -> None:
        self._closing = True
        if self._thread is None:
            self._end()
            return
        self._wake.ring()
        self._thread.join(CLOSE_SECONDS_MAX)
        if self._thread.is_alive():
            self.lose(f"it was still behind {CLOSE_SECONDS_MAX:g} s after the close")

    def post(self, kind: str, name: str, make: Callable[[], None], size: int = 0) -> None:
        """Queue a change. Never waits for the mirror, and wakes it for writes only when they are many."""
        if not self._attached:
            return
        with self._guard:
            if not self._attached:
                return
            self._behind += size + _CHANGE_BYTES
            full = self._behind > self._queue_bytes_max
            if not full:
                self._queue.append(Change(kind, name, make, size + _CHANGE_BYTES))
            waits = kind in ("write", "allocate") and name != MARK and self._behind < _WAKE_BYTES
        if full:
            self.lose(f"too slow: more than {self._queue_bytes_max} bytes behind")
        if full or not waits or self._thread is None:
            self._go_on()

    def file(self, name: str) -> File | None:
        """The mirror's open file; None for an unfinished one that was begun before the mirror came back."""
        file = self._files.get(name)
        if file is None:
            if name.endswith(NEW) and not self._disk.exists(name):
                return None
            file = self._files[name] = self._disk.open(name)
        return file

    # The mirror's own thread

    def _go_on(self) -> None:
        if self._thread is None:
            self._work()
        else:
            self._wake.ring()

    def _run(self) -> None:
        try:
            while not self._closing:
                self._wake.wait()
                self._work()
            self._work()
        finally:
            self._end()

    def _work(self) -> None:
        try:
            if self._asked:
                self._asked = False
                self._catch_up()
            while self._queue:
                self._make_queued()
        except MeshError as error:
            self.lose(error.message)
        except OSError as error:
            self.lose(str(error))
        except Exception as error:  # the journal must not depend on the mirror, whatever goes wrong here
            log.exception("the mirror %s failed", self._name)
            self.lose(repr(error))
        if not self._attached:
            self._close_files()

    def _catch_up(self) -> None:
        self._close_files()
        if self._lock is None:
            prepare(self._disk)
            self._lock = take_lock(self._disk)
        check_same_journal(self._primary, self._disk)
        bring_in_step(self._primary, self._disk, with_live=False)
        with self._guard:
            self._attached = True
        bring_in_step(self._primary, self._disk)
        self.post_last("complete", lambda: declare_complete(self._disk))
        if self._lost is not None and self._attached:
            log.warning("the mirror %s is back", self._name)
            self._lost = None

    def post_last(self, kind: str, make: Callable[[], None]) -> None:
        """Queue what is to be done when everything queued so far is made."""
        with self._guard:
            if self._attached:
                self._queue.append(Change(kind, "", make))

    def _make_queued(self) -> None:
        with self._guard:
            batch, self._queue = self._queue, deque()
        for change in without_repeats(batch):
            if not self._attached:
                return
            change.make()
        with self._guard:
            if self._attached:
                self._behind -= sum(change.bytes for change in batch)

    def _create(self, name: str) -> None:
        self._close_file(name)
        self._files[name] = self._disk.open(name, create=True)

    def _rename(self, old: str, new: str) -> None:
        self._close_file(old)
        self._close_file(new)
        if self._disk.exists(old):
            self._disk.rename(old, new)
        elif not self._disk.exists(new):
            copy_file(self._primary, new, self._disk)

    def _remove(self, name: str) -> None:
        self._close_file(name)
        if self._disk.exists(name):
            self._disk.remove(name)

    def _close_file(self, name: str) -> None:
        file = self._files.pop(name, None)
        if file is not None:
            file.close()

    def _close_files(self) -> None:
        for name in list(self._files):
            self._close_file(name)

    def _end(self) -> None:
        self._close_files()
        if self._lock is not None:
            self._lock.release()
            self._lock = None


class TrailingFile:
    """The mirror's half of an open file: only its name, until the mirror's thread opens it."""

    __slots__ = ("_name", "_side")

    def __init__(self, side: Trailing, name: str) -> None:
        self._side = side
        self._name = name

    def write_at(self, data: bytes, offset: int) -> None:
        self._post("write", lambda file: file.write_at(data, offset), len(data))

    def begin_sync(self) -> _NothingToWaitFor:
        self._post("sync", lambda file: file.sync())
        return _NothingToWaitFor()

    def allocate(self, size: int) -> None:
        self._post("allocate", lambda file: file.allocate(size))

    def truncate(self, size: int) -> None:
        self._post("truncate", lambda file: file.truncate(size))

    def close(self) -> None:
        side, name = self._side, self._name
        side.post("close", name, lambda: side._close_file(name))

    def _post(self, kind: str, make: Callable[[File], None], size: int = 0) -> None:
        side, name = self._side, self._name

        def make_on_file() -> None:
            file = side.file(name)
            if file is not None:
                make(file)

        side.post(kind, name, make_on_file, size)


class _NothingToWaitFor:
    def finish(self) -> None:
        pass

    def abandon(self) -> None:
        pass


def without_repeats(batch: Iterable[Change]) -> list[Change]:
    """The batch without syncs and marks that a later one makes needless: a slow mirror catches up by it.

    Of the marks only the last is written, and never before the last sync that came before it.
    """
    kept: list[Change] = []
    later_mark = False
    later_syncs: set[str] = set()
    for change in reversed(list(batch)):
        if change.kind == "write" and change.name == MARK:
            if later_mark:
                continue
            later_mark = True
            later_syncs.clear()
        elif change.kind == "sync":
            if change.name in later_syncs:
                continue
            later_syncs.add(change.name)
        elif change.kind not in ("write", "allocate"):
            later_syncs.clear()
        kept.append(change)
    return kept[::-1]
