"""What is wrong on its way to the disk: frames, syncs, segments, checkpoints, the archive."""

# ruff: noqa: ARG001 - a wrong function takes what the right one takes

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relaymesh.errors import JournalPoisoned
from relaymesh.journal import archive, recovery, writer
from relaymesh.journal.disk import Disk
from relaymesh.journal.segment import LiveSegment, Located
from relaymesh.journal.writer import Writer
from relaymesh.node.checkpointing import Checkpointing
from relaymesh.testing.planted.bug import Original, at, plant


class UnsyncedNames:
    """A disk that does not make names durable."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def sync_folder(self, folder: str) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call: Callable[..., Any] = getattr(self._disk, name)
        return call


@plant(
    at(Writer, "_sync"),
    broken="a failed sync is tried again, and the second one's success believed",
    like="PostgreSQL before 11.2: fsync retried to success",
)
def sync_retried_to_success(original: Original, journal: Writer) -> None:
    try:
        original(journal)
    except JournalPoisoned:
        journal._poisoned = None
        original(journal)


@plant(
    at(writer, "write_frame"),
    broken="a write that failed halfway is ignored, and the next frame goes behind the gap",
    like="Redis: a short write leaves a log that cannot be loaded",
)
def short_write_ignored(
    original: Original, live: LiveSegment, data: bytes, crc: int, events: int, *more: Any
) -> None:
    try:
        original(live, data, crc, events, *more)
    except OSError:
        live.offset += len(data)
        live.crc = crc
        live.next_sequence += events


@plant(at(Writer, "_sync"), broken="the mark file says synced before the sync has returned")
def mark_before_sync(original: Original, journal: Writer) -> None:
    durable, journal._synced = journal._synced, journal._written
    journal._write_mark()
    journal._synced = durable
    original(journal)


@plant(
    at(writer, "next_frame"),
    broken="a frame says that the unsynced frames before it are synced",
    like="etcd #6378: reordered unsynced appends stop the start",
)
def frame_marks_unsynced(
    original: Original, live: LiveSegment, payload: bytes, events: int, mark: int, now_ns: int, *more: Any
) -> Any:
    return original(live, payload, events, live.offset, now_ns, *more)


@plant(
    at(writer, "publish_segment"),
    at(recovery, "publish_segment"),
    broken="the name of a new segment is not synced before frames go into it",
)
def segment_name_unsynced(original: Original, disk: Disk, live: LiveSegment) -> None:
    original(UnsyncedNames(disk), live)


@plant(at(Writer, "_rotate"), broken="a rotation seals the old segment without syncing its last frames")
def rotation_without_sync(original: Original, journal: Writer, now_ns: int) -> None:
    journal._synced = journal._written
    original(journal, now_ns)


@plant(
    at(Checkpointing, "_write"),
    broken="a checkpoint is taken of events that are not synced yet",
    like="etcd #17780: a crash during compaction moves sequence numbers back",
)
def checkpoint_of_unsynced(original: Original, checkpointing: Checkpointing, disk: Disk) -> Any:
    core: Any = checkpointing._core
    core.sync = lambda: None
    try:
        return original(checkpointing, disk)
    finally:
        del core.sync


@plant(at(archive, "_created_at_ns"), broken="archived segments are dropped whatever their age")
def archive_dropped_too_early(original: Original, disk: Disk, segment: Located) -> int:
    return 0
