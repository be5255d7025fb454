"""Messages in the form of the HTTP API, to and from envelopes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
from msgspec import UNSET, Raw

from relaymesh.kernel.dead_letters import DeadLetter
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.pending import STATE_NAMES, Pending
from relaymesh.kernel.records import Failure
from relaymesh.kernel.step import Receipt
from relaymesh.wire.api import DeadLetterBody, EntryBody, ReceiptBody
from relaymesh.wire.protocol import message_json, parse_message

Groups = Sequence[tuple[str, Sequence[Envelope]]]

_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode


class _Origin(msgspec.Struct, rename="camel"):
    origin_id: str | None = None


class _MetadataOnly(msgspec.Struct):
    type: str = "message"
    metadata: _Origin = msgspec.field(default_factory=_Origin)


_decode_rest = msgspec.json.Decoder(_MetadataOnly).decode


def batch_body(groups: Groups) -> bytes:
    """The body of a send: an array of messages."""
    return _array([_message(envelope, to) for to, envelopes in groups for envelope in envelopes])


def topic_body(envelopes: Sequence[Envelope]) -> bytes:
    return _array([_message(envelope, None) for envelope in envelopes])


def messages_of(groups: Groups) -> list[Raw]:
    return [Raw(_message(envelope, to)) for to, envelopes in groups for envelope in envelopes]


def _array(messages: list[bytes]) -> bytes:
    return b"[" + b",".join(messages) + b"]"


def _message(envelope: Envelope, to: str | None) -> bytes:
    data = message_json(envelope, to or "", 0)
    fields = _decode_fields(data)
    if to is None:
        del fields["to"]
    if envelope.timestamp_ms is None:
        del fields["timestamp"]
    return _encode(fields)


def envelope_of(message: Raw) -> Envelope:
    """The envelope as the mesh delivered it: it may also be an `ack` or `nack` of the mesh itself."""
    fields = _decode_fields(message)
    rest = _decode_rest(message)
    fields.pop("type", None)
    incoming = parse_message(Raw(_encode(fields)), new_id=str, limit=len(bytes(message)))
    return msgspec.structs.replace(incoming.envelope, type=rest.type, origin=rest.metadata.origin_id)


def ms_of(time: str) -> int:
    """Milliseconds since 1970 of an ISO 8601 time."""
    return round(datetime.fromisoformat(time).timestamp() * 1000)


def receipts_of(bodies: Sequence[ReceiptBody], *, first: bool) -> list[Receipt]:
    """`first`: count a duplicate as accepted: it is our own repeat after a lost answer."""
    return [
        Receipt(
            body.message_id,
            body.sequence,
            body.duplicate and not first,
            body.targets,
            0
            if isinstance(body.scheduled_delivery_time, msgspec.UnsetType)
            else ms_of(body.scheduled_delivery_time),
        )
        for body in bodies
    ]


def letter_of(body: DeadLetterBody) -> DeadLetter:
    return DeadLetter(
        body.receiver,
        body.sequence,
        body.dead_sequence,
        ms_of(body.failed_at),
        ms_of(body.accepted_at),
        body.reason,
        envelope_of(body.message),
        body.attempts,
        body.redrives,
        [Failure(each.attempt, ms_of(each.at), each.code, each.reason, each.stack) for each in body.failures],
        body.status,
        redriven_as="" if body.redriven_as is UNSET else body.redriven_as,
        topic=None if body.topic is UNSET else body.topic,
    )


def pending_of(body: EntryBody) -> Pending:
    return Pending(
        envelope_of(body.message),
        body.sequence,
        ms_of(body.accepted_at),
        ms_of(body.due_at),
        ms_of(body.ready_at),
        body.sequence,
        body.priority,
        STATE_NAMES.index(body.state),
        body.attempts,
        0,
        body.redrives,
        False,
        None,
    )
