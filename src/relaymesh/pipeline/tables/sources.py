"""`sources.json`: which meshes feed a warehouse, which partition each of them is, and where it was seen last.

    {"format": 2, "sources": {"<mesh id>": {"partition": 0, "path": "/data", …}, …}}

A source is a mesh, never a path: a directory is moved, copied and named in several ways. The older form,
{"<path>": <partition>}, is read too; the next run writes it anew (see runs/sources.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import structs

from relaymesh.errors import FormatTooNew, JournalDamaged
from relaymesh.pipeline.tables.durable import swap_file
from relaymesh.pipeline.tables.seal import is_broken, sealed

__all__ = ["SOURCES", "Source", "earlier_names", "known_sources", "save_sources", "under_its_id"]

SOURCES = "sources.json"
FORMAT = 2


class Source(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One mesh that is read.

    id: what the tables call it: its mesh id. Until the directory has one, `journal-` and the salt of its
        oldest segment; for a copy that is read as a source of its own, the mesh id, `+` and a salt.
    path: where it was read last.
    mesh: the mesh id its directory had then; None when it had none, or an older version noted it.
    was: names that older parts of the warehouse have for it.
    first: the first event that is read; those before it belong to the source it was copied from.
    forgotten: it is no longer read.
    """

    id: str
    partition: int
    path: str
    mesh: str | None = None
    was: tuple[str, ...] = ()
    first: int = 0
    forgotten: bool = False


def known_sources(warehouse: Path) -> dict[str, Source]:
    """By id, as earlier runs left them."""
    path = warehouse / SOURCES
    try:
        text = path.read_bytes()
        if is_broken(text):
            raise _damaged(path, "was changed: its checksum is another")
        stored = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        found = _current(stored, path) if "format" in stored else _older(stored)
    except FileNotFoundError:
        return {}
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise _damaged(path, f"does not read back: {error}") from None
    if len({each.partition for each in found}) < len(found) or any(each.partition < 0 for each in found):
        raise _damaged(path, "gives two sources one partition")
    return {each.id: each for each in found}


def _current(stored: Mapping[str, msgspec.Raw], path: Path) -> list[Source]:
    number = msgspec.json.decode(stored["format"], type=int)
    if number > FORMAT:
        raise FormatTooNew(f"{path} has format {number}, not {FORMAT}")
    sources = msgspec.json.decode(stored["sources"], type=dict[str, dict[str, object]])
    return [msgspec.convert({**fields, "id": id}, Source) for id, fields in sources.items()]


def _older(stored: Mapping[str, msgspec.Raw]) -> list[Source]:
    return [
        Source(id=path, partition=msgspec.json.decode(number, type=int), path=path)
        for path, number in stored.items()
    ]


def _damaged(path: Path, why: str) -> JournalDamaged:
    hint = "restore it from a copy; or remove it, and name every data directory: relaymesh pipeline run --dir"
    return JournalDamaged(f"{path} {why}", hint=hint)


def save_sources(warehouse: Path, sources: Iterable[Source]) -> None:
    """Replace the file."""
    by_id = {}
    for each in sources:
        fields = msgspec.to_builtins(each)
        by_id[fields.pop("id")] = fields
    form = {"format": FORMAT, "sources": by_id}
    swap_file(warehouse / SOURCES, sealed(msgspec.json.format(msgspec.json.encode(form), indent=1)))


_Named = TypeVar("_Named", bound=msgspec.Struct)


def under_its_id(named: _Named, names: Mapping[str, str]) -> _Named:
    """A struct with the field `source`, with the id there in place of an earlier name."""
    source = getattr(named, "source")  # noqa: B009 - the type variable does not know the field
    return structs.replace(named, source=names[source]) if source in names else named


def earlier_names(sources: Iterable[Source]) -> dict[str, str]:
    """From what older parts of the warehouse call a source to its id."""
    return {name: each.id for each in sources for name in each.was}
