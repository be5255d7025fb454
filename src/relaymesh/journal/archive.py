"""The archive: segments that no kept checkpoint needs, until retention drops them.

A segment is behind a sequence when the segment after it begins at or before that sequence; the
names alone say so.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from relaymesh.errors import DirectoryError, JournalDamaged
from relaymesh.journal.checkpoint import KEPT, list_checkpoints, read_checkpoint
from relaymesh.journal.disk import Disk
from relaymesh.journal.frame import BadFrame
from relaymesh.journal.layout import ARCHIVE, JOURNAL
from relaymesh.journal.segment import Located, list_segments
from relaymesh.journal.verdict import Damage, read_head

__all__ = ["Hold", "Old", "archive_behind", "drop_archived", "old_segments", "waiting_bytes"]

log = logging.getLogger("relaymesh.journal")


def archive_behind(disk: Disk, sequence: int) -> list[str]:
    """Move the segments behind `sequence` AND behind the older of two kept checkpoints; returns their names.

    With fewer than two checkpoints nothing moves. The older one stays a fallback that needs no archive.
    """
    try:
        kept = list_checkpoints(disk)[:KEPT]
        if len(kept) < KEPT:
            return []
        moved = [each for each in _behind(disk, min(sequence, *kept)) if each.folder == JOURNAL]
        for segment in moved:
            disk.rename(segment.path, f"{ARCHIVE}/{segment.name.file}")
        if moved:
            disk.sync_folder(ARCHIVE)  # the new names before the loss of the old ones
            disk.sync_folder(JOURNAL)
    except OSError as error:
        raise DirectoryError(f"archiving failed: {error}") from error
    return [segment.name.file for segment in moved]


@dataclass(frozen=True, slots=True)
class Hold:
    """What is kept beyond its time for a consumer that has not got it, and where that ends.

    sequence: events from here on are still to be got.
    before_ns: what is older than this is not held any more.
    bytes_max: nor is more held than this; the oldest goes first.
    """

    sequence: int
    before_ns: int
    bytes_max: int


def drop_archived(disk: Disk, before_ns: int, hold: Hold | None = None) -> list[str]:
    """Delete archived segments whose frames are all older than `before_ns`; returns their names.

    Not those that `hold` keeps. Only while both kept checkpoints read back whole: a damaged one may need the
    archive, and the journal is never deleted on the word of a file that cannot be read.
    """
    dropped: list[str] = []
    try:
        kept = list_checkpoints(disk)[:KEPT]
        if len(kept) < KEPT or not all(_is_whole(disk, sequence) for sequence in kept):
            return []
        old = old_segments(disk, min(kept), before_ns)
        waiting = waiting_bytes(disk, old, hold)
        for segment, successor, created_ns in old:
            if hold is not None and successor.name.first_sequence > hold.sequence:
                if created_ns >= hold.before_ns and waiting <= hold.bytes_max:
                    break
                waiting -= _size(disk, segment)
            disk.remove(segment.path)
            disk.sync_folder(ARCHIVE)  # one by one: a crash must not leave a hole in the middle
            dropped.append(segment.name.file)
    except OSError as error:
        raise DirectoryError(f"dropping archived segments failed: {error}") from error
    return dropped


class Old(NamedTuple):
    """An archived segment whose time is over, the one behind it, and when that one was begun."""

    segment: Located
    successor: Located
    created_ns: int


def old_segments(disk: Disk, kept_from: int, before_ns: int) -> list[Old]:
    """The archived segments, oldest first, whose frames are all older than `before_ns`."""
    found: list[Old] = []
    for segment, successor in zip(_behind(disk, kept_from), list_segments(disk)[1:], strict=False):
        created_ns = _created_at_ns(disk, successor)
        if segment.folder != ARCHIVE or created_ns >= before_ns:
            break
        found.append(Old(segment, successor, created_ns))
    return found


def waiting_bytes(disk: Disk, old: list[Old], hold: Hold | None) -> int:
    """How much of `old` is kept for consumers alone."""
    if hold is None:
        return 0
    waiting = (each.segment for each in old if each.successor.name.first_sequence > hold.sequence)
    return sum(_size(disk, segment) for segment in waiting)


def _behind(disk: Disk, sequence: int) -> list[Located]:
    segments = list_segments(disk)
    return [each for each, after in pairwise(segments) if after.name.first_sequence <= sequence]


def _size(disk: Disk, segment: Located) -> int:
    file = disk.open(segment.path, write=False)
    try:
        return file.size()
    finally:
        file.close()


def _is_whole(disk: Disk, sequence: int) -> bool:
    try:
        read_checkpoint(disk, sequence)
    except (BadFrame, OSError, JournalDamaged) as error:
        log.warning("checkpoint %d does not read back (%s): the archive is kept", sequence, error)
        return False
    return True


def _created_at_ns(disk: Disk, segment: Located) -> int:
    head = read_head(disk, segment)
    if isinstance(head, Damage):
        raise head.error()
    return head.created_at_ns
