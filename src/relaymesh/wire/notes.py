"""Notes on names that a sender probably mistyped: kept as they are, and the receipt says so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from relaymesh.wire.message import Message, Metadata
from relaymesh.wire.near import Names

NOTES_MAX = 8
LOOKED_AT_MAX = 32
"""Names of one message that are compared: a sender with more has fields of its own."""

_METADATA = "metadata."
_at_top = Names(Message.__struct_encode_fields__)
_in_metadata = Names(set(Metadata.__struct_encode_fields__) - {"retryCount", "originId"})
"""Without those that only the mesh writes."""


def slips(at_top: Iterable[str], in_metadata: Iterable[str]) -> tuple[str, ...]:
    """A note for each unknown name that is close to a known one, in the same place or in the other."""
    return tuple(islice(_notes(at_top, in_metadata), NOTES_MAX))


def _notes(at_top: Iterable[str], in_metadata: Iterable[str]) -> Iterator[str]:
    for name in islice(in_metadata, LOOKED_AT_MAX):
        yield from _note(_METADATA + name, _metadata(name) or _at_top.nearest(name))
    for name in islice(at_top, LOOKED_AT_MAX):
        yield from _note(name, _at_top.nearest(name) or _metadata(name))


def _metadata(name: str) -> str | None:
    meant = _in_metadata.nearest(name)
    return None if meant is None else _METADATA + meant


def _note(name: str, meant: str | None) -> Iterator[str]:
    if meant is not None:
        yield f"`{name}` is no field of the protocol and was kept as it is; did you mean `{meant}`?"
