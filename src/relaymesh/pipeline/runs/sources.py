"""Which meshes a run reads, and from where. `sources.json` keeps the decisions, see tables/sources.py.

A mesh keeps its partition forever. A later run may name more directories; the known ones are read in any
case, otherwise their lag would grow unseen. A moved directory is followed. A copy is not: the user chooses
which of the two is read with `relaymesh pipeline source move`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import structs

from relaymesh.errors import Conflict, NotFound
from relaymesh.journal.consumers import remove_consumer
from relaymesh.journal.identity import read_mesh_id
from relaymesh.journal.layout import JOURNAL
from relaymesh.node.disk import RealDisk
from relaymesh.pipeline.bronze.folder import Bronze
from relaymesh.pipeline.runs.standing import (
    OF_COPY,
    Stand,
    Standing,
    forget_command,
    move_command,
    refusal,
    salt_at,
    standing,
    told,
)
from relaymesh.pipeline.source.naming import name_of
from relaymesh.pipeline.tables.manifest import Input
from relaymesh.pipeline.tables.sources import Source, known_sources, save_sources

__all__ = ["CONSUMER", "SourceList", "path_option", "remember_sources"]

log = logging.getLogger("relaymesh.pipeline")

CONSUMER = "pipeline"
"""The name of the consumer file that tells each node which events are already in bronze."""


def remember_sources(warehouse: Path, directories: Iterable[Path]) -> dict[str, Source]:
    """The meshes to read: the known ones and those in these directories. Needs the lock of the warehouse."""
    sources = SourceList(warehouse)
    sources.settle_ids()
    for directory in directories:
        sources.take(directory)
    sources.require_in_place()
    sources.save()
    return sources.read


def path_option(sources: Iterable[Source]) -> str:
    """The option `path` of the format relaymesh, under which these are read by their ids."""
    places = {
        each.path: {"partition": each.partition, "name": each.id, "was": each.was, "first": each.first}
        for each in sources
    }
    return msgspec.json.encode(places).decode()


class SourceList:
    """The sources of one warehouse, as one run or one command changes them."""

    def __init__(self, warehouse: Path) -> None:
        self._warehouse = warehouse
        self._snapshot = Bronze(warehouse).snapshot()
        self._saved = known_sources(warehouse)
        self.all = dict(self._saved)

    @property
    def read(self) -> dict[str, Source]:
        """Those that are not forgotten."""
        return {id: each for id, each in self.all.items() if not each.forgotten}

    def save(self) -> None:
        if self.all != self._saved:
            save_sources(self._warehouse, self.all.values())
            self._saved = dict(self.all)

    def standing(self, source: Source, directory: Path | None = None) -> Standing:
        """How its directory, or another one, relates to it."""
        return standing(Path(source.path) if directory is None else directory, source, self._snapshot)

    def input(self, source: Source) -> Input | None:
        """The events of it in bronze."""
        return next((each for each in self._snapshot.inputs() if each.source == source.id), None)

    def events(self, source: Source) -> int:
        held = self.input(source)
        return 0 if held is None else held.events

    def settle_ids(self) -> None:
        """Use the mesh id as the name of each source that has another name: see tables/sources.py."""
        for source in list(self.all.values()):
            if self.standing(source).stand is not Stand.CONTINUES:
                continue
            mesh = read_mesh_id(RealDisk(Path(source.path))) or source.mesh
            id = _settled(source, mesh)
            if id != source.id and id in self.all:
                raise Conflict(
                    f"{self.all[id].path} and {source.path} hold the same mesh: its events count twice",
                    hint=forget_command(source.path, self._warehouse),
                )
            was = source.was if id == source.id else (*source.was, source.id)
            self._replace(source, structs.replace(source, id=id, mesh=mesh, was=was))

    def take(self, directory: Path) -> None:
        """Read this directory too: a known mesh from its current place, or a new one."""
        path = str(directory.absolute())
        if not (directory / JOURNAL).is_dir():
            raise NotFound(f"there is no mesh in {path}", hint="name its data directory with --dir")
        same = [(each, self.standing(each, directory)) for each in self.all.values()]
        same = [(each, found) for each, found in same if found.stand is not Stand.OTHER]
        if not same:
            self._add(Source(id="", partition=-1, path=path), directory)
            return
        source, found = min(same, key=lambda pair: (pair[1].stand is not Stand.CONTINUES, pair[0].forgotten))
        if source.forgotten:
            raise Conflict(
                f"{path} holds the mesh {source.id}, which this warehouse was told to forget",
                hint=f"to read it again: {move_command(source.id, path, self._warehouse)}",
            )
        if Path(source.path).resolve() == directory.resolve():
            return
        self._require_continues(source, path, found)
        if self._is_there(source):
            raise Conflict(
                f"{path} and {source.path} hold the same mesh: its events would count twice",
                hint=f"this warehouse reads {source.path}; to read the other in its place: "
                f"{move_command(source.id, path, self._warehouse)}",
            )
        log.warning("the mesh %s moved from %s to %s: it is read on there", source.id, source.path, path)
        self._replace(source, structs.replace(source, path=path))

    def require_in_place(self) -> None:
        """Raise if a source is not at its place: otherwise its events would silently be missing."""
        for source in self.read.values():
            self._require_continues(source, source.path, self.standing(source))

    def named(self, wanted: str) -> Source:
        """By its id, the beginning of one, its path, or a name that it had."""
        path = Path(wanted).expanduser().resolve()
        found = [each for each in self.all.values() if wanted in (each.id, each.path, *each.was)]
        found = found or [each for each in self.all.values() if Path(each.path).resolve() == path]
        found = found or [each for each in self.all.values() if wanted and each.id.startswith(wanted)]
        if len(found) != 1:
            why = "has no source" if not found else f"has {len(found)} sources that begin with"
            raise NotFound(
                f"the warehouse {self._warehouse} {why} {wanted!r:.200}",
                hint="relaymesh pipeline source list",
            )
        return found[0]

    def move(self, source: Source, directory: Path) -> Source:
        """Read `source` from this directory from now on."""
        path = str(directory.absolute())
        found = self.standing(source, directory)
        if found.stand is Stand.OTHER and source.mesh is None and not self._is_there(source):
            found = self._standing_unnamed(source, directory)
        self._require_continues(source, path, found)
        other = next(
            (each for each in self.read.values() if each.id != source.id and each.path == path), None
        )
        if other is not None:
            raise Conflict(f"{path} is read as the source {other.id}", hint="relaymesh pipeline source list")
        moved = structs.replace(source, path=path, forgotten=False)
        self._replace(source, moved)
        self.settle_ids()
        return next(each for each in self.all.values() if each.partition == source.partition)

    def _standing_unnamed(self, source: Source, directory: Path) -> Standing:
        """An older warehouse recorded no id, and its directory is gone: the user confirms that this is the
        mesh."""
        taken = next((each for each in self.all.values() if self._is_other(each, source, directory)), None)
        if taken is not None:
            return Standing(Stand.OTHER)
        return self.standing(structs.replace(source, path=str(directory)), directory)

    def _is_other(self, each: Source, source: Source, directory: Path) -> bool:
        return each.id != source.id and self.standing(each, directory).stand is not Stand.OTHER

    def add_copy(self, source: Source, directory: Path) -> Source:
        """Read a diverged copy as a separate source, from the first event that differs."""
        path = str(directory.absolute())
        found = self.standing(source, directory)
        if found.stand is not Stand.DIVERGED:
            raise Conflict(
                f"{path} is not a diverged copy of {source.id}: {told(found)}",
                hint="relaymesh pipeline source move without --as-new reads a copy in place of what it is of",
            )
        for each in self.all.values():
            if each.id != source.id and self.standing(each, directory).stand is Stand.CONTINUES:
                raise Conflict(f"{path} is known as the source {each.id}", hint="name that one")
        salt = salt_at(directory, found.sequence)
        copy = Source(
            id=f"{source.mesh or source.id}{OF_COPY}{salt}", partition=-1, path=path, first=found.sequence
        )
        return self._add(copy, directory)

    def forget(self, source: Source) -> Source:
        """Stop reading it. Its events stay, and its node need not keep events for this warehouse.

        A source without events in bronze is removed from the list.
        """
        forgotten = structs.replace(source, forgotten=True)
        self._replace(source, forgotten)
        if self.events(source) == 0:
            del self.all[source.id]
        if self.standing(source).stand is Stand.CONTINUES:
            try:
                remove_consumer(RealDisk(Path(source.path)), CONSUMER)
            except OSError as error:
                log.warning("%s goes on keeping events for this warehouse: %s", source.path, error)
        return forgotten

    def _add(self, new: Source, directory: Path) -> Source:
        disk = RealDisk(directory)
        id = new.id or name_of(disk) or new.path
        inputs = self._snapshot.inputs()
        held = [each.partition for each in inputs if each.source == id]  # sources.json was lost
        used = [*(each.partition for each in self.all.values()), *(each.partition for each in inputs)]
        partition = held[0] if held else max(used, default=-1) + 1
        made = structs.replace(new, id=id, mesh=read_mesh_id(disk), partition=partition)
        self.all[id] = made
        return made

    def _replace(self, source: Source, by: Source) -> None:
        self.all = {each.id: each for each in (by if own is source else own for own in self.all.values())}

    def _is_there(self, source: Source) -> bool:
        return self.standing(source).stand not in (Stand.MISSING, Stand.OTHER)

    def _require_continues(self, source: Source, path: str, found: Standing) -> None:
        if found.stand is not Stand.CONTINUES:
            raise refusal(source, path, found, self._warehouse)


def _settled(source: Source, mesh: str | None) -> str:
    """The id it should have. Once it is a mesh id, it stays."""
    if source.mesh is None and mesh is not None:
        return mesh
    if source.mesh is None and source.id == source.path:  # as an older version noted it
        return name_of(RealDisk(Path(source.path))) or source.id
    return source.id
