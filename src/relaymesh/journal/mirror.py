"""The mirror: a second data directory that holds the same bytes, so that losing one loses nothing.

    required     a commit is done when both directories have synced it; a failing mirror poisons the journal
    best effort  the primary alone decides; a failing or slow mirror is lost, and brought back later

A mirror is a whole data directory: it is verified, read and opened like any other. It is never
overwritten with less: a start whose primary is empty, or ends before what the mirror proves to have
been acknowledged, is refused.

The file `mirror` in the primary says where its mirror lies, so that every later start,
by any program, keeps it in step. Deleting that file ends the mirroring.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from shlex import quote
from typing import Literal

from relaymesh.errors import DirectoryError, DirectoryInUse, JournalDamaged, JournalPoisoned, MeshError
from relaymesh.journal.catch_up import bring_in_step, check_same_journal, declare_complete
from relaymesh.journal.disk import Disk, Lock
from relaymesh.journal.epoch import read_epoch
from relaymesh.journal.identity import read_mesh_id
from relaymesh.journal.layout import MIRROR, NEW, pairs_in, prepare, take_lock
from relaymesh.journal.lockstep import Lockstep, Syncing
from relaymesh.journal.pair import MirroredDisk, MirroredLock, Side
from relaymesh.journal.segment import list_segments
from relaymesh.journal.standing import standing_of
from relaymesh.journal.trailing import Trailing

__all__ = ["HeldMirror", "Mirror", "MirrorMode", "MirrorNote", "read_note"]

log = logging.getLogger("relaymesh.journal")

MirrorMode = Literal["required", "best_effort"]
QUEUE_BYTES_MAX = 64_000_000


@dataclass(frozen=True, slots=True)
class MirrorNote:
    """What the file `mirror` says: where the mirror of the directory `of` lies, and how it is kept."""

    path: str
    mode: MirrorMode
    of: str


def read_note(disk: Disk) -> MirrorNote | None:
    """The note of a data directory, None when it has no mirror."""
    pairs = pairs_in(disk, MIRROR)
    mode, path = pairs.get("mode"), pairs.get("path")
    if path is None or mode not in ("required", "best_effort"):
        return None
    return MirrorNote(path, "required" if mode == "required" else "best_effort", pairs.get("of", ""))


@dataclass(frozen=True, slots=True)
class Mirror:
    """A mirror to be kept: its disk, its mode, and how people call both directories.

    syncing: `together` syncs both disks at once and, in best effort, lets a thread follow. The others need no
    thread. queue_bytes_max: how far a best-effort mirror may be behind before it is lost.
    """

    disk: Disk
    mode: MirrorMode = "required"
    name: str = "mirror"
    of: str = "data directory"
    syncing: Syncing = "together"
    queue_bytes_max: int = QUEUE_BYTES_MAX

    def take(self, primary: Disk) -> HeldMirror:
        """Lock the mirror and see whether the primary is the one it mirrors.

        Raises `JournalDamaged` when only the mirror has data. In best effort a mirror that cannot be used
        is no reason to stop.
        """
        lock = None
        try:
            lock = self._lock()
            if not list_segments(primary) and standing_of(self.disk).has_data:
                raise JournalDamaged(
                    f"{self.of} has no journal, but its mirror {self.name} has one",
                    hint=f"relaymesh journal restore --from {quote(self.name)}",
                )
        except (OSError, MeshError) as error:
            if lock is not None:
                lock.release()
            if self.mode == "required" or isinstance(error, JournalDamaged):
                raise
            return HeldMirror(self, None, error.message if isinstance(error, MeshError) else str(error))
        return HeldMirror(self, lock, None)

    def _lock(self) -> Lock:
        try:
            prepare(self.disk)
            return take_lock(self.disk)
        except DirectoryInUse as error:
            raise DirectoryInUse(
                f"the mirror {self.name} is in use: {error.message}",
                hint="stop the process that uses it, or give this mesh a mirror of its own",
            ) from error
        except OSError as error:
            raise DirectoryError(
                f"the mirror {self.name} cannot be used: {error}",
                hint=f"mount it, or delete the file `mirror` in {self.of} to go on without it",
            ) from error

    def note(self) -> bytes:
        return f"path {self.name}\nmode {self.mode}\nof {self.of}\n".encode()


class HeldMirror:
    """A mirror taken for this process. Ends with `join`, which passes the lock on, or `release`."""

    def __init__(self, mirror: Mirror, lock: Lock | None, unusable: str | None) -> None:
        self._mirror = mirror
        self._lock = lock
        self._unusable = unusable

    @property
    def epoch(self) -> int:
        """The last epoch the mirror knows: a new one must be larger."""
        return 0 if self._unusable else read_epoch(self._mirror.disk) or 0

    @property
    def mesh_id(self) -> str | None:
        """Which mesh the mirror holds: a primary that lost its id gets it back."""
        return None if self._unusable else read_mesh_id(self._mirror.disk)

    def join(self, primary: Disk, lock: Lock, next_sequence: int) -> tuple[MirroredDisk, MirroredLock]:
        """Bring the mirror in step and make the pair. The primary was read through, to `next_sequence`."""
        mirror = self._mirror
        if self._unusable is None:
            self._check_not_ahead(primary, next_sequence)
        _write_note(primary, mirror)
        side: Side
        if mirror.mode == "required":
            assert self._lock is not None
            self._bring_in_step(primary)
            side = Lockstep(mirror.disk, mirror.name, self._lock, mirror.syncing)
        else:
            side = self._trailing(primary)
        self._lock = None
        return MirroredDisk(primary, side), MirroredLock(lock, side)

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _bring_in_step(self, primary: Disk) -> None:
        mirror = self._mirror
        try:
            check_same_journal(primary, mirror.disk)
            bring_in_step(primary, mirror.disk)
            declare_complete(mirror.disk)
        except OSError as error:
            raise JournalPoisoned(
                f"the mirror {mirror.name} could not be brought in step: {error}",
                hint=f"free or repair its disk, or go on without it: delete the file `mirror` in {mirror.of}",
            ) from error

    def _trailing(self, primary: Disk) -> Trailing:
        mirror = self._mirror
        threaded = mirror.syncing == "together"
        side = Trailing(primary, mirror.disk, mirror.name, self._lock, mirror.queue_bytes_max, threaded)
        if self._unusable is not None:
            side.lose(self._unusable)
        else:
            side.begin()
        return side

    def _check_not_ahead(self, primary: Disk, next_sequence: int) -> None:
        mirror = self._mirror
        try:
            theirs = standing_of(mirror.disk)
        except OSError as error:
            if mirror.mode == "required":
                raise
            self._unusable = str(error)
            return
        newest = max((each.name.number for each in list_segments(primary)), default=0)
        if theirs.acknowledged > next_sequence or (theirs.has_data and theirs.proven_segment > newest):
            raise JournalDamaged(
                f"{mirror.of} ends before sequence {next_sequence} in segment {newest}, but its mirror "
                f"{mirror.name} proves that everything before {theirs.acknowledged} was acknowledged",
                hint=f"relaymesh journal restore --from {quote(mirror.name)}",
            )


def _write_note(primary: Disk, mirror: Mirror) -> None:
    if read_note(primary) == MirrorNote(mirror.name, mirror.mode, mirror.of):
        return
    file = primary.open(MIRROR + NEW, create=True)
    try:
        file.write_at(mirror.note(), 0)
        file.sync()
    finally:
        file.close()
    primary.rename(MIRROR + NEW, MIRROR)
    primary.sync_folder("")
