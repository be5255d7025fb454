"""Records to the payload of a frame, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from sys import intern
from typing import get_args

import msgspec
from msgspec.structs import force_setattr

from relaymesh.errors import FormatTooNew, JournalDamaged, MeshError, RecordUnreadable
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.records import Accepted, Acked, AnyRecord, Granted, Published, StepsSent
from relaymesh.wire.old_forms import REFUSED, in_new_form

MUST_UNDERSTAND_BELOW = 128
"""Operations from here on may be skipped by a reader that does not know them."""

FREQUENT = frozenset({Accepted, Published, Granted, Acked, StepsSent})

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[AnyRecord])
_raw_decoder = msgspec.msgpack.Decoder(list[msgspec.Raw])
_one_decoder = msgspec.msgpack.Decoder(AnyRecord)
_number_decoder = msgspec.msgpack.Decoder(int)

SHOW = "relaymesh journal set-aside"
DO = "with --yes --reason TEXT it is set aside and the next start passes over it"

RECORDS_BY_OPERATION: dict[int, type] = {kind.__struct_config__.tag: kind for kind in get_args(AnyRecord)}


class Skipped(msgspec.Struct, frozen=True, gc=False):
    """A record of a newer version that may be ignored. It still uses up its sequences."""

    operation: int
    count: int


class Unreadable(msgspec.Struct, frozen=True, gc=False):
    """A record that must be understood and is not: neither today's form nor a listed old one."""

    operation: int
    count: int
    raw: bytes
    why: str

    @property
    def known(self) -> bool:
        """Whether this version has the operation: if not, a newer one wrote it."""
        return self.operation in RECORDS_BY_OPERATION

    def error(self, place: str, sequence: int | None = None) -> FormatTooNew | RecordUnreadable:
        """The refusal. `place` says where the record lies, `sequence` is its first one."""
        if not self.known:
            return FormatTooNew(f"{place}: operation {self.operation} is not one that this version knows")
        name = RECORDS_BY_OPERATION[self.operation].__name__
        return RecordUnreadable(
            f"{place}: operation {self.operation} ({name}) of {_events(self.count)} is in a form that cannot"
            f" be read: {self.why}",
            hint=None if sequence is None else f"{SHOW} --sequence {sequence} shows what it named; {DO}",
        )


def _events(count: int) -> str:
    return "1 event" if count == 1 else f"{count} events"


def encode_records(records: Sequence[AnyRecord]) -> bytes:
    return _encoder.encode(records)


def _encode_and_read_back(record: AnyRecord) -> bytes:
    data = _encoder.encode(record)
    if _one_decoder.decode(data) != record:
        raise ValueError("it reads back as something else")
    return data


ENCODERS: dict[type, Callable[[AnyRecord], bytes]] = {
    kind: _encoder.encode if kind in FREQUENT else _encode_and_read_back
    for kind in RECORDS_BY_OPERATION.values()
}
"""How to make the bytes of a record, by its type. A rare one is read back at once: it must be what it was.

The frequent ones hold envelopes that were checked when they were built, and numbers that the kernel made.
"""


def payload_of(encoded: Sequence[bytes]) -> tuple[bytes, bytes]:
    """The payload of a frame, from records that were encoded one by one: how it begins, and the rest.

    One record, as it mostly is, is not copied.
    """
    if len(encoded) == 1:
        return b"\x91", encoded[0]  # as `_array_head` has it
    return _array_head(len(encoded)), b"".join(encoded)


def _array_head(count: int) -> bytes:
    """How MessagePack begins an array of so many items."""
    if count < 16:
        return bytes((0x90 | count,))
    return b"\xdc" + count.to_bytes(2, "big") if count < 1 << 16 else b"\xdd" + count.to_bytes(4, "big")


def decode_records(payload: bytes) -> list[AnyRecord] | list[AnyRecord | Skipped]:
    """The records of one frame. An operation that must be understood and is not raises `FormatTooNew` when it
    is unknown, `RecordUnreadable` when its form is."""
    try:
        return _decoder.decode(payload)
    except REFUSED:
        records: list[AnyRecord | Skipped] = []
        for index, record in enumerate(_decode_one_by_one(payload)):
            if isinstance(record, Unreadable):
                raise record.error(f"record {index} of a frame") from None
            records.append(record)
        return records


def read_records(payload: bytes) -> Sequence[AnyRecord | Skipped | Unreadable]:
    """The records of one frame, also where some cannot be read. Raises `JournalDamaged` if it holds none."""
    try:
        return _decoder.decode(payload)
    except REFUSED:
        return _decode_one_by_one(payload)


def share_names(envelopes: Iterable[Envelope]) -> None:
    """Let equal senders and types be one object: for a million messages that is 120 MB."""
    for envelope in envelopes:
        force_setattr(envelope, "sender", intern(envelope.sender))
        force_setattr(envelope, "type", intern(envelope.type))


def _decode_one_by_one(payload: bytes) -> list[AnyRecord | Skipped | Unreadable]:
    try:
        raws = _raw_decoder.decode(payload)
    except msgspec.MsgspecError as error:
        raise JournalDamaged(f"a frame with a valid checksum holds no records: {error}") from error
    return [_decode_one(raw) for raw in raws]


def _decode_one(raw: msgspec.Raw) -> AnyRecord | Skipped | Unreadable:
    record: AnyRecord
    try:
        record = _one_decoder.decode(raw)
        return record
    except REFUSED as error:
        refused = error
    replaced = in_new_form(raw, RECORDS_BY_OPERATION)
    if replaced is not None:
        try:
            record = _one_decoder.decode(replaced)
            return record
        except REFUSED as error:
            refused = error
    return _unread(raw, refused)


def _unread(raw: msgspec.Raw, refused: Exception) -> Skipped | Unreadable:
    try:
        head = _raw_decoder.decode(raw)[:2]
        operation, count = map(_number_decoder.decode, head)
    except (*REFUSED, ValueError) as error:
        raise JournalDamaged(f"a record does not begin with two numbers: {error}") from error
    if count < 0:
        raise JournalDamaged(f"a record says that it has {count} events")
    if operation < MUST_UNDERSTAND_BELOW:
        why = refused.message if isinstance(refused, MeshError) else str(refused)
        return Unreadable(operation, count, bytes(raw), why)
    return Skipped(operation, count)
