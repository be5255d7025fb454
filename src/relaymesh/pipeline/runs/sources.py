"""Which data directories feed a warehouse, and which partition each of them is: `sources.json`.

A directory keeps its partition for ever, so a warehouse remembers it. A later run may name more directories;
those that are known are read in any case, or their lag would grow unseen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from relaymesh.errors import NotFound
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
    """Known directories and these, each new one with the next partition."""
    known = known_sources(warehouse)
    sources = dict(known)
    for directory in directories:
        name = str(directory.absolute())
        if not (directory / "journal").is_dir():
            raise NotFound(f"there is no mesh in {name}", hint="name its data directory with --dir")
        sources.setdefault(name, len(sources))
    if sources != known:
        swap_file(warehouse / FILE, msgspec.json.encode(sources))
    return sources


def path_option(sources: Mapping[str, int]) -> str:
    """The option `path` of the format relaymesh, under which these are read with the names they have here."""
    places = {path: {"partition": number, "name": path} for path, number in sources.items()}
    return msgspec.json.encode(places).decode()
