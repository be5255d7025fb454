"""Offsets: how far a reader has come in each directory, as Spark keeps them in a checkpoint.

    {"<mesh id>": {"sequence": 4711, "segment": "<file>", "offset": 1048576, "salt": "<its salt>"}, …}

A directory is named by its mesh id: another spelling of its path, or another place, is still the same. One
that has no id yet is named by its whole path. `sequence` is the next event to read, and alone decides.
Segment and offset say where its frame begins, so that nothing has to be searched. They stop being true when a
crash makes the node write the end of a segment again under a new name; then the sequence is looked up by the
segments' names. The salt shows that a copy has diverged.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from relaymesh.errors import InvalidSettings
from relaymesh.journal import FIRST_SEQUENCE
from relaymesh.journal.disk import Disk
from relaymesh.journal.extent import Boundary, Extent, frame_boundaries, list_extents

__all__ = ["Offset", "Position", "earliest", "latest", "locate", "reached"]

Offset = dict[str, Any]


class Position(NamedTuple):
    """The next event to read in one directory, and where its frame begins if that is known."""

    sequence: int
    segment: str = ""
    offset: int = 0
    salt: str = ""

    def encode(self) -> dict[str, Any]:
        return self._asdict()

    @classmethod
    def decode(cls, stored: Any) -> Position:
        try:
            found = int(stored["sequence"]), str(stored["segment"]), int(stored["offset"])
            return cls(*found, str(stored.get("salt", "")))
        except (TypeError, KeyError, ValueError, AttributeError):
            raise InvalidSettings(
                f"the stored offset {stored!r:.200} is not one of the format relaymesh",
                hint="the checkpoint belongs to another query: name a directory of its own",
            ) from None


def earliest(disk: Disk) -> Position:
    """The first event that is still there."""
    extents = list_extents(disk)
    return _at(extents[0], extents[0].start) if extents else Position(FIRST_SEQUENCE)


def latest(disk: Disk) -> Position:
    """The position after the last synced event."""
    extents = list_extents(disk, from_sequence=_NEWEST)
    return _at(extents[-1], extents[-1].end) if extents else Position(FIRST_SEQUENCE)


_NEWEST = 2**63
"""Beyond every sequence: the listing then begins with the newest segment."""


def locate(disk: Disk, extent: Extent, position: Position) -> Boundary:
    """Where to begin reading `extent` for the event `position` names: the frame that holds it."""
    if position.sequence <= extent.start.sequence:
        return extent.start
    if position.sequence >= extent.end.sequence:
        return extent.end
    if position.segment == extent.segment.name.file and extent.start.offset < position.offset:
        hinted = Boundary(position.offset, position.sequence)
        if next(frame_boundaries(disk, extent, hinted), None) == hinted:
            return hinted
    found = extent.start
    for boundary in frame_boundaries(disk, extent):
        if boundary.sequence > position.sequence:
            break
        found = boundary
    return found


def reached(disk: Disk, start: Position, rows: int) -> Position:
    """How far `rows` events bring a reader from `start`: whole frames, and at least one if there is one."""
    extents = list_extents(disk, start.sequence)
    limit = max(start.sequence, extents[0].start.sequence if extents else 0) + rows
    position = start
    for extent in extents:
        if extent.end.sequence <= limit:
            position = _at(extent, extent.end)
            continue
        for boundary in frame_boundaries(disk, extent, locate(disk, extent, start)):
            if start.sequence < boundary.sequence <= limit:
                position = _at(extent, boundary)
            elif boundary.sequence > limit:
                return position if position.sequence > start.sequence else _at(extent, boundary)
        return position if position.sequence > start.sequence else _at(extent, extent.end)
    return position


def _at(extent: Extent, boundary: Boundary) -> Position:
    salt = "" if extent.salt is None else f"{extent.salt:016x}"
    return Position(boundary.sequence, extent.segment.name.file, boundary.offset, salt)
