"""Records to the payload of a frame, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from sys import intern

import msgspec
from msgspec.structs import force_setattr

from relaymesh.errors import FormatTooNew, JournalDamaged
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.records import Accepted, Acked, AnyRecord, Granted, Published

MUST_UNDERSTAND_BELOW = 128
"""Operations from here on may be skipped by a reader that does not know them."""

FREQUENT = frozenset({Accepted, Published, Granted, Acked})

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


def encode_record(record: AnyRecord) -> bytes:
    """One record. One of a kind that is rare is read back at once: it must be what it was.

    The others hold envelopes that were checked when they were built, and numbers that the kernel made.
    """
    data = _encoder.encode(record)
    if type(record) not in FREQUENT and _one_decoder.decode(data) != record:
        raise ValueError("it reads back as something else")
    return data


def join_records(encoded: Sequence[bytes]) -> bytes:
    """The payload of a frame, from records that were encoded one by one."""
    return b"".join((_array_head(len(encoded)), *encoded))


def _array_head(count: int) -> bytes:
    """How MessagePack begins an array of so many items."""
    if count < 16:
        return bytes((0x90 | count,))
    return b"\xdc" + count.to_bytes(2, "big") if count < 1 << 16 else b"\xdd" + count.to_bytes(4, "big")


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
