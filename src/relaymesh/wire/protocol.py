"""Mailbox protocol 1.1: messages as JSON, to envelopes and back.

In: `parse_message` checks everything that a reader could stumble over and nothing about who speaks: the
caller stamps the sender and completes the addresses. Content stays the bytes it came in. Fields this
version does not know survive the relay, value for value, at the top as in `metadata`.

Out: `message_json` is the message under its protocol names, `delivery_json` the same with its lease.

What only the mesh can know is never taken from a sender: `metadata.retryCount` and `metadata.originId`
come from the journal, and a lease's fields on a message that is sent on are left out.
"""

from __future__ import annotations

import binascii
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec import Raw

from relaymesh.errors import InvalidEnvelope
from relaymesh.kernel.deliveries import DeliveryRow
from relaymesh.kernel.envelope import PRIORITY_BY_TYPE, PRIORITY_DEFAULT, TTL_MS_DEFAULT, Encoding, Envelope
from relaymesh.kernel.token import format_token
from relaymesh.wire.content import (
    DEPTH_MAX,
    PAYLOAD_BYTES_MAX,
    check_size,
    check_sound,
    encode_content,
)
from relaymesh.wire.envelope import check_id, check_text, iso, parse_delay, parse_priority, parse_ttl
from relaymesh.wire.extra import (
    LEASE_NAMES,
    METADATA,
    check_count,
    check_extra,
    unforged,
    unforged_metadata,
)
from relaymesh.wire.message import PROTOCOL_VERSION, Message, Metadata
from relaymesh.wire.notes import slips
from relaymesh.wire.outgoing import DeliveryOut, MessageOut, MetadataOut
from relaymesh.wire.types import check_queued

_decode_message = msgspec.json.Decoder(Message).decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode
_MESSAGE_FIELDS = frozenset(Message.__struct_encode_fields__)
_METADATA_FIELDS = frozenset(Metadata.__struct_encode_fields__)
_JSON, _BYTES = int(Encoding.JSON), int(Encoding.BYTES)
_NO_METADATA = Metadata()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class Incoming(msgspec.Struct, frozen=True, gc=False):
    """A checked message. `to` and `sender` are as given: the caller stamps and completes them."""

    to: str | None
    sender: str | None
    envelope: Envelope
    """Its `sender` and `reply_to` are as given too, and `""` where none was."""
    given_id: bool = False
    """Whether the id came with the message, so that it may be known already."""
    notes: tuple[str, ...] = ()
    """What was not taken literally."""


def parse_message(
    data: bytes | Raw | dict[str, Any],
    *,
    new_id: Callable[[], str],
    limit: int = PAYLOAD_BYTES_MAX,
    ttl_ms: int = TTL_MS_DEFAULT,
    sound: bool = False,
) -> Incoming:
    """One message of the protocol. Raises `InvalidEnvelope` or `PayloadTooLarge`, naming the field.

    `limit` is for its content, `ttl_ms` for messages that name no time to live. `sound`: the caller knows
    that it is sound JSON.
    """
    if isinstance(data, dict):
        data = encode_content(data, 2 * limit)[0]
    extra: bytes | None = None
    notes: tuple[str, ...] = ()
    try:
        message = _decode_message(data)
    except msgspec.ValidationError as error:
        message, extra, notes = _with_unknown_fields(data, error, limit, sound)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidEnvelope(f"the message is not sound JSON: {error}") from None
    if not sound:
        check_sound(
            bytes(data), what="the message", depth=DEPTH_MAX + 1
        )  # its content, which lies in it, too
    return _incoming(message, extra, notes, new_id, limit, ttl_ms)


def _incoming(
    message: Message,
    extra: bytes | None,
    notes: tuple[str, ...],
    new_id: Callable[[], str],
    limit: int,
    ttl_ms: int,
) -> Incoming:
    given, type, priority, metadata = message.id, message.type, message.priority, message.metadata
    id = new_id() if given is None else check_id(given)
    sender = message.sender or ""
    type = "message" if type is None else check_queued(type)
    priority = PRIORITY_BY_TYPE.get(type, PRIORITY_DEFAULT) if priority is None else _priority(priority)
    written_at = None if message.timestamp is None else (message.timestamp - _EPOCH) // _MILLISECOND
    if metadata is None and message.delay_ms is None and message.task_id is None:
        content = check_size(bytes(message.content), limit)
        envelope = Envelope(id, sender, content, type=type, priority=priority, ttl_ms=ttl_ms,
                            timestamp_ms=written_at, extra=extra)  # fmt: skip
        return Incoming(message.to, message.sender, envelope, given is not None, notes)
    metadata = metadata or _NO_METADATA
    content, encoding = _content(message.content, metadata, limit)
    given_delay = _once(message.delay_ms, metadata.delay_ms, "delayMs")
    delay, note = (0, None) if given_delay is None else parse_delay(given_delay)
    task, key, correlation, trace = (
        _once(message.task_id, metadata.task_id, "taskId"),
        metadata.ordering_key, metadata.correlation_id, metadata.traceparent
    )  # fmt: skip
    envelope = Envelope(
        id,
        sender,
        content,
        encoding,
        type,
        priority,
        ttl_ms if metadata.ttl is None else parse_ttl(metadata.ttl),
        delay,
        None if task is None else check_text(task, "taskId"),
        None if key is None else check_text(key, "orderingKey"),
        None if correlation is None else check_text(correlation, "correlationId"),
        metadata.reply_to,
        metadata.requires_ack or False,
        tuple([check_text(tag, "tag") for tag in metadata.tags]) if metadata.tags else (),
        None if trace is None else check_text(trace, "traceparent"),
        metadata.max_retries,
        written_at,
        extra,
    )
    if note is not None:
        notes = (note.replace("delay_ms", "delayMs"), *notes)
    return Incoming(message.to, message.sender, envelope, given is not None, notes)


def _once(at_top: Any, in_metadata: Any, name: str) -> Any:
    """The value of a field that may stand in either place."""
    if at_top is None or in_metadata is None or at_top == in_metadata:
        return in_metadata if at_top is None else at_top
    raise InvalidEnvelope(
        f"{name} and metadata.{name} have different values", hint="give it once, in either place"
    )


def _content(raw: Raw, metadata: Metadata, limit: int) -> tuple[bytes, int]:
    data = bytes(raw)
    if metadata.content_encoding != "base64":
        return check_size(data, limit), _JSON
    try:
        content = binascii.a2b_base64(_decode_text(data), strict_mode=True)
    except (msgspec.MsgspecError, ValueError):
        raise InvalidEnvelope(
            "content is no base64 string, and metadata.contentEncoding says that it is"
        ) from None
    return check_size(content, limit), _BYTES


def _priority(given: float | str) -> int:
    if isinstance(given, float) and given.is_integer():
        return parse_priority(int(given))  # 3.0 is as good an integer as 3 to JSON
    return parse_priority(given)


def _with_unknown_fields(
    data: bytes | Raw, error: msgspec.ValidationError, limit: int, sound: bool
) -> tuple[Message, bytes | None, tuple[str, ...]]:
    """The message without what this version does not know, and that: an object, its values as they came.

    The third part notes names that look like a slip of a known one.

    Raises what is wrong with the message, in our words, when that is something else.
    """
    try:
        fields = _decode_fields(data)
        unknown: dict[str, Any] = _split(fields, _MESSAGE_FIELDS | LEASE_NAMES, "the message")
        unknown_metadata: dict[str, Any] = {}
        at_top = list(unknown)
        for name in LEASE_NAMES & fields.keys():
            del fields[name]
        if bytes(fields.get(METADATA, b"")).startswith(b"{"):
            metadata = _decode_fields(fields[METADATA])
            unknown_metadata = _split(metadata, _METADATA_FIELDS, METADATA)
            fields[METADATA] = Raw(_encode(metadata))
            if unknown_metadata:
                unknown[METADATA] = unknown_metadata
        message = _decode_message(_encode(fields))
    except msgspec.ValidationError as found:
        raise InvalidEnvelope(_in_our_words(found)) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise InvalidEnvelope(_in_our_words(error)) from None
    if not unknown:
        return message, None, ()
    return message, check_extra(_encode(unknown), limit, sound=sound), slips(at_top, unknown_metadata)


def _split(fields: dict[str, Raw], known: frozenset[str], where: str) -> dict[str, Any]:
    """Take what is not known out of the fields."""
    names = fields.keys() - known
    check_count(len(names), where)
    return {name: fields.pop(name) for name in sorted(names)}


def _in_our_words(error: msgspec.ValidationError) -> str:
    text = str(error)
    if "missing required field `content`" in text:
        return "the message has no content"
    what, _, where = text.partition(" - at `$.")
    return f"{where.rstrip('`')}: {what}" if where else f"the message is malformed: {what}"


# -- out --------------------------------------------------------------------------------------


def message_json(envelope: Envelope, to: str, accepted_at: int, retry_count: int = 0) -> bytes:
    """The message as it is shown and handed over. `accepted_at` is its time when it names none."""
    return _with_extra(MessageOut(*_message_fields(envelope, to, accepted_at, retry_count)), envelope.extra)


def delivery_json(row: DeliveryRow, partition: int = 0) -> bytes:
    """The message of a delivery, and what its receiver needs to settle it."""
    envelope, mailbox = row.envelope, row.mailbox
    delivery = DeliveryOut(
        *_message_fields(envelope, mailbox, row.accepted_at, max(0, row.attempt - 1)),
        format_token(row.token, partition),
        row.attempt,
        iso(row.deadline),
        mailbox,
        row.sequence,
    )
    return _with_extra(delivery, envelope.extra)


def _content_out(content: bytes, encoding: int) -> Raw:
    """As JSON. Content that cannot be read (see `wire/payload.py`) is an object that says so."""
    if encoding == Encoding.JSON:
        return Raw(content)
    if encoding == Encoding.BYTES:
        return Raw(b'"' + b64encode(content) + b'"')
    return Raw(msgspec.json.encode({"error": content.decode("utf-8", "replace")}))


def _message_fields(
    envelope: Envelope, to: str, accepted_at: int, retry_count: int
) -> tuple[str, str, str, str, Raw, str, int, MetadataOut]:
    content = envelope.content
    is_bytes = envelope.encoding == Encoding.BYTES
    ttl_ms = envelope.ttl_ms
    metadata = MetadataOut(
        ttl_ms / 1000 if ttl_ms % 1000 else ttl_ms // 1000,
        envelope.requires_ack,
        retry_count,
        envelope.delay_ms,
        envelope.correlation_id,
        envelope.max_retries,
        envelope.tags,
        envelope.reply_to,
        envelope.task,
        envelope.key,
        envelope.trace,
        envelope.origin,
        "base64" if is_bytes else None,
    )
    return (
        envelope.id,
        envelope.sender,
        to,
        envelope.type,
        _content_out(content, envelope.encoding),
        iso(accepted_at if envelope.timestamp_ms is None else envelope.timestamp_ms),
        envelope.priority,
        metadata,
    )


def _with_extra(message: MessageOut, extra: bytes | None) -> bytes:
    """The message with its sender's own fields; a name that the mesh writes is the mesh's alone."""
    if extra is None:
        return _encode(message)
    fields = _decode_fields(extra)
    metadata = fields.get(METADATA)
    if metadata is not None and bytes(metadata).startswith(b"{"):
        message.metadata = Raw(_joined(unforged_metadata(_decode_fields(metadata)), message.metadata))
    return _joined(unforged(fields), message)


def _joined(unknown: dict[str, Raw], known: MessageOut | MetadataOut | Raw) -> bytes:
    return _encode({**_decode_fields(_encode(known)), **unknown})


__all__ = [
    "PROTOCOL_VERSION",
    "DeliveryOut",
    "Incoming",
    "MessageOut",
    "delivery_json",
    "message_json",
    "parse_message",
]
