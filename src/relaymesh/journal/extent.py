"""Extents: what of the journal may be read now, and how to read any part of it alone.

`read_frames` walks from one end to the other. A reader that works in parallel, or goes on where it stopped,
needs more: which segments there are and how far each is synced (`list_extents`), where frames begin without
reading their payloads (`frame_boundaries`), and the frames between two of these (`read_between`). All of it
without a lock, beside a running node, and whether a segment lies in `journal/` or `archive/` by now.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from relaymesh.errors import JournalDamaged
from relaymesh.journal.disk import Disk
from relaymesh.journal.frame import DATA, HEADER_BYTES, MAGIC, BadFrame, Frame
from relaymesh.journal.mark import Mark
from relaymesh.journal.reader import list_with_mark
from relaymesh.journal.scan import SegmentReader, Walk, Window, read_frame
from relaymesh.journal.segment import HEAD_BYTES, Located, SegmentHead, list_segments
from relaymesh.journal.verdict import Damage, judge_link, judge_live, read_head

__all__ = ["Boundary", "Extent", "Unreadable", "frame_boundaries", "list_extents", "read_between"]

_HEADER = struct.Struct("<4sxB2xQ8xIIQ")  # magic, kind, salt, length, events, first sequence


class Boundary(NamedTuple):
    """Where a frame begins in its segment, and its first event's sequence."""

    offset: int
    sequence: int


class Extent(NamedTuple):
    """A segment as far as it is synced. `salt` is None when its header does not read back."""

    segment: Located
    salt: int | None
    end: Boundary

    @property
    def start(self) -> Boundary:
        return Boundary(HEAD_BYTES, self.segment.name.first_sequence)


class Unreadable(NamedTuple):
    """Bytes that should hold the events from `first` to below `end`, and do not read back."""

    offset: int
    why: str
    first: int
    end: int


def list_extents(disk: Disk, from_sequence: int = 0) -> list[Extent]:
    """The segments that hold synced events from `from_sequence` on, in order.

    Begins later when retention has dropped `from_sequence`: compare with the first one's start. A header that
    does not read back leaves its segment's frames readable; a missing segment raises `JournalDamaged`.
    """
    while True:
        segments, mark = list_with_mark(disk)
        try:
            return _extents(disk, segments, mark, from_sequence)
        except JournalDamaged as error:
            dropped = isinstance(error.__cause__, FileNotFoundError) and list_segments(disk) != segments
            if not dropped:  # else retention took the oldest just now: look again
                raise


def _extents(disk: Disk, segments: list[Located], mark: Mark | None, from_sequence: int) -> list[Extent]:
    behind = [i for i, each in enumerate(segments) if each.name.first_sequence <= from_sequence]
    segments = segments[behind[-1] if behind else 0 :]
    heads = [read_head(disk, segment) for segment in segments]
    extents: list[Extent] = []
    for i, (segment, successor) in enumerate(pairwise(segments)):
        head, after = heads[i], heads[i + 1]
        if successor.name.number != segment.name.number + 1:
            missing = f"segment {segment.name.number + 1}, which comes before it, is missing"
            raise Damage(successor.path, 0, missing).error()
        broken = isinstance(head, Damage) or isinstance(after, Damage) or judge_link("", head, after)
        if broken or isinstance(after, Damage) or after.seal is None:
            end = _size(disk, segment)
        else:
            end = after.seal.offset
        extents.append(Extent(segment, _salt(head), Boundary(end, successor.name.first_sequence)))
    if segments:
        extents.append(_live_extent(disk, segments[-1], heads[-1], mark))
    return extents


def frame_boundaries(disk: Disk, extent: Extent, start: Boundary | None = None) -> Iterator[Boundary]:
    """Where the frames of an extent begin, from `start` on, by their headers alone.

    Checks no CRC. Ends early at a header that cannot be the next one: what lies from the last boundary to the
    extent's end is then for `read_between` to judge.
    """
    offset, sequence = start or extent.start
    with SegmentReader(disk, extent.segment) as reader:
        view, salt, unpack = reader.window.view, extent.salt, _HEADER.unpack_from
        while offset < extent.end.offset:
            header = view(offset, HEADER_BYTES)
            if len(header) < HEADER_BYTES:
                return
            magic, kind, own_salt, length, events, first = unpack(header)
            if magic != MAGIC or kind != DATA or first != sequence or (salt is not None and own_salt != salt):
                return
            yield Boundary(offset, sequence)
            offset += HEADER_BYTES + length
            sequence += events


def read_between(
    disk: Disk, segment: Located, start: Boundary, end: Boundary, salt: int | None
) -> Iterator[Frame | Unreadable]:
    """The frames from `start` to `end` (boundaries of one extent), and what is unreadable between them.

    Every event between the two is in exactly one of the results. Raises `FileNotFoundError` when the segment
    was dropped, `JournalDamaged` when the disk fails.
    """
    offset, expected, crc = start.offset, start.sequence, None
    if salt is None and offset == HEAD_BYTES:
        yield Unreadable(0, "the segment's header does not read back", expected, expected)
    with _open(disk, segment) as reader:
        while offset < end.offset:
            frame, why = _frame_at(reader.window, offset, segment.name.file)
            if frame is not None:
                why = _misfit(frame, expected, end, crc, salt)
            elif why is None and expected == end.sequence:
                return  # zeros, allocated ahead
            if frame is None or why:
                frame = _next_whole(reader, offset, expected, end, salt)
                until = end.sequence if frame is None else frame.first_sequence
                yield Unreadable(offset, why or "the data ends", expected, until)
            if frame is None:
                return
            yield frame
            offset, expected, crc = frame.end, frame.next_sequence, frame.crc
    if expected != end.sequence:
        yield Unreadable(offset, "the data ends before the events do", expected, end.sequence)


def _open(disk: Disk, segment: Located) -> SegmentReader:
    try:
        return SegmentReader(disk, segment)
    except JournalDamaged as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise error.__cause__ from error
        raise


def _frame_at(window: Window, offset: int, name: str) -> tuple[Frame | None, str | None]:
    try:
        return read_frame(window, offset, name), None
    except BadFrame as bad:
        return None, str(bad)


def _misfit(frame: Frame, expected: int, end: Boundary, crc: int | None, salt: int | None) -> str | None:
    """What keeps a whole frame from being the next one."""
    if frame.kind != DATA or (salt is not None and frame.salt != salt):
        return "the frame belongs to another file"
    if frame.first_sequence != expected or (crc is not None and frame.previous_crc != crc):
        return "the frame does not continue the one before it"
    if frame.end > end.offset or frame.next_sequence > end.sequence:
        return "the frame reaches beyond the segment's end"
    return None


def _next_whole(
    reader: SegmentReader, offset: int, expected: int, end: Boundary, salt: int | None
) -> Frame | None:
    """The first whole frame behind a bad one that still belongs between `expected` and `end`."""
    for frame in reader.whole_frames(offset + 1, salt):
        if frame.offset >= end.offset:
            return None
        if frame.kind == DATA and frame.first_sequence >= expected and frame.next_sequence <= end.sequence:
            return frame
    return None


def _live_extent(disk: Disk, segment: Located, head: SegmentHead | Damage, mark: Mark | None) -> Extent:
    """The newest segment, up to the mark: the file's, or else that of its own frames."""
    marked = mark is not None and mark.segment == segment.name.number
    if isinstance(head, Damage):
        if mark is None or not marked:
            raise head.error()  # nothing says how far it is synced
        return Extent(segment, None, Boundary(mark.offset, mark.sequence))
    if mark is not None and marked and mark.offset >= head.durable:
        return Extent(segment, head.salt, Boundary(mark.offset, mark.sequence))
    with SegmentReader(disk, segment) as reader:
        walk = Walk(reader.window, head, None)
        boundaries = {walk.offset: walk.next_sequence}
        for frame in walk:
            boundaries[frame.end] = frame.next_sequence
        verdict = judge_live(reader, head, walk, mark.offset if mark is not None and marked else 0)
    if isinstance(verdict, Damage):
        raise verdict.error()
    return Extent(segment, head.salt, Boundary(verdict.mark, boundaries[verdict.mark]))


def _size(disk: Disk, segment: Located) -> int:
    with SegmentReader(disk, segment) as reader:
        return reader.window.size


def _salt(head: SegmentHead | Damage) -> int | None:
    return None if isinstance(head, Damage) else head.salt
