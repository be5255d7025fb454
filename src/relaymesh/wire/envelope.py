"""Envelopes at the edge: from a caller's words to a checked `Envelope`, and to JSON for people.

On the wire the names are those of the Mailbox protocol (`from`, `correlationId`, `requiresAck`);
in Python they are `sender`, `correlation_id`, `requires_ack`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import astuple

from relaymesh.errors import InvalidEnvelope
from relaymesh.kernel.address import agent_address
from relaymesh.kernel.envelope import (
    CONTROL_TYPES,
    PRIORITY_BY_TYPE,
    PRIORITY_DEFAULT,
    PRIORITY_NAMES,
    TTL_MS_DEFAULT,
    Encoding,
    Envelope,
)
from relaymesh.kernel.moment import iso
from relaymesh.wire.content import (
    PAYLOAD_BYTES_MAX,
    check_json,
    check_size,
    check_sound,
    decode_content,
    encode_content,
    plainly_sound,
)

ID_LENGTH_MAX = 128
TAGS_MAX = 64
DELAY_MS_MAX = 1 << 53
"""About 285,000 years: larger delays are cut to this, so that times stay exact integers everywhere."""
TTL_SECONDS_DEFAULT = TTL_MS_DEFAULT / 1000


def build_envelope(
    sender: str,
    content: Any,
    *,
    id: str,
    type: str = "message",
    priority: int | str | None = None,
    task: str | None = None,
    key: str | None = None,
    delay_ms: Any = 0,
    ttl: float = TTL_SECONDS_DEFAULT,
    correlation_id: str | None = None,
    reply_to: str | None = None,
    requires_ack: bool = False,
    tags: Iterable[str] = (),
    max_retries: int | None = None,
    trace: str | None = None,
    extra: dict[str, Any] | None = None,
    origin: str | None = None,
    limit: int = PAYLOAD_BYTES_MAX,
) -> Envelope:
    """A checked envelope. Raises `InvalidEnvelope` or `PayloadTooLarge`, naming the field."""
    data, encoding = encode_content(content, limit)
    return Envelope(
        id=check_id(id),
        sender=sender,
        content=data,
        encoding=encoding,
        type=_check_type(type),
        priority=parse_priority(priority, type),
        ttl_ms=parse_ttl(ttl),
        delay_ms=parse_delay(delay_ms)[0],
        task=_optional_text(task, "task"),
        key=_optional_text(key, "key"),
        correlation_id=_optional_text(correlation_id, "correlation_id"),
        reply_to=None if reply_to is None else agent_address(reply_to, "reply_to"),
        requires_ack=bool(requires_ack),
        tags=_tags(tags),
        max_retries=_retries(max_retries),
        trace=_optional_text(trace, "trace"),
        extra=None if extra is None else _extra(extra, limit),
        origin=origin,
    )


def check_envelopes(envelopes: Sequence[Envelope], limit: int = PAYLOAD_BYTES_MAX) -> None:
    """Raise unless each of these is sound; the first that is not is named."""
    sound = plainly_sound([envelope.content for envelope in envelopes if envelope.encoding == 0])
    for envelope in envelopes:
        check_envelope(envelope, limit, sound=sound)


def check_envelope(envelope: Envelope, limit: int = PAYLOAD_BYTES_MAX, *, sound: bool = False) -> None:
    """Raise unless this envelope of a stranger is one that `build_envelope` could have made.

    Its fields have the right types already: a decoder saw to that. `sound`: its JSON is known to be.
    """
    id = envelope.id
    if not (0 < len(id) <= ID_LENGTH_MAX and id.isprintable()):
        check_id(id)
    if len(envelope.content) > limit:
        check_size(envelope.content, limit)
    if envelope.encoding == 0:
        if not sound:
            check_sound(envelope.content)
    elif envelope.encoding != 1:
        raise InvalidEnvelope(f"encoding must be 0 (JSON) or 1 (bytes), not {envelope.encoding}")
    if astuple(envelope)[_OPTIONS] != _NO_OPTIONS:  # most messages say nothing but their content
        _check_options(envelope, limit)


_OPTIONS = slice(Envelope.__struct_fields__.index("type"), None)
_NO_OPTIONS = astuple(Envelope("", "", b""))[_OPTIONS]


def _check_options(envelope: Envelope, limit: int) -> None:
    _check_type(envelope.type)
    parse_priority(envelope.priority)
    for field in ("ttl_ms", "delay_ms", "timestamp_ms"):
        value = getattr(envelope, field)
        if value is not None and not 0 <= value <= DELAY_MS_MAX:
            raise InvalidEnvelope(f"{field} must lie between 0 and {DELAY_MS_MAX}, not {value}")
    for field in ("task", "key", "correlation_id", "trace", "origin"):
        _optional_text(getattr(envelope, field), field)
    if envelope.reply_to is not None:
        agent_address(envelope.reply_to, "reply_to")
    _tags(envelope.tags)
    _retries(envelope.max_retries)
    if envelope.extra is not None and check_json(envelope.extra, limit).lstrip()[:1] != b"{":
        raise InvalidEnvelope("extra must be a JSON object")


def shown(value: object) -> str:
    """A refused value as an error shows it: short, whatever it is."""
    try:
        return f"{value!r:.80}"
    except Exception:  # a number too long to print, an object that cannot be shown
        return f"a {type(value).__name__}"


def check_id(id: Any) -> str:
    if not isinstance(id, str):
        raise InvalidEnvelope(f"id must be a string, not {type(id).__name__}")
    if not 1 <= len(id) <= ID_LENGTH_MAX:
        raise InvalidEnvelope(f"id must have 1 to {ID_LENGTH_MAX} characters, not {len(id)}")
    if not id.isprintable():
        raise InvalidEnvelope(f"id {id!r} has a character that cannot be printed")
    return id


def _check_type(type: Any) -> str:
    if not isinstance(type, str) or not type or len(type) > ID_LENGTH_MAX or not type.isprintable():
        raise InvalidEnvelope(f"type must be 1 to {ID_LENGTH_MAX} printable characters, not {shown(type)}")
    if type in CONTROL_TYPES:
        raise InvalidEnvelope(
            f"type {type!r} is a control frame and is never queued",
            hint="send a message of another type; requires_ack=True asks for an ack",
        )
    return type


def parse_priority(priority: Any, type: str = "message") -> int:
    """1 to 5, or a name; None means by type."""
    if priority is None:
        return PRIORITY_BY_TYPE.get(type, PRIORITY_DEFAULT)
    if isinstance(priority, str):
        named = PRIORITY_NAMES.get(priority.lower())
        if named is None:
            raise InvalidEnvelope(f"priority {priority!r} is none of {', '.join(PRIORITY_NAMES)}")
        return named
    if isinstance(priority, bool) or not isinstance(priority, int) or not 1 <= priority <= 5:
        raise InvalidEnvelope(f"priority must be 1 (first) to 5 (last) or a name, not {shown(priority)}")
    return int(priority)


def parse_delay(delay_ms: Any) -> tuple[int, str | None]:
    """The delay as it counts, and what to say when that is not what was asked for."""
    if isinstance(delay_ms, bool) or not isinstance(delay_ms, (int, float)) or not delay_ms <= math.inf:
        return (
            (0, None)
            if delay_ms is None
            else (0, f"delay_ms {shown(delay_ms)} is not a number and counts as 0")
        )
    if delay_ms < 0:
        return 0, f"delay_ms {shown(delay_ms)} is negative and counts as 0"
    if delay_ms >= DELAY_MS_MAX:
        return DELAY_MS_MAX, f"delay_ms {shown(delay_ms)} is cut to {DELAY_MS_MAX}"
    return math.ceil(delay_ms), None


def parse_ttl(ttl: Any) -> int:
    """Milliseconds of a time to live in seconds; 0 is for ever."""
    if isinstance(ttl, bool) or not isinstance(ttl, (int, float)) or not 0 <= ttl < math.inf:
        raise InvalidEnvelope(f"ttl must be seconds, 0 for never, not {shown(ttl)}")
    return math.ceil(ttl * 1000) if ttl < DELAY_MS_MAX / 1000 else DELAY_MS_MAX


def _retries(max_retries: Any) -> int | None:
    if max_retries is None:
        return None
    if isinstance(max_retries, bool) or not isinstance(max_retries, int) or not 0 <= max_retries <= 1_000_000:
        raise InvalidEnvelope(f"max_retries must be 0 or more, not {shown(max_retries)}")
    return max_retries


def _optional_text(value: Any, field: str) -> str | None:
    return None if value is None else check_text(value, field)


def check_text(value: Any, field: str) -> str:
    """A name or a tag: 1 to 512 printable characters."""
    if not isinstance(value, str) or not 1 <= len(value) <= 512:
        raise InvalidEnvelope(f"{field} must be a string of 1 to 512 characters, not {shown(value)}")
    if not value.isprintable():
        raise InvalidEnvelope(f"{field} {shown(value)} has a character that cannot be printed")
    return value


def _tags(tags: Iterable[str]) -> tuple[str, ...]:
    if not tags:
        return ()
    if isinstance(tags, str):
        raise InvalidEnvelope(f"tags must be a list of strings, not the string {tags!r:.80}")
    try:
        checked = tuple(check_text(tag, "tag") for tag in tags)
    except TypeError:
        raise InvalidEnvelope(f"tags must be a list of strings, not {shown(tags)}") from None
    if len(checked) > TAGS_MAX:
        raise InvalidEnvelope(f"at most {TAGS_MAX} tags, not {len(checked)}")
    return checked


def _extra(extra: Any, limit: int) -> bytes:
    if not isinstance(extra, dict) or not all(isinstance(name, str) for name in extra):
        raise InvalidEnvelope(f"extra must be a dict with names of fields as its keys, not {shown(extra)}")
    try:
        return encode_content(extra, limit)[0]
    except InvalidEnvelope as error:
        raise InvalidEnvelope(f"extra: {error.message}", hint=error.hint) from None


# -- to JSON, for people and other programs ---------------------------------------------------


def when(ms: int) -> datetime:
    """The time as a `datetime`; beyond year 9999 its last moment."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.max.replace(tzinfo=UTC)


def envelope_json(envelope: Envelope, to: str, accepted_at: int, retry_count: int = 0) -> dict[str, Any]:
    """The envelope under its protocol names, for people: bytes are left to whoever prints them.

    `wire.protocol.message_json` is the same as JSON text.
    """
    metadata: dict[str, Any] = {
        "correlationId": envelope.correlation_id,
        "ttl": envelope.ttl_ms / 1000,
        "requiresAck": envelope.requires_ack,
        "retryCount": retry_count,
        "maxRetries": envelope.max_retries,
        "tags": list(envelope.tags),
        "replyTo": envelope.reply_to,
        "taskId": envelope.task,
        "orderingKey": envelope.key,
        "delayMs": envelope.delay_ms,
        "traceparent": envelope.trace,
        "originId": envelope.origin,
        "contentEncoding": "base64" if envelope.encoding == Encoding.BYTES else None,
    }
    content = decode_content(envelope.content, envelope.encoding)
    fields: dict[str, Any] = {
        "id": envelope.id,
        "from": envelope.sender,
        "to": to,
        "type": envelope.type,
        "content": content,
        "timestamp": iso(envelope.timestamp_ms or accepted_at),
        "priority": envelope.priority,
        "metadata": {name: value for name, value in metadata.items() if value not in (None, [])},
    }
    if envelope.extra is None:
        return fields
    unknown = decode_content(envelope.extra, Encoding.JSON)
    if isinstance(unknown.get("metadata"), dict):
        fields["metadata"] = {**unknown["metadata"], **fields["metadata"]}
    return {**unknown, **fields}


__all__ = [
    "build_envelope",
    "check_envelope",
    "check_envelopes",
    "check_id",
    "check_json",
    "check_text",
    "envelope_json",
    "iso",
    "parse_delay",
    "parse_priority",
    "parse_ttl",
    "when",
]
