"""Snapshot pieces to the chunks of a checkpoint, and back."""

from __future__ import annotations

from typing import get_args

import msgspec

from relaymesh.errors import JournalDamaged, MeshError
from relaymesh.kernel.snapshot import AnyPiece, EntriesPiece
from relaymesh.wire.old_forms import REFUSED, in_new_form
from relaymesh.wire.records import share_names

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AnyPiece)
_PIECES_BY_TAG: dict[int, type] = {kind.__struct_config__.tag: kind for kind in get_args(AnyPiece)}


def encode_piece(piece: AnyPiece) -> bytes:
    return _encoder.encode(piece)


def decode_piece(chunk: bytes) -> AnyPiece:
    """The piece, also where an earlier release wrote it in one of the listed old forms."""
    try:
        piece: AnyPiece = _decoder.decode(chunk)
    except REFUSED as error:
        piece = _decode_old(chunk, error)
    if isinstance(piece, EntriesPiece):
        share_names(entry.envelope for entry in piece.entries)
    return piece


def _decode_old(chunk: bytes, refused: Exception) -> AnyPiece:
    replaced = in_new_form(chunk, _PIECES_BY_TAG)
    if replaced is not None:
        try:
            piece: AnyPiece = _decoder.decode(replaced)
            return piece
        except REFUSED as error:
            refused = error
    why = refused.message if isinstance(refused, MeshError) else str(refused)
    raise JournalDamaged(f"a checkpoint chunk with a valid checksum cannot be read: {why}") from refused
