"""Comparing a data directory with its mirror: frame by frame, as far as both are synced.

Reads every byte of both, takes no lock and changes nothing; it may run beside a node. What lies behind
the last sync of either is no difference yet: the two are written one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from relaymesh.errors import JournalDamaged
from relaymesh.journal.catch_up import same_aside
from relaymesh.journal.checkpoint import checkpoint_path, list_checkpoints
from relaymesh.journal.copying import same_bytes
from relaymesh.journal.disk import Disk
from relaymesh.journal.frame import BadFrame
from relaymesh.journal.layout import ASIDE
from relaymesh.journal.mark import read_mark
from relaymesh.journal.scan import SegmentReader, Window, read_frame
from relaymesh.journal.segment import Located
from relaymesh.journal.standing import Standing, standing_of
from relaymesh.journal.verdict import Damage, read_head
from relaymesh.journal.verify import Report, verify

__all__ = ["Comparison", "Difference", "compare"]


@dataclass(frozen=True, slots=True)
class Difference:
    """Where the two directories do not say the same."""

    file: str
    offset: int
    why: str


@dataclass(slots=True)
class Comparison:
    """What `compare` found. behind: synced events that the mirror does not have yet (or no more)."""

    primary: Report
    mirror: Report
    behind: int = 0
    ahead: int = 0
    differences: list[Difference] = field(default_factory=list)

    @property
    def whole(self) -> Literal["both", "the data directory", "the mirror", "neither"]:
        """Which of the two brings back everything that either proves to have been acknowledged."""
        primary = not self.primary.damage and not self.ahead
        mirror = not self.mirror.damage and not self.behind
        if primary and mirror:
            return "both" if not self.differences else "neither"
        return "the data directory" if primary else "the mirror" if mirror else "neither"


def compare(primary: Disk, mirror: Disk, *, records: bool = False) -> Comparison:
    """Verify both and compare what they hold. Damage and differences are reported, not raised.

    `records`: also decode each record, and report those that cannot be read.
    """
    theirs = standing_of(mirror)  # first, so that a running node can only have got further in the primary
    ours = standing_of(primary)
    comparison = Comparison(verify(primary, records=records), verify(mirror, records=records))
    comparison.behind = max(0, ours.acknowledged - theirs.next_sequence)
    comparison.ahead = max(0, theirs.acknowledged - ours.next_sequence)
    _compare_segments(primary, ours, mirror, theirs, comparison)
    shared = set(list_checkpoints(primary)).intersection(list_checkpoints(mirror))
    for sequence in sorted(shared):
        path = checkpoint_path(sequence)
        if not _same_or_gone(primary, mirror, path):
            comparison.differences.append(Difference(path, 0, "the checkpoints differ"))
    if not same_aside(primary, mirror):
        comparison.differences.append(Difference(ASIDE, 0, "they set different records aside"))
    return comparison


def _same_or_gone(primary: Disk, mirror: Disk, path: str) -> bool:
    try:
        return same_bytes(primary, mirror, path)
    except OSError:  # unreadable is told by verify, and one that was replaced meanwhile is no difference
        return True


def _compare_segments(
    primary: Disk, ours: Standing, mirror: Disk, theirs: Standing, comparison: Comparison
) -> None:
    there = {each.name.number: each for each in theirs.segments}
    last = min(ours.newest, theirs.newest)
    for segment in ours.segments:
        other = there.get(segment.name.number)
        if other is not None:
            ends = (_data_end(primary, ours.segments, segment), _data_end(mirror, theirs.segments, other))
            found = _first_difference(primary, segment, mirror, other, min(ends))
            if found is None and ends[0] != ends[1] and segment.name.number < last:
                found = Difference(segment.path, min(ends), "one of them ends here")
        elif theirs.segments and segment.name.number < theirs.segments[-1].name.number:
            found = Difference(segment.path, 0, "the mirror does not have this segment")
        else:
            found = None  # behind: counted in events
        if found is not None:
            comparison.differences.append(found)
    here = {each.name.number for each in ours.segments}
    holes = set(range(min(here), max(here))) - here if here else set()
    for segment in theirs.segments:
        if segment.name.number in holes:
            why = "only the mirror has this segment"
            comparison.differences.append(Difference(segment.path, 0, why))


def _data_end(disk: Disk, segments: list[Located], segment: Located) -> int:
    """How far the segment counts: to its successor's seal, or as far as it is known to be synced."""
    after = next((each for each in segments if each.name.number == segment.name.number + 1), None)
    try:
        head = read_head(disk, after) if after is not None else None
        if head is not None and not isinstance(head, Damage) and head.seal is not None:
            return head.seal.offset
        mark = read_mark(disk)
        if mark is not None and mark.segment == segment.name.number:
            return mark.offset
        with SegmentReader(disk, segment) as reader:
            return reader.data_end(0)
    except JournalDamaged:
        return 0


def _first_difference(
    primary: Disk, segment: Located, mirror: Disk, other: Located, end: int
) -> Difference | None:
    """The first frame below `end` that is not the same in both."""
    if segment.name != other.name:
        return Difference(segment.path, 0, f"the mirror calls it {other.name.file}")
    try:
        with SegmentReader(primary, segment) as one, SegmentReader(mirror, other) as two:
            offset = 0
            while offset < end:
                size = _frame_size(one.window, offset, end)
                if one.window.view(offset, size) != two.window.view(offset, size):
                    return Difference(segment.path, offset, "the frames differ")
                offset += size
    except JournalDamaged as error:
        return Difference(segment.path, 0, error.message)
    return None


def _frame_size(window: Window, offset: int, end: int) -> int:
    """The size of the primary's frame there; of what is no frame, all that is left is one piece."""
    try:
        frame = read_frame(window, offset, "")
    except BadFrame:
        frame = None
    return end - offset if frame is None else frame.end - offset
