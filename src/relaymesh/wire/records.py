"""Records to the payload of a frame, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from sys import intern

import msgspec
from msgspec.structs import force_setattr

from relaymesh.errors import FormatTooNew, JournalDamaged
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.records import AnyRecord

MUST_UNDERSTAND_BELOW = 128
"""Operations from here on may be skipped by a reader that does not know them."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[AnyRecord])
_raw_decoder = msgspec.msgpack.Decoder(list[msgspec.Raw])
_one_decoder = msgspec.msgpack.Decoder(AnyRecord)
_head_decoder = msgspec.msgpack.Decoder(list[object])


class Skipped(msgspec.Struct, frozen=True, gc=False):
    """A record of a newer version that may be ignored. It still uses up its sequences."""

    operation: int
    count: int


def encode_records(records: Sequence[AnyRecord]) -> bytes:
    return _encoder.encode(records)


def decode_records(payload: bytes) -> list[AnyRecord] | list[AnyRecord | Skipped]:
    """The records of one frame. Raises `FormatTooNew` for an operation that must be understood and is not."""
    try:
        return _decoder.decode(payload)
    except msgspec.MsgspecError:
        return _decode_one_by_one(payload)


def share_names(envelopes: Iterable[Envelope]) -> None:
    """Let equal senders and types be one object: for a million messages that is 120 MB."""
    for envelope in envelopes:
        force_setattr(envelope, "sender", intern(envelope.sender))
        force_setattr(envelope, "type", intern(envelope.type))


def _decode_one_by_one(payload: bytes) -> list[AnyRecord | Skipped]:
    records: list[AnyRecord | Skipped] = []
    try:
        for raw in _raw_decoder.decode(payload):
            try:
                records.append(_one_decoder.decode(raw))
            except msgspec.ValidationError:
                records.append(_skip(raw))
    except msgspec.MsgspecError as error:
        raise JournalDamaged(f"a frame with a valid checksum holds no records: {error}") from error
    return records


def _skip(raw: msgspec.Raw) -> Skipped:
    head = _head_decoder.decode(raw)
    operation, count = head[:2] if len(head) > 1 else (None, None)
    if not isinstance(operation, int) or not isinstance(count, int):
        raise JournalDamaged(f"a record begins with {operation!r}, {count!r} where two numbers belong")
    if operation < MUST_UNDERSTAND_BELOW:
        raise FormatTooNew(
            f"the journal holds operation {operation}, or a form of it, that this version cannot read"
        )
    return Skipped(operation, count)
