"""How far a data directory reaches, and what it proves to have been acknowledged. Changes nothing.

Two directories of one journal are compared by it: the one whose frames end before what the other
proves has lost acknowledged events.
"""

from __future__ import annotations

from dataclasses import dataclass

from relaymesh.errors import JournalDamaged
from relaymesh.journal.checkpoint import list_checkpoints
from relaymesh.journal.disk import Disk
from relaymesh.journal.frame import BadFrame
from relaymesh.journal.mark import read_mark
from relaymesh.journal.scan import SegmentReader, Walk
from relaymesh.journal.segment import FIRST_SEQUENCE, Located, SegmentHead, list_segments

__all__ = ["Standing", "standing_of"]


@dataclass(frozen=True, slots=True)
class Standing:
    """A directory at a glance: its names, its mark and its newest segment.

    next_sequence: behind the last whole frame. acknowledged: every event below it was synced.
    proven_segment: this segment was certainly made durable, so a side that lacks it has lost it.
    """

    segments: list[Located]
    next_sequence: int
    acknowledged: int
    proven_segment: int

    @property
    def has_data(self) -> bool:
        """A lone segment without a frame is what the first start leaves when it dies: nothing to lose."""
        return len(self.segments) > 1 or max(self.next_sequence, self.acknowledged) > FIRST_SEQUENCE

    @property
    def newest(self) -> int:
        return self.segments[-1].name.number if self.segments else 0


def standing_of(disk: Disk) -> Standing:
    """Look at the directory. A damaged newest segment only makes it reach less far."""
    segments, mark = list_segments(disk), read_mark(disk)
    proofs = [FIRST_SEQUENCE, mark.sequence if mark else 0, *list_checkpoints(disk)[:1]]
    proven_segment = mark.segment if mark else 0
    next_sequence = FIRST_SEQUENCE
    if segments:
        newest = segments[-1].name
        next_sequence = newest.first_sequence
        proofs.append(newest.first_sequence)  # what it seals was synced before it was made
        proven_segment = max(proven_segment, newest.number - 1)
        try:
            next_sequence, synced = _walk(disk, segments[-1])
        except (BadFrame, JournalDamaged):
            synced = None
        if synced is not None:
            proofs.append(synced)
            proven_segment = newest.number
    return Standing(segments, next_sequence, max(proofs), proven_segment)


def _walk(disk: Disk, segment: Located) -> tuple[int, int | None]:
    """Where the newest segment's frames end, and the sequence its marks prove.

    Its header alone proves nothing: the segment may have got its name in one directory and not in the
    other. The first frame appended to it does, for that came after both names were durable.
    """
    with SegmentReader(disk, segment) as reader:
        head = reader.head()
        walk = _walked(reader, head, None)
        if walk.offset <= head.durable:
            return walk.next_sequence, None
        return walk.next_sequence, _walked(reader, head, min(walk.mark, walk.offset)).next_sequence


def _walked(reader: SegmentReader, head: SegmentHead, end: int | None) -> Walk:
    walk = Walk(reader.window, head, end)
    for _ in walk:
        pass
    return walk
