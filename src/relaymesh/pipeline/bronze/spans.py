"""Spans of events that bronze holds, lacks or has forgotten, and how far segments were read."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

__all__ = ["Arrived", "Forgotten", "Gap", "SegmentRead", "Stretch", "furthest", "joined", "merged"]


class Stretch(msgspec.Struct, frozen=True):
    """Events of one partition of one source on one day: `rows` of them, between these sequences."""

    source: str
    partition: int
    day: str
    first: int
    last: int
    rows: int


class Gap(msgspec.Struct, frozen=True):
    """Events of one partition that did not read back: `first` to `last`, both missing."""

    source: str
    partition: int
    first: int
    last: int
    why: str

    @property
    def events(self) -> int:
        return self.last - self.first + 1


class SegmentRead(msgspec.Struct, frozen=True):
    """How far a segment was read: up to before the event `sequence`, whose frame begins at `offset`.

    The salt is the segment's own, in hexadecimal: it shows whether a copy has diverged.
    """

    source: str
    segment: str
    salt: str
    offset: int
    sequence: int


class Forgotten(msgspec.Struct, frozen=True):
    """Events of one partition that bronze had, and retention removed: `first` to `last`, up to this day."""

    source: str
    partition: int
    first: int
    last: int
    day: str

    @property
    def events(self) -> int:
        return self.last - self.first + 1


class Arrived(msgspec.Struct, frozen=True):
    """A file that a task of the ingest has written, and what it holds."""

    path: str
    stretch: Stretch


def merged(stretches: Iterable[Stretch]) -> list[Stretch]:
    """One stretch for each source, partition and day."""
    found: dict[tuple[str, int, str], Stretch] = {}
    for each in stretches:
        key = (each.source, each.partition, each.day)
        known = found.get(key)
        if known is None:
            found[key] = each
        else:
            first, last = min(known.first, each.first), max(known.last, each.last)
            found[key] = Stretch(*key, first, last, known.rows + each.rows)
    return [found[key] for key in sorted(found)]


def joined(gaps: Iterable[Gap]) -> list[Gap]:
    """Gaps that lie side by side, as one."""
    found: list[Gap] = []
    for each in sorted(gaps, key=lambda gap: (gap.source, gap.partition, gap.first)):
        last = found[-1] if found else None
        if last and (last.source, last.partition, last.last + 1) == (each.source, each.partition, each.first):
            found[-1] = Gap(each.source, each.partition, last.first, each.last, last.why)
        else:
            found.append(each)
    return found


def furthest(reads: Iterable[SegmentRead]) -> list[SegmentRead]:
    """One for each segment of each source: the one that came furthest."""
    found: dict[tuple[str, str], SegmentRead] = {}
    for each in reads:
        known = found.get((each.source, each.segment))
        if known is None or known.sequence < each.sequence:
            found[each.source, each.segment] = each
    return [found[key] for key in sorted(found)]
