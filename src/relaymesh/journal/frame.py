"""The frame: all records of one commit behind one checksum, read back wholly or not at all.

    offset size field
         0    4 magic            b"RMJF"
         4    1 version          1
         5    1 kind             DATA, SEGMENT, CHECKPOINT, CHUNK or END
         6    2 flags            0; a set bit means a newer writer
         8    8 salt             the segment's own random number
        16    8 epoch            which start of the node wrote this
        24    4 length           of the payload, in bytes
        28    4 events           how many sequence numbers the payload takes
        32    8 first sequence
        40    8 mark             all bytes of this segment below this offset were synced
        48    8 written at       nanoseconds since 1970
        56    4 previous CRC     the frame before this one
        60    4 CRC              CRC-32C of bytes 0..59 and the payload
        64      payload

Little-endian throughout. The layout of these 64 bytes is the same in every version, so that any
reader can tell "newer than me" from "damaged".
"""

from __future__ import annotations

import struct

import msgspec
from crc32c import crc32c

from relaymesh.errors import FormatTooNew

__all__ = [
    "CHECKPOINT",
    "CHUNK",
    "DATA",
    "END",
    "HEADER_BYTES",
    "MAGIC",
    "SEGMENT",
    "VERSION",
    "BadFrame",
    "Frame",
    "decode",
    "encode",
    "frame_bytes",
    "span_of",
]

MAGIC = b"RMJF"
VERSION = 1
DATA, SEGMENT, CHECKPOINT, CHUNK, END = range(5)

_LAYOUT = struct.Struct("<4sBBHQQIIQQQI")
_START = struct.Struct("<4s20xI")  # magic and length: enough to find the end
_SPAN = struct.Struct("<28xIQ")  # events and first sequence
_CRC = struct.Struct("<I")
_CRC_AT = _LAYOUT.size
HEADER_BYTES = _CRC_AT + _CRC.size
PAYLOAD_BYTES_MAX = 2**32 - 1


class BadFrame(Exception):
    """These bytes are not a frame. What that means depends on where they lie: see `verdict.py`."""


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One frame as read. `segment` is the file's name and `offset` where it begins there."""

    kind: int
    salt: int
    epoch: int
    events: int
    first_sequence: int
    mark: int
    written_at_ns: int
    previous_crc: int
    crc: int
    payload: bytes
    segment: str
    offset: int

    @property
    def next_sequence(self) -> int:
        return self.first_sequence + self.events

    @property
    def end(self) -> int:
        """The offset behind the frame."""
        return self.offset + HEADER_BYTES + len(self.payload)


def encode(
    payload: bytes,
    *,
    kind: int,
    salt: int,
    epoch: int,
    events: int,
    first_sequence: int,
    mark: int,
    written_at_ns: int,
    previous_crc: int,
    before: bytes = b"",
) -> tuple[bytes, int]:
    """The frame's bytes and its CRC. `before` begins the payload: joined here, where all is copied once."""
    head = _LAYOUT.pack(
        MAGIC,
        VERSION,
        kind,
        0,
        salt,
        epoch,
        len(before) + len(payload),
        events,
        first_sequence,
        mark,
        written_at_ns,
        previous_crc,
    )
    crc = crc32c(payload, crc32c(head + before))
    return b"".join((head, _CRC.pack(crc), before, payload)), crc


def frame_bytes(header: bytes | memoryview) -> int:
    """How long the frame with this header says it is, in bytes, header included; raises `BadFrame`."""
    if len(header) < HEADER_BYTES:
        raise BadFrame("the file ends inside a frame header")
    magic, length = _START.unpack_from(header)
    if magic != MAGIC:
        raise BadFrame("no frame begins here")
    return HEADER_BYTES + int(length)


def span_of(header: bytes | memoryview) -> tuple[int, int, int]:
    """Of the frame with this header: its bytes, its first sequence, the one behind it; raises `BadFrame`.

    Nothing is checked: the checksum is that of the whole frame.
    """
    size = frame_bytes(header)
    events, first = _SPAN.unpack_from(header)
    return size, first, first + events


def decode(data: bytes | memoryview, *, segment: str = "", offset: int = 0) -> Frame:
    """Decode the one frame that fills `data`; raises `BadFrame`, or `FormatTooNew` for a whole, newer one."""
    if frame_bytes(data) != len(data):
        raise BadFrame("the file ends inside a frame")
    _, version, kind, flags, salt, epoch, _, events, first, mark, written_at_ns, before = _LAYOUT.unpack_from(
        data
    )
    payload = bytes(data[HEADER_BYTES:])
    crc = crc32c(payload, crc32c(data[:_CRC_AT]))
    if crc != _CRC.unpack_from(data, _CRC_AT)[0]:
        raise BadFrame("the checksum does not match")
    # Only behind a matching checksum: a flipped version bit is damage, not news from the future.
    if version != VERSION or flags or kind > END:
        frame = f"a frame of version {version}, kind {kind}, flags {flags}"
        raise FormatTooNew(f"{segment} has {frame} at offset {offset}")
    return Frame(kind, salt, epoch, events, first, mark, written_at_ns, before, crc, payload, segment, offset)
