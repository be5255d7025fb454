"""The frame codec: what was encoded comes back, and nothing else is ever accepted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaymesh.errors import FormatTooNew
from relaymesh.journal.frame import DATA, HEADER_BYTES, BadFrame, decode, encode
from tests.journal import stranger

u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)


def made(payload: bytes = b"payload", **changes: int) -> bytes:
    fields: dict[str, Any] = {
        "kind": DATA,
        "salt": 7,
        "epoch": 3,
        "events": 2,
        "first_sequence": 11,
        "mark": 96,
        "written_at_ns": 5,
        "previous_crc": 9,
    }
    return encode(payload, **(fields | changes))[0]


@given(
    payload=st.binary(max_size=300),
    kind=st.integers(0, 4),
    salt=u64,
    epoch=u64,
    events=u32,
    first_sequence=u64,
    mark=u64,
    written_at_ns=u64,
    previous_crc=u32,
)
def test_an_encoded_frame_decodes_to_its_fields(payload: bytes, **fields: Any) -> None:
    data, crc = encode(payload, **fields)
    assert (data, crc) == encode(payload[1:], **fields, before=payload[:1])
    frame = decode(data, segment="s", offset=12)
    assert frame.payload == payload
    assert frame.crc == crc
    assert {name: getattr(frame, name) for name in fields} == fields
    assert (frame.segment, frame.offset, frame.end) == ("s", 12, 12 + len(data))


def test_the_header_is_64_bytes_and_a_stranger_reads_it() -> None:
    data = made(b"hello")
    assert len(data) == HEADER_BYTES + 5 == 69
    (found,) = stranger.frames(data)
    assert (found.first_sequence, found.events, found.mark, found.payload) == (11, 2, 96, b"hello")


@given(st.binary(max_size=400))
def test_garbage_is_a_bad_frame_and_nothing_worse(data: bytes) -> None:
    with pytest.raises(BadFrame):
        decode(data)


@given(st.binary(max_size=200), st.binary(min_size=1, max_size=100))
def test_garbage_behind_the_magic_is_a_bad_frame_too(start: bytes, rest: bytes) -> None:
    with pytest.raises(BadFrame):
        decode(b"RMJF" + start + rest)


def test_every_flipped_bit_and_every_cut_is_a_bad_frame() -> None:
    data = made()
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BadFrame):
            decode(bytes(flipped))
    for size in range(len(data)):
        with pytest.raises(BadFrame):
            decode(data[:size])


def test_a_whole_frame_of_a_newer_version_is_not_called_damage() -> None:
    data = bytearray(made())
    data[4] = 2
    data[60:64] = stranger.crc32c(bytes(data[:60] + data[64:])).to_bytes(4, "little")
    with pytest.raises(FormatTooNew, match="version 2"):
        decode(bytes(data))
