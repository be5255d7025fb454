"""Copies that went their own way: one mesh id, and two histories.

A copy of a data directory has its mesh id. As long as only one of the two is started it is a backup; when
both are, each writes other events under the same sequences. The salts of segments tell: each segment is made
once, with a salt of its own, and only its copies share it.
"""

from __future__ import annotations

from relaymesh.journal.disk import Disk
from relaymesh.journal.extent import Place, Unreadable, read_between
from relaymesh.journal.segment import HEAD_BYTES, SegmentHead, SegmentName, list_segments
from relaymesh.journal.verdict import read_head
from relaymesh.pipeline.source.offsets import Position

__all__ = ["went_its_own_way"]


def went_its_own_way(disk: Disk, read: Position) -> bool:
    """Whether the journal is not the one that was read up to this position: there it has other events."""
    name = SegmentName.parse(read.segment)
    segments = {each.name.number: each for each in list_segments(disk)}
    own = None if name is None else segments.get(name.number)
    if name is None or own is None:
        return False  # dropped since, or not yet there: the sequence decides
    if own.name != name:
        return True
    head = read_head(disk, own)
    if read.salt and isinstance(head, SegmentHead) and f"{head.salt:016x}" != read.salt:
        return True
    successor = segments.get(name.number + 1)
    if successor is None or successor.name.first_sequence >= read.sequence:
        return False
    # Sealed before what was read. After power loss the mark may say less than was synced, and the next start
    # writes those frames anew in another segment; they still lie here, too. In a copy they never did.
    start, end = Place(HEAD_BYTES, name.first_sequence), Place(read.offset, read.sequence)
    salt = head.salt if isinstance(head, SegmentHead) else None
    return any(isinstance(part, Unreadable) for part in read_between(disk, own, start, end, salt))
