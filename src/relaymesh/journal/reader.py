"""Reading without a node: command line, pipeline, audits. Takes no lock and changes nothing.

A reader may run beside a node: sealed segments never change, and the live one is read only up to the
mark, so no reader sees an event that a crash could take back.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from relaymesh.journal.disk import Disk
from relaymesh.journal.frame import Frame
from relaymesh.journal.mark import Mark, read_mark
from relaymesh.journal.scan import SegmentReader, Walk
from relaymesh.journal.segment import Located, SegmentHead, list_segments
from relaymesh.journal.verdict import Damage, judge_sealed, read_chain

__all__ = ["list_with_mark", "read_frames"]


def read_frames(disk: Disk, from_sequence: int = 0, through: int | None = None) -> Iterator[Frame]:
    """The synced frames that hold any event from `from_sequence` on and below `through`, whole and in order.

    Begins later when retention has dropped `from_sequence`: compare with the first frame. Only the segments
    that hold the range are opened, and the one behind each. Raises `JournalDamaged` at a bad frame.
    """
    limit = sys.maxsize if through is None else through
    segments, mark = list_with_mark(disk)
    needed = [i for i, each in enumerate(segments) if each.name.first_sequence < limit]
    first = max((i for i in needed if segments[i].name.first_sequence <= from_sequence), default=0)
    chain = segments[first : (needed[-1] + 2 if needed else 0)]  # and one more: its header seals the last
    heads = read_chain(disk, chain)
    for segment, head, successor in zip(chain, heads, [*heads[1:], None], strict=False):
        for frame in _synced_frames(disk, segment, head, successor, mark):
            if frame.first_sequence >= limit:
                return
            if frame.next_sequence > from_sequence:
                yield frame


def list_with_mark(disk: Disk) -> tuple[list[Located], Mark | None]:
    """A listing that is not older than the mark: a running node may rotate between the two reads."""
    while True:
        segments, mark = list_segments(disk), read_mark(disk)
        if mark is None or (segments and segments[-1].name.number >= mark.segment):
            return segments, mark
        if list_segments(disk) == segments:
            raise Damage("journal", 0, f"segment {mark.segment}, which the mark names, is missing").error()


def _synced_frames(
    disk: Disk, segment: Located, head: SegmentHead, successor: SegmentHead | None, mark: Mark | None
) -> Iterator[Frame]:
    with SegmentReader(disk, segment) as reader:
        if successor is not None and successor.seal is not None:
            walk = Walk(reader.window, head, successor.seal.offset)
            yield from walk
            damage = judge_sealed(segment.path, walk, successor.seal, successor)
        else:
            end = _synced_through(reader, head, mark)
            walk = Walk(reader.window, head, end)
            yield from walk
            whole = walk.offset == end and not walk.why
            why = walk.why or "the data ends before the mark"
            damage = None if whole else Damage(segment.path, walk.offset, why)
        if damage:
            raise damage.error()


def _synced_through(reader: SegmentReader, head: SegmentHead, mark: Mark | None) -> int:
    """How far the live segment is known to be synced: from the mark file, or else from its own frames."""
    if mark is not None and mark.segment == head.name.number:
        return max(mark.offset, head.durable)
    walk = Walk(reader.window, head, None)
    for _ in walk:
        pass
    return walk.mark
