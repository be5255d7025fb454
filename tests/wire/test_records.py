"""Records as bytes: what may be skipped is skipped, what must be understood stops the reader."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaymesh.errors import FormatTooNew, JournalDamaged, MeshError, RecordUnreadable
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.records import Accepted, Acked, AgentRegistered, AnyRecord, EpochStarted, Granted
from relaymesh.wire.records import Skipped, decode_records, encode_records
from relaymesh.wire.snapshot import decode_piece

RECORDS: list[AnyRecord] = [
    EpochStarted(1, 5, 7),
    Accepted(
        2,
        6,
        "default/coder",
        [Envelope("a", "default/x", b"1"), Envelope("b", "default/x", b"2", tags=("t",))],
    ),
    Granted(1, 7, "default/coder", "process-1", 9, [2]),
    Acked(1, 8, "default/coder", [2]),
    AgentRegistered(1, 9, "default/coder", "developer", ("python",), "1.1", b'{"a":1}', True),
]


def test_records_come_back_as_they_were() -> None:
    assert decode_records(encode_records(RECORDS)) == RECORDS


def test_an_operation_from_128_on_may_be_skipped_and_keeps_its_sequences() -> None:
    payload = msgspec.msgpack.encode([[200, 3, 0, "from the future"], RECORDS[3]])
    assert decode_records(payload) == [Skipped(200, 3), RECORDS[3]]


@pytest.mark.parametrize(
    ("record", "error"),
    [([100, 1, 0], FormatTooNew), ([8, 1, "not a time", "default/coder", [2]], RecordUnreadable)],
)
def test_an_operation_below_128_must_be_understood(record: list[object], error: type[MeshError]) -> None:
    with pytest.raises(error, match=f"operation {record[0]}"):
        decode_records(msgspec.msgpack.encode([record]))


def test_fields_appended_by_a_newer_version_are_ignored() -> None:
    longer = [8, 1, 8, "default/coder", [2], "a field of the future"]
    assert decode_records(msgspec.msgpack.encode([longer])) == [RECORDS[3]]


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    for decode in (decode_records, decode_piece):
        with contextlib.suppress(JournalDamaged, FormatTooNew, RecordUnreadable):
            decode(data)


values = st.recursive(
    st.none() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=3) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=10,
)


@settings(max_examples=300, deadline=None)
@given(values)
def test_any_msgpack_decodes_or_is_refused(value: object) -> None:
    for decode in (decode_records, decode_piece):
        with contextlib.suppress(JournalDamaged, FormatTooNew, RecordUnreadable):
            decode(msgspec.msgpack.encode(value))
