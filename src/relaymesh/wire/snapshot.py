"""Snapshot pieces to the chunks of a checkpoint, and back."""

from __future__ import annotations

import msgspec

from relaymesh.errors import JournalDamaged
from relaymesh.kernel.snapshot import AnyPiece, EntriesPiece
from relaymesh.wire.records import share_names

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AnyPiece)


def encode_piece(piece: AnyPiece) -> bytes:
    return _encoder.encode(piece)


def decode_piece(chunk: bytes) -> AnyPiece:
    try:
        piece: AnyPiece = _decoder.decode(chunk)
    except msgspec.MsgspecError as error:
        raise JournalDamaged(f"a checkpoint chunk with a valid checksum cannot be read: {error}") from error
    if isinstance(piece, EntriesPiece):
        share_names(entry.envelope for entry in piece.entries)
    return piece
