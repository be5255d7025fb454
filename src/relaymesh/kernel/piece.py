"""A piece of a snapshot: the base of all kinds of them, and how large one may be."""

from __future__ import annotations

import msgspec

PIECE_SIZE = 1_000
PIECE_BYTES = 1_000_000
"""A piece ends with the entry, letter or step that fills it: it is encoded, written and read as a whole."""


class Piece(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One piece; its tag tells its kind."""
