"""What bad bytes mean: a torn tail, which is dropped, or damage, which is named and never touched.

Bytes are acknowledged when something whole says that they were synced: a later frame of the same
segment, the next segment's header, the mark file, or a checkpoint (taken only of synced events).
Bad bytes that are acknowledged are damage. Bad bytes that nothing acknowledges were promised to no
caller: a write that power loss tore, or unsynced writes that reached the disk out of order.
"""

from __future__ import annotations

from dataclasses import dataclass

from relaymesh.errors import JournalDamaged
from relaymesh.journal.disk import Disk
from relaymesh.journal.frame import BadFrame
from relaymesh.journal.scan import SegmentReader, Walk
from relaymesh.journal.segment import Located, Seal, SegmentHead

__all__ = [
    "Damage",
    "LiveEnd",
    "TornTail",
    "judge_link",
    "judge_live",
    "judge_sealed",
    "read_chain",
    "read_head",
]


@dataclass(frozen=True, slots=True)
class Damage:
    """Acknowledged bytes that do not read back. `segment` is a path in the data directory."""

    segment: str
    offset: int
    why: str

    def error(self) -> JournalDamaged:
        return JournalDamaged(f"{self.segment} is damaged at offset {self.offset}: {self.why}")


@dataclass(frozen=True, slots=True)
class TornTail:
    """Bytes at the end that were never acknowledged and are no whole frames in order."""

    segment: str
    offset: int
    bytes: int
    why: str


@dataclass(frozen=True, slots=True)
class LiveEnd:
    """How the newest segment ends: durable below `mark`, whole frames up to `end`, then maybe a torn tail."""

    mark: int
    end: int
    crc: int
    torn: TornTail | None


def read_head(disk: Disk, segment: Located) -> SegmentHead | Damage:
    """The segment's header, which is never torn: a segment gets its name when its header is durable."""
    with SegmentReader(disk, segment) as reader:
        try:
            return reader.head()
        except BadFrame as bad:
            return Damage(segment.path, 0, str(bad))


def judge_link(path: str, head: SegmentHead, successor: SegmentHead) -> Damage | None:
    """Whether `successor` (the segment at `path`) is the one that follows `head`."""
    if successor.name.number != head.name.number + 1:
        return Damage(path, 0, f"segment {head.name.number + 1}, which comes before it, is missing")
    if successor.seal is None or successor.seal.segment != head.name or successor.epoch < head.epoch:
        return Damage(path, 0, f"it does not continue {head.name.file}")
    return None


def read_chain(disk: Disk, segments: list[Located]) -> list[SegmentHead]:
    """The headers of consecutive segments; raises `JournalDamaged` where one is bad or missing."""
    heads: list[SegmentHead] = []
    for segment in segments:
        head = read_head(disk, segment)
        if isinstance(head, Damage):
            raise head.error()
        broken = judge_link(segment.path, heads[-1], head) if heads else None
        if broken:
            raise broken.error()
        heads.append(head)
    return heads


def judge_sealed(path: str, walk: Walk, seal: Seal, successor: SegmentHead) -> Damage | None:
    """The verdict on a segment whose successor says where it ends, after a finished `walk` up to there."""
    if walk.offset != seal.offset or walk.why:
        return Damage(path, walk.offset, walk.why or "the data ends before the seal")
    if walk.crc != seal.crc or walk.next_sequence != successor.name.first_sequence:
        return Damage(path, walk.offset, "the segment is not the one its successor sealed")
    return None


def judge_live(reader: SegmentReader, head: SegmentHead, walk: Walk, marked: int) -> LiveEnd | Damage:
    """The verdict on the newest segment, after a finished `walk`; `marked` is what the mark file says."""
    later = [frame.mark for frame in reader.whole_frames(walk.offset, head.salt)]
    mark = max([walk.mark, marked, *later])
    path = reader.segment.path
    if mark > walk.offset:
        return Damage(path, walk.offset, walk.why or "the data ends before the mark")
    data_end = reader.data_end(walk.offset)
    if data_end == walk.offset:
        return LiveEnd(mark, walk.offset, walk.crc, None)
    why = walk.why or "bytes behind the last frame"
    return LiveEnd(mark, walk.offset, walk.crc, TornTail(path, walk.offset, data_end - walk.offset, why))
