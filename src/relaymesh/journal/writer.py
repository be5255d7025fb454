"""The writer: appends frames to the live segment, syncs them, and never hides a failure.

One thread may be in `append` while another is in `sync`: an append takes no lock, except to
rotate, which waits for a running sync. What was appended before `sync` began is durable when it returns.

A failed write or sync is final: the kernel may have dropped the pages and a second sync would
report success without them. The writer is poisoned; only a new recovery tells what is durable.
"""

from __future__ import annotations

import logging
import threading

from relaymesh.errors import Closed, JournalPoisoned
from relaymesh.journal.disk import Disk, File, Lock, is_full
from relaymesh.journal.frame import HEADER_BYTES, PAYLOAD_BYTES_MAX
from relaymesh.journal.layout import JOURNAL, NEW
from relaymesh.journal.mark import Mark, open_mark
from relaymesh.journal.pair import MirroredDisk
from relaymesh.journal.segment import (
    HEAD_BYTES,
    LiveSegment,
    Seal,
    SegmentName,
    give_back_zeros,
    make_segment,
    next_frame,
    publish_segment,
    write_frame,
)
from relaymesh.journal.settings import JournalSettings

__all__ = ["Writer"]

log = logging.getLogger("relaymesh.journal")

_PROBE = f"{JOURNAL}/room{NEW}"


class Writer:
    """Owns the live segment and the directory's lock until `close`. Made by `Recovery.open_writer`.

    Everything in `live` must be durable already.
    """

    def __init__(self, disk: Disk, settings: JournalSettings, live: LiveSegment, lock: Lock) -> None:
        self._disk = disk
        self._settings = settings
        self._live = live
        self._lock = lock
        self._process = disk.process_id()
        self._syncing = threading.Lock()
        self._poisoned: JournalPoisoned | None = None
        self._closed = False
        self._bytes_written = 0
        self._checkpoint_bytes = settings.checkpoint_reserve_bytes
        self._free = 0
        self._free_asked_at = 0
        self._short_of_space = False
        # Offset and sequence of one position, replaced together: the other thread must not see half a step.
        self._written = (live.offset, live.next_sequence)
        self._synced = self._written
        self._mark_file: File = open_mark(disk)
        try:
            self._write_mark()
        except BaseException:
            self._mark_file.close()
            raise

    @property
    def next_sequence(self) -> int:
        """The sequence the next appended event gets."""
        return self._written[1]

    @property
    def written(self) -> int:
        """Every event below this sequence is written (not yet synced)."""
        return self._written[1]

    @property
    def synced(self) -> int:
        """Every event below this sequence is durable."""
        return self._synced[1]

    @property
    def epoch(self) -> int:
        return self._live.epoch

    @property
    def poisoned(self) -> JournalPoisoned | None:
        """The failure that ended this writer, if one did."""
        return self._poisoned

    @property
    def bytes_written(self) -> int:
        """Bytes of all frames appended by this writer."""
        return self._bytes_written

    @property
    def segment(self) -> str:
        """The name of the live segment."""
        return self._live.name.file

    @property
    def mirror_state(self) -> str | None:
        """`in step`, `behind N bytes`, `catching up` or `lost: why`; None without a mirror."""
        return self._disk.mirror_state if isinstance(self._disk, MirroredDisk) else None

    def append(self, payload: bytes, events: int, now_ns: int, before: bytes = b"") -> None:
        """Write one frame of `events` events, the first of which gets `next_sequence`.

        `before`: what its payload begins with, so that a long one need not be copied to get it.

        Raises `JournalPoisoned` when this or an earlier write failed: then the frame may or may not be
        found by the next recovery. Nothing but that is ever partly done.
        """
        self._check_usable()
        size = HEADER_BYTES + len(before) + len(payload)
        if events < 1 or size > HEADER_BYTES + PAYLOAD_BYTES_MAX:
            raise ValueError(f"no frame can hold {events} events in {len(payload)} bytes")
        live = self._live
        if live.offset + size > self._settings.segment_bytes_max and live.offset > HEAD_BYTES:
            self._rotate(now_ns)
            live = self._live
        if live.offset + size > live.allocated and self._settings.allocate_bytes:
            self._allocate(live, live.offset + size)
        data, crc = next_frame(live, payload, events, self._synced[0], now_ns, before)
        zeros = self._zeros(live, live.offset + size) if live.offset + size > live.zeroed else 0
        try:
            write_frame(live, data, crc, events, zeros)
        except OSError as error:
            raise self._poison(f"writing to {live.path} failed: {error}") from error
        self._bytes_written += size
        self._written = (live.offset, live.next_sequence)

    @property
    def at_hand(self) -> int:
        """Bytes that can be appended without asking the disk for anything but to take them.

        They go where zeros were written before, in pages that are in memory.
        """
        return 0 if isinstance(self._disk, MirroredDisk) else max(0, self._live.zeroed - self._live.offset)

    def sync(self) -> int:
        """Make everything appended before this call durable; returns `synced`. Free when nothing is new."""
        self._check_usable()
        with self._syncing:
            self._check_usable()
            self._sync()
        return self._synced[1]

    def room(self, bytes_needed: int = 0) -> bool:
        """Whether publishes of that size may be accepted; if not, the rest is for acks and checkpoints.

        The disk is asked now and then (`room_refresh_bytes`), but each time while space is short, so that
        freed space is noticed without a restart. May be asked from any thread.
        """
        self._check_usable()
        floor = self._settings.allocate_bytes + self._checkpoint_bytes + bytes_needed
        fresh = self._bytes_written < self._free_asked_at + self._settings.room_refresh_bytes
        if fresh and self._free >= floor and not self._short_of_space:
            return True
        return self._ask_for_room(floor)

    def reserve_for_checkpoint(self, bytes_expected: int) -> None:
        """Say how large the next checkpoint may get; `room` keeps that much free, at least the setting's."""
        self._checkpoint_bytes = max(bytes_expected, self._settings.checkpoint_reserve_bytes)

    def close(self) -> None:
        """Sync, also the mark, and give the directory free. In a forked child it only forgets."""
        if self._closed:
            return
        self._closed = True
        if self._process != self._disk.process_id():
            return
        with self._syncing:
            try:
                if self._poisoned is None:
                    self._sync()
                    self._mark_file.sync()
            except OSError as error:
                raise self._poison(f"syncing the mark failed: {error}") from error
            finally:
                self._live.file.close()
                self._mark_file.close()
                self._lock.release()

    def _check_usable(self) -> None:
        if self._poisoned is not None:
            raise JournalPoisoned(self._poisoned.message)
        if self._closed:
            raise Closed("this mesh is closed: its journal takes no more records")
        if self._process != self._disk.process_id():
            raise Closed(
                "the journal belongs to the process that opened it, and this one was forked from it",
                hint="open a Mesh of its own in the child, after the fork",
            )

    def _poison(self, message: str) -> JournalPoisoned:
        self._poisoned = JournalPoisoned(message)
        log.error("journal poisoned: %s", message)
        return JournalPoisoned(message)

    def _sync(self) -> None:
        """Sync the live segment and move the mark. Needs `_syncing`, which also keeps rotation away."""
        covered = self._written
        if covered == self._synced:
            return
        try:
            self._live.file.sync()
        except OSError as error:
            raise self._poison(f"syncing {self._live.path} failed: {error}") from error
        self._synced = covered
        self._write_mark()

    def _write_mark(self) -> None:
        offset, sequence = self._synced
        mark = Mark(self._live.epoch, self._live.name.number, offset, sequence)
        try:
            self._mark_file.write_at(mark.encode(), 0)
        except OSError as error:
            raise self._poison(f"writing the mark failed: {error}") from error

    def _rotate(self, now_ns: int) -> None:
        """Go on in a new segment that seals this one; on a full disk stay here, however large it gets."""
        if self._short_of_space and not self.room():
            return
        with self._syncing:
            self._check_usable()
            self._sync()
            old = self._live
            try:
                live = make_segment(
                    self._disk,
                    SegmentName(old.name.number + 1, old.next_sequence),
                    seal=Seal(old.name, old.offset, old.crc),
                    epoch=old.epoch,
                    now_ns=now_ns,
                    allocate_bytes=self._settings.allocate_bytes,
                )
            except OSError as error:
                if not is_full(error):
                    raise self._poison(f"making the segment behind {old.path} failed: {error}") from error
                self._notice_full()
                return
            try:
                publish_segment(self._disk, live)
            except OSError as error:
                raise self._poison(f"changing from {old.path} to {live.path} failed: {error}") from error
            old.file.close()
            give_back_zeros(self._disk, old.path, old.offset)
            self._live = live
            self._written = self._synced = (live.offset, live.next_sequence)
            self._write_mark()
        self._free_asked_at = -self._settings.room_refresh_bytes  # ask again: a step was just allocated

    def _allocate(self, live: LiveSegment, end: int) -> None:
        """Have the next step of the file reserved. A full disk is no failure yet: the frame may still fit."""
        step_end = min(live.allocated + self._settings.allocate_bytes, self._settings.segment_bytes_max)
        live.allocated = max(end, step_end)
        try:
            live.file.allocate(live.allocated)
        except OSError as error:
            if not is_full(error):
                raise self._poison(f"allocating {live.path} failed: {error}") from error
            self._notice_full()

    def _zeros(self, live: LiveSegment, end: int) -> int:
        """How many zeros to write behind the frame: never beyond what is surely allocated."""
        if self._short_of_space:
            return 0
        zeros = max(0, min(self._settings.zero_ahead_bytes, live.allocated - end))
        live.zeroed = end + zeros
        return zeros

    def _notice_full(self) -> None:
        if not self._short_of_space:
            log.warning("the disk is full: publishes are refused until there is room again")
        self._short_of_space = True

    def _ask_for_room(self, floor: int) -> bool:
        """Ask the disk. A failure here touched no data: it means no room, not a poisoned journal."""
        self._free_asked_at = self._bytes_written
        try:
            self._free = self._disk.free_bytes()
            if self._free >= floor and self._short_of_space:
                with self._syncing:  # one prober at a time, and none beside a rotation
                    self._probe()
                self._short_of_space = False
        except OSError as error:
            log.warning("asking the disk for room failed: %s", error)
            return False
        return self._free >= floor

    def _probe(self) -> None:
        """Allocate the next step in a file of its own: a quota may refuse what free space promises."""
        file = self._disk.open(_PROBE, create=True)
        try:
            file.allocate(self._settings.allocate_bytes)
        finally:
            file.close()
            self._disk.remove(_PROBE)
