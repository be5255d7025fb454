"""How a data directory relates to a source that was read: is it that mesh, and does it continue what was
read?

Reads the mesh id, and the headers of the segments that were read; no Spark.
"""

from __future__ import annotations

import shlex
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from relaymesh.errors import Conflict, MeshError, NotFound
from relaymesh.journal.extent import list_extents
from relaymesh.journal.identity import read_mesh_id
from relaymesh.journal.layout import JOURNAL
from relaymesh.node.disk import RealDisk
from relaymesh.pipeline.bronze.snapshot import BronzeSnapshot
from relaymesh.pipeline.source.history import first_difference, holds
from relaymesh.pipeline.source.naming import name_of
from relaymesh.pipeline.source.offsets import latest
from relaymesh.pipeline.tables.sources import Source

__all__ = [
    "OF_COPY",
    "Stand",
    "Standing",
    "forget_command",
    "move_command",
    "refusal",
    "salt_at",
    "standing",
    "told",
    "why_not",
]


OF_COPY = "+"
"""The separator in the id of a copy that is a separate source; the salt of the first segment that differs
follows.
"""


class Stand(StrEnum):
    """See `Standing`."""

    CONTINUES = "continues"
    """It is this mesh, and holds what was read."""
    MISSING = "missing"
    """There is no mesh in it."""
    OTHER = "another mesh"
    DIVERGED = "diverged"
    """A diverged copy: it has other events under sequences that were read."""
    BEHIND = "behind"
    """A copy that lacks events that were read."""


class Standing(NamedTuple):
    """With DIVERGED the first event that differs; with BEHIND the first that it does not have."""

    stand: Stand
    sequence: int = 0


def standing(directory: Path, source: Source, snapshot: BronzeSnapshot) -> Standing:
    """How `directory` relates to `source`, given the events of it in bronze."""
    if not (directory / JOURNAL).is_dir():
        return Standing(Stand.MISSING)
    disk = RealDisk(directory)
    reads = [each for each in snapshot.segments if each.source == source.id]
    mesh = read_mesh_id(disk)
    known = source.mesh is not None and mesh == source.mesh
    unnamed = (source.mesh is None or mesh is None) and _may_be(directory, source)
    if not known and not unnamed and not holds(disk, reads[-1:]):
        return Standing(Stand.OTHER)
    if source.first and not reads and salt_at(directory, source.first) != source.id.partition(OF_COPY)[2]:
        return Standing(Stand.OTHER)
    difference = first_difference(disk, reads)
    if difference is not None:
        return Standing(Stand.DIVERGED, difference)
    ends = latest(disk).sequence
    through = max(
        (each.through_sequence for each in snapshot.inputs() if each.source == source.id), default=0
    )
    return Standing(Stand.BEHIND, ends) if ends <= through else Standing(Stand.CONTINUES)


def salt_at(directory: Path, sequence: int) -> str:
    """The salt of the segment that holds this event; empty when there is none."""
    extent = next(iter(list_extents(RealDisk(directory), sequence)), None)
    return "" if extent is None or extent.salt is None else f"{extent.salt:016x}"


def _may_be(directory: Path, source: Source) -> bool:
    """Without an id on one side: compare the oldest segment, or the path."""
    return name_of(RealDisk(directory)) == source.id or directory.resolve() == Path(source.path).resolve()


def why_not(source: Source, path: str, found: Standing) -> str:
    """Why `source` cannot be read from `path`."""
    match found.stand:
        case Stand.MISSING:
            return f"there is no mesh in {path}, where the source {source.id} was read"
        case Stand.OTHER:
            return f"{path} holds another mesh than the source {source.id}"
        case Stand.DIVERGED:
            return f"{path} is a copy of the mesh {source.id} that has diverged: {told(found)}"
        case _:
            return f"{path} is a copy of the mesh {source.id} that lacks events: {told(found)}"


def refusal(source: Source, path: str, found: Standing, warehouse: Path) -> MeshError:
    """The same as an error, with the commands that help."""
    forget = forget_command(source.id, warehouse)
    why = why_not(source, path, found)
    if found.stand is Stand.MISSING:
        move = move_command(source.id, "PATH", warehouse)
        return NotFound(
            why,
            hint=f"it was moved, or is not mounted: name its place with --dir, or {move}; "
            f"or give it up: {forget}",
        )
    if found.stand is Stand.OTHER:
        move = move_command(source.id, "PATH", warehouse)
        return Conflict(why, hint=f"name where it is now: {move}; or give it up: {forget}")
    if found.stand is Stand.DIVERGED:
        as_new = move_command(source.id, path, warehouse, as_new=True)
        then = f"; then {forget}" if path == source.path else ""
        return Conflict(why, hint=f"to read it as a source of its own: {as_new}{then}")
    return Conflict(
        why, hint="name the directory that was read, or a newer copy; or start a new warehouse: --warehouse"
    )


def move_command(id: str, path: str, warehouse: Path, *, as_new: bool = False) -> str:
    options = ["--as-new"] if as_new else []
    return shlex.join(["relaymesh", "pipeline", "source", "move", id, path, *options, *_of(warehouse)])


def forget_command(source: str, warehouse: Path) -> str:
    """`source`: its id or its path."""
    return shlex.join(["relaymesh", "pipeline", "source", "forget", source, *_of(warehouse)])


def _of(warehouse: Path) -> list[str]:
    return ["--warehouse", str(warehouse)]


def told(found: Standing) -> str:
    """A standing in words."""
    match found.stand:
        case Stand.DIVERGED:
            return f"event {found.sequence} is the first that differs from what was read"
        case Stand.BEHIND:
            return f"it ends before event {found.sequence}, and later ones were read"
        case Stand.CONTINUES:
            return "it holds what was read"
        case _:
            return f"it holds {found.stand}" if found.stand is Stand.OTHER else "there is no mesh in it"
