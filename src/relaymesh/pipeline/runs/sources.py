"""Which data directories feed a warehouse, and which partition each of them is: `sources.json`.

A directory keeps its partition for ever, so a warehouse remembers it. A later run may name more directories;
those that are known are read in any case, or their lag would grow unseen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from relaymesh.errors import Conflict, NotFound
from relaymesh.journal.identity import read_mesh_id
from relaymesh.node.disk import RealDisk
from relaymesh.pipeline.tables.durable import swap_file

__all__ = ["known_sources", "path_option", "remember_sources"]

FILE = "sources.json"


def known_sources(warehouse: Path) -> dict[str, int]:
    """Directory to partition, as earlier runs left it."""
    try:
        return msgspec.json.decode((warehouse / FILE).read_bytes(), type=dict[str, int])
    except FileNotFoundError:
        return {}


def remember_sources(warehouse: Path, directories: Iterable[Path]) -> dict[str, int]:
    """Known directories and these, each new one with the next partition. A copy of a known one is refused."""
    known = known_sources(warehouse)
    sources = dict(known)
    for directory in directories:
        name = str(directory.absolute())
        if not (directory / "journal").is_dir():
            raise NotFound(f"there is no mesh in {name}", hint="name its data directory with --dir")
        twin = None if name in sources else _twin(directory, sources)
        if twin is None:
            sources.setdefault(name, len(sources))
        elif twin.resolve() != directory.resolve():
            raise Conflict(
                f"{name} and {twin} hold the same mesh: its events would count twice",
                hint=f"this warehouse reads {twin}; give a copy that is to be read too another --warehouse",
            )
    if sources != known:
        swap_file(warehouse / FILE, msgspec.json.encode(sources))
    return sources


def _twin(directory: Path, sources: Iterable[str]) -> Path | None:
    """A known directory of the same mesh: another spelling of this one, or a copy."""
    mesh = read_mesh_id(RealDisk(directory))
    known = map(Path, sources)
    return next((each for each in known if mesh and read_mesh_id(RealDisk(each)) == mesh), None)


def path_option(sources: Mapping[str, int]) -> str:
    """The option `path` of the format relaymesh, under which these are read with the names they have here."""
    places = {path: {"partition": number, "name": path} for path, number in sources.items()}
    return msgspec.json.encode(places).decode()
