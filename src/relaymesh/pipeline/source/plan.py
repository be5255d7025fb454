"""The work of each task: a directory's range of events, divided into pieces between frames.

A piece lies in one segment, so many tasks decode one big segment. The cuts come from the frames' headers
alone.
Events that retention dropped are a piece too: the task of that piece reports them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from relaymesh.errors import JournalDamaged
from relaymesh.journal import FIRST_SEQUENCE, Located
from relaymesh.journal.disk import Disk
from relaymesh.journal.extent import Boundary, Extent, frame_boundaries, list_extents
from relaymesh.journal.frame import BadFrame
from relaymesh.journal.scan import SegmentReader, read_frame
from relaymesh.pipeline.source.events import time_of
from relaymesh.pipeline.source.offsets import Position, earliest, latest, locate
from relaymesh.pipeline.source.options import Directory, SourceOptions

__all__ = ["Piece", "lost_error", "plan", "whole_range"]


@dataclass(frozen=True, slots=True)
class Piece(InputPartition):
    """Frames of one segment from `start` to `end`, and which of their events count: `first` to below `limit`.

    `segment` is None for events that were dropped before they were read: `first` to below `limit`.
    """

    directory: Directory
    segment: Located | None
    salt: int | None
    start: Boundary
    end: Boundary
    first: int
    limit: int


def whole_range(directory: Directory, options: SourceOptions) -> tuple[Position, Position]:
    """The range that a batch reads, or the start of a stream without an offset."""
    disk = directory.disk()
    start = earliest(disk) if options.first is None else Position(max(options.first, FIRST_SEQUENCE))
    if start.sequence < directory.first:
        start = Position(directory.first)
    return start, latest(disk)


def plan(directory: Directory, options: SourceOptions, start: Position, end: Position) -> list[Piece]:
    """The pieces between two positions. Raises `JournalDamaged` when events are gone that may not be."""
    disk = directory.disk()
    limit = min(end.sequence, options.through + 1)
    if start.sequence >= limit:
        return []
    extents = list_extents(disk, start.sequence)
    pieces: list[Piece] = []
    kept_from = extents[0].start.sequence if extents else end.sequence
    if start.sequence < kept_from:
        lost = min(kept_from, limit)
        if options.on_data_loss == "fail":
            raise lost_error(directory, start.sequence, lost)
        none = Boundary(0, 0)
        pieces.append(Piece(directory, None, None, none, none, start.sequence, lost))
    wanted = [each for each in extents if start.sequence < each.end.sequence and each.start.sequence < limit]
    for extent in _in_time(disk, wanted, options):
        last = Position(limit) if limit < end.sequence else end
        boundaries = [locate(disk, extent, start), _behind(disk, extent, last)]
        for one, two in _cuts(disk, extent, boundaries[0], boundaries[1], options.rows):
            pieces.append(Piece(directory, extent.segment, extent.salt, one, two, start.sequence, limit))
    return pieces


def lost_error(directory: Directory, first: int, end: int) -> JournalDamaged:
    return JournalDamaged(
        f"{directory.given}: retention dropped the events {first} to {end - 1} before they were read",
        hint="set the option onDataLoss=skip to go on without them; a registered consumer prevents it",
    )


def _behind(disk: Disk, extent: Extent, end: Position) -> Boundary:
    """Where to stop reading `extent`: after the frame that holds the last event below `end`."""
    boundary = locate(disk, extent, end)
    if boundary.sequence >= min(end.sequence, extent.end.sequence):
        return boundary
    boundaries = frame_boundaries(disk, extent, boundary)
    next(boundaries, None)
    return next(boundaries, extent.end)


def _cuts(
    disk: Disk, extent: Extent, start: Boundary, end: Boundary, rows: int
) -> Iterator[tuple[Boundary, Boundary]]:
    """`start` to `end` in steps of about `rows` events."""
    cut = start
    if end.sequence - start.sequence > rows:
        for boundary in frame_boundaries(disk, extent, start):
            if boundary.sequence >= end.sequence:
                break
            if boundary.sequence - cut.sequence >= rows:
                yield cut, boundary
                cut = boundary
    if cut.offset < end.offset:
        yield cut, end


def _in_time(disk: Disk, extents: list[Extent], options: SourceOptions) -> list[Extent]:
    """Without the segments that are completely before or after the given times. Mesh time never goes back."""
    if options.from_ms is None and options.to_ms is None:
        return extents
    begins = [_begins_ms(disk, extent) for extent in extents]
    kept: list[Extent] = []
    for extent, at, next_at in zip(extents, begins, [*begins[1:], None], strict=True):
        too_old = options.from_ms is not None and next_at is not None and next_at < options.from_ms
        too_new = options.to_ms is not None and at is not None and at >= options.to_ms
        if not too_old and not too_new:
            kept.append(extent)
    return kept


def _begins_ms(disk: Disk, extent: Extent) -> int | None:
    """When the segment's first event happened; None if it has no event, or none that can be read."""
    with SegmentReader(disk, extent.segment) as reader:
        if extent.start.offset >= extent.end.offset:
            return None
        try:
            frame = read_frame(reader.window, extent.start.offset, extent.segment.name.file)
        except BadFrame:
            return None
    return None if frame is None else time_of(frame)
