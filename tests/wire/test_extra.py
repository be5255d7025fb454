"""A sender's own fields: kept, bounded, and never mistaken for what the mesh itself says."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from relaymesh.errors import InvalidEnvelope
from relaymesh.kernel.envelope import Encoding, Envelope
from relaymesh.wire.envelope import build_envelope, check_envelope, envelope_json
from relaymesh.wire.extra import (
    EXTRA_NAME_LENGTH_MAX,
    EXTRA_NAMES_MAX,
    LEASE_NAMES,
    MESSAGE_NAMES,
    METADATA_NAMES,
    check_extra,
)
from relaymesh.wire.message import Message, Metadata
from relaymesh.wire.protocol import message_json, parse_message

FORGED = "forged"
TOP_NAMES = sorted(MESSAGE_NAMES - {"metadata"})
BARE = Envelope("m", "default/planner", b"1")
FULL = Envelope(
    "m",
    "default/planner",
    b"1",
    task="t",
    key="k",
    correlation_id="c",
    reply_to="default/planner",
    requires_ack=True,
    tags=("a",),
    trace="00",
    max_retries=1,
    origin="o",
    timestamp_ms=1,
    delay_ms=1,
)


def holding(extra: dict[str, Any], envelope: Envelope = BARE) -> Envelope:
    """An envelope as an old journal may hold it: unchecked."""
    return msgspec.structs.replace(envelope, extra=json.dumps(extra).encode())


def everything_forged() -> dict[str, Any]:
    return {
        **dict.fromkeys(TOP_NAMES, FORGED),
        "mine": 1,
        "metadata": {**dict.fromkeys(METADATA_NAMES, FORGED), "mine": 2},
    }


# -- which names


def test_every_name_that_the_mesh_reads_or_writes_is_reserved() -> None:
    for name in set(Message.__struct_encode_fields__) - {"metadata"}:
        with pytest.raises(InvalidEnvelope):
            check_extra(json.dumps({name: 1}).encode(), 1000)
    assert set(Metadata.__struct_encode_fields__) <= METADATA_NAMES
    for envelope in (FULL, msgspec.structs.replace(FULL, encoding=Encoding.BYTES)):
        for shown in (
            json.loads(message_json(envelope, "default/coder", 0)),
            envelope_json(envelope, "c", 0),
        ):
            assert shown.keys() <= MESSAGE_NAMES
            assert shown["metadata"].keys() <= METADATA_NAMES
    assert {"leaseToken", "attempt", "deadline", "mailbox", "sequence"} <= LEASE_NAMES


# -- in


@pytest.mark.parametrize("name", TOP_NAMES)
def test_a_field_of_the_message_is_refused_in_extra(name: str) -> None:
    with pytest.raises(InvalidEnvelope, match=f"'{name}'"):
        build_envelope("default/planner", 1, id="m", extra={name: FORGED})
    with pytest.raises(InvalidEnvelope, match=f"'{name}'"):
        check_envelope(holding({name: FORGED}))


@pytest.mark.parametrize("name", sorted(METADATA_NAMES))
def test_a_field_of_the_metadata_is_refused_in_the_metadata_of_extra(name: str) -> None:
    with pytest.raises(InvalidEnvelope, match=f"'{name}'"):
        build_envelope("default/planner", 1, id="m", extra={"metadata": {name: FORGED}})
    with pytest.raises(InvalidEnvelope, match=f"'{name}'"):
        check_envelope(holding({"metadata": {name: FORGED}}))


@pytest.mark.parametrize("metadata", [1, "text", [], None])
def test_the_metadata_of_extra_is_an_object(metadata: Any) -> None:
    with pytest.raises(InvalidEnvelope, match="metadata must be a JSON object"):
        check_envelope(holding({"metadata": metadata}))


def test_an_escaped_name_is_the_same_name() -> None:
    with pytest.raises(InvalidEnvelope, match="leaseToken"):
        check_envelope(msgspec.structs.replace(BARE, extra=rb'{"\u006ceaseToken": 1}'))


@pytest.mark.parametrize("wrap", [lambda fields: fields, lambda fields: {"metadata": fields}])
def test_names_of_extra_are_bounded_in_count_and_length(wrap: Any) -> None:
    at_most = {f"n{number}": number for number in range(EXTRA_NAMES_MAX)}
    check_envelope(holding(wrap(at_most)))
    with pytest.raises(InvalidEnvelope, match=f"the limit is {EXTRA_NAMES_MAX}"):
        check_envelope(holding(wrap({**at_most, "one more": 1})))
    check_envelope(holding(wrap({"n" * EXTRA_NAME_LENGTH_MAX: 1})))
    with pytest.raises(InvalidEnvelope, match=f"the limit is {EXTRA_NAME_LENGTH_MAX}"):
        check_envelope(holding(wrap({"n" * (EXTRA_NAME_LENGTH_MAX + 1): 1})))


def test_unknown_fields_of_the_protocol_have_the_same_bounds() -> None:
    def parse(fields: dict[str, Any]) -> Envelope:
        return parse_message({"content": 1, **fields}, new_id=lambda: "m").envelope

    many = {f"n{number}": number for number in range(EXTRA_NAMES_MAX + 1)}
    long = {"n" * (EXTRA_NAME_LENGTH_MAX + 1): 1}
    for fields in (many, long, {"metadata": many}, {"metadata": long}):
        with pytest.raises(InvalidEnvelope, match="the limit is"):
            parse(fields)
    assert parse({"mine": 1, "metadata": {"mine": 2}}).extra == b'{"mine":1,"metadata":{"mine":2}}'


def test_a_delivery_may_be_sent_on_as_it_came() -> None:
    """Its lease's fields are left out, and what only the mesh knows is not taken from it."""
    delivery = {
        "content": 1,
        **dict.fromkeys(LEASE_NAMES, FORGED),
        "metadata": {"originId": FORGED, "retryCount": FORGED},
    }
    envelope = parse_message(delivery, new_id=lambda: "m").envelope
    assert FORGED not in message_json(envelope, "default/coder", 0).decode()


# -- out


@pytest.mark.parametrize("envelope", [BARE, FULL])
def test_forged_fields_of_an_old_journal_are_not_shown(envelope: Envelope) -> None:
    genuine = json.loads(message_json(envelope, "default/coder", 0))
    genuine["mine"], genuine["metadata"]["mine"] = 1, 2
    forged = holding(everything_forged(), envelope)
    assert json.loads(message_json(forged, "default/coder", 0)) == genuine
    assert FORGED not in json.dumps(envelope_json(forged, "default/coder", 0))
    assert envelope_json(forged, "default/coder", 0)["metadata"]["mine"] == 2
