"""Copies that diverged: one mesh id, and two histories.

A copy of a data directory has its mesh id. As long as only one of the two is started, it is a backup. When
both are started, each writes other events under the same sequences. The salts of segments show this: each
segment is created once, with a salt of its own, and only its copies share it. Each start of a node, and so
each epoch,
begins a segment: epochs need no check of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from relaymesh.journal.disk import Disk
from relaymesh.journal.extent import Boundary, Unreadable, read_between
from relaymesh.journal.segment import HEAD_BYTES, Located, SegmentHead, SegmentName, list_segments
from relaymesh.journal.verdict import read_head

__all__ = ["Read", "first_difference", "holds", "went_its_own_way"]


class Read(Protocol):
    """How far a segment was read: up to before the event `sequence`, whose frame begins at `offset`."""

    @property
    def segment(self) -> str: ...
    @property
    def salt(self) -> str: ...
    @property
    def offset(self) -> int: ...
    @property
    def sequence(self) -> int: ...


def went_its_own_way(disk: Disk, read: Read) -> bool:
    """Whether the journal is not the one that was read up to this position: there it has other events."""
    return _difference(disk, _by_number(disk), read) is not None


def first_difference(disk: Disk, reads: Iterable[Read]) -> int | None:
    """The first event that is not the one that was read; None when the journal continues what was read.

    `reads`: the segments of one source. Segments that retention dropped since cannot differ.
    """
    ordered = sorted(reads, key=lambda each: (_number(each.segment), each.sequence))
    segments = _by_number(disk)
    if ordered and _number(ordered[-1].segment) in segments:
        newest = _difference(disk, segments, ordered[-1])
        if newest is None:
            return None  # one segment in common: all before it is
    found = (_difference(disk, segments, each) for each in ordered)
    return next((each for each in found if each is not None), None)


def holds(disk: Disk, reads: Iterable[Read]) -> bool:
    """Whether any of these segments is there, recognized by its salt."""
    segments = _by_number(disk)
    for read in reads:
        own = segments.get(_number(read.segment))
        if own is not None and own.name.file == read.segment and read.salt:
            head = read_head(disk, own)
            if isinstance(head, SegmentHead) and f"{head.salt:016x}" == read.salt:
                return True
    return False


def _difference(disk: Disk, segments: Mapping[int, Located], read: Read) -> int | None:
    name = SegmentName.parse(read.segment)
    own = None if name is None else segments.get(name.number)
    if name is None or own is None:
        return None  # dropped since, or not yet there: the sequence decides
    if own.name != name:
        return min(own.name.first_sequence, name.first_sequence)
    head = read_head(disk, own)
    if read.salt and isinstance(head, SegmentHead) and f"{head.salt:016x}" != read.salt:
        return name.first_sequence
    successor = segments.get(name.number + 1)
    if successor is None or successor.name.first_sequence >= read.sequence:
        return None
    # Sealed before what was read. After power loss the mark may say less than was synced, and the next start
    # writes those frames anew in another segment; they still lie here, too. In a copy they never did.
    start, end = Boundary(HEAD_BYTES, name.first_sequence), Boundary(read.offset, read.sequence)
    salt = head.salt if isinstance(head, SegmentHead) else None
    parts = read_between(disk, own, start, end, salt)
    return next((part.first for part in parts if isinstance(part, Unreadable)), None)


def _by_number(disk: Disk) -> dict[int, Located]:
    return {each.name.number: each for each in list_segments(disk)}


def _number(segment: str) -> int:
    name = SegmentName.parse(segment)
    return -1 if name is None else name.number
