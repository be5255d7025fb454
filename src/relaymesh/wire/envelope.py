"""Envelopes at the edge: from a caller's words to a checked `Envelope`, and to JSON for people.

On the wire the names are those of the Mailbox protocol (`from`, `correlationId`, `requiresAck`);
in Python they are `sender`, `correlation_id`, `requires_ack`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from msgspec.structs import astuple

from relaymesh.errors import InvalidEnvelope
from relaymesh.kernel.address import agent_address
from relaymesh.kernel.bounds import (
    DURATION_MS_MAX,
    RETRIES_MAX,
    TEXT_LENGTH_MAX,
    flag,
    number,
    plain_text,
    shown,
    whole,
)
from relaymesh.kernel.envelope import (
    CONTROL_TYPES,
    IN_FILE,
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
    check_size,
    check_sound,
    decode_content,
    encode_content,
    plainly_sound,
)
from relaymesh.wire.extra import METADATA, check_extra, unforged, unforged_metadata

ID_LENGTH_MAX = 128
TAGS_MAX = 64
DELAY_MS_MAX = DURATION_MS_MAX
"""Larger delays are cut to this."""
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
    type = _check_type(type)
    return Envelope(
        id=check_id(id),
        sender=sender,
        content=data,
        encoding=encoding,
        type=type,
        priority=parse_priority(priority, type),
        ttl_ms=parse_ttl(ttl),
        delay_ms=parse_delay(delay_ms)[0],
        task=_optional_text(task, "task"),
        key=_optional_text(key, "key"),
        correlation_id=_optional_text(correlation_id, "correlation_id"),
        reply_to=None if reply_to is None else agent_address(reply_to, "reply_to"),
        requires_ack=flag(requires_ack, "requires_ack", InvalidEnvelope),
        tags=_tags(tags),
        max_retries=_retries(max_retries),
        trace=_optional_text(trace, "trace"),
        extra=None if extra is None else _extra(extra, limit),
        origin=origin,
    )


def check_envelopes(
    envelopes: Sequence[Envelope], limit: int = PAYLOAD_BYTES_MAX, *, sound: bool = False
) -> None:
    """Raise unless each of these is sound; the first that is not is named.

    `sound`: the JSON of their content and of their `extra` is.
    """
    plain = sound or plainly_sound([envelope.content for envelope in envelopes if envelope.encoding == 0])
    for envelope in envelopes:
        check_envelope(envelope, limit, sound=plain, sound_extra=sound)


def check_envelope(
    envelope: Envelope, limit: int = PAYLOAD_BYTES_MAX, *, sound: bool = False, sound_extra: bool = False
) -> None:
    """Raise unless this envelope of a stranger is one that `build_envelope` could have made.

    Its fields have the right types already: a decoder saw to that. `sound`, `sound_extra`: the JSON of its
    content, or of its `extra`, is known to be sound.
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
        _check_options(envelope, limit, sound_extra)


_OPTIONS = slice(Envelope.__struct_fields__.index("type"), None)
_NO_OPTIONS = astuple(Envelope("", "", b""))[_OPTIONS]


def _check_options(envelope: Envelope, limit: int, sound_extra: bool) -> None:
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
    if envelope.extra is not None:
        check_extra(envelope.extra, limit, sound=sound_extra)


def check_id(id: Any) -> str:
    text = plain_text(id, "id", InvalidEnvelope)
    if not 1 <= len(text) <= ID_LENGTH_MAX:
        raise InvalidEnvelope(f"id must have 1 to {ID_LENGTH_MAX} characters, not {len(text)}")
    if not text.isprintable():
        raise InvalidEnvelope(f"id {shown(text)} has a character that cannot be printed")
    return text


def _check_type(type: Any) -> str:
    text = plain_text(type, "type", InvalidEnvelope)
    if not text or len(text) > ID_LENGTH_MAX or not text.isprintable():
        raise InvalidEnvelope(f"type must be 1 to {ID_LENGTH_MAX} printable characters, not {shown(text)}")
    if text in CONTROL_TYPES:
        raise InvalidEnvelope(
            f"type {text!r} is a control frame and is never queued",
            hint="send a message of another type; requires_ack=True asks for an ack",
        )
    return text


def parse_priority(priority: Any, type: str = "message") -> int:
    """1 to 5, or a name; None means by type."""
    if priority is None:
        return PRIORITY_BY_TYPE.get(type, PRIORITY_DEFAULT)
    if isinstance(priority, str):
        named = PRIORITY_NAMES.get(str.__str__(priority).lower())
        if named is None:
            raise InvalidEnvelope(f"priority {shown(priority)} is none of {', '.join(PRIORITY_NAMES)}")
        return named
    given = None if isinstance(priority, float) else number(priority)
    if not (isinstance(given, int) and 1 <= given <= 5):
        raise InvalidEnvelope(f"priority must be 1 (first) to 5 (last) or a name, not {shown(priority)}")
    return given


def parse_delay(delay_ms: Any) -> tuple[int, str | None]:
    """The delay as it counts, and what to say when that is not what was asked for."""
    delay = number(delay_ms)
    if delay is None or delay != delay:  # noqa: PLR0124  NaN
        said = None if delay_ms is None else f"delay_ms {shown(delay_ms)} is not a number and counts as 0"
        return 0, said
    if delay < 0:
        return 0, f"delay_ms {shown(delay)} is negative and counts as 0"
    if delay >= DELAY_MS_MAX:
        return DELAY_MS_MAX, f"delay_ms {shown(delay)} is cut to {DELAY_MS_MAX}"
    return math.ceil(delay), None


def parse_ttl(ttl: Any) -> int:
    """Milliseconds of a time to live in seconds; 0 is for ever."""
    life = number(ttl)
    if life is None or not 0 <= life < math.inf:
        raise InvalidEnvelope(f"ttl must be seconds, 0 for never, not {shown(ttl)}")
    return math.ceil(life * 1000) if life < DELAY_MS_MAX / 1000 else DELAY_MS_MAX


def _retries(max_retries: Any) -> int | None:
    if max_retries is None:
        return None
    return whole(max_retries, "max_retries", 0, RETRIES_MAX, InvalidEnvelope)


def _optional_text(value: Any, field: str) -> str | None:
    return None if value is None else check_text(value, field)


def check_text(value: Any, field: str) -> str:
    """A name or a tag: 1 to 512 printable characters."""
    text = plain_text(value, field, InvalidEnvelope)
    if not 1 <= len(text) <= TEXT_LENGTH_MAX:
        raise InvalidEnvelope(f"{field} must have 1 to {TEXT_LENGTH_MAX} characters, not {len(text)}")
    if not text.isprintable():
        raise InvalidEnvelope(f"{field} {shown(text)} has a character that cannot be printed")
    return text


def _tags(tags: Iterable[str]) -> tuple[str, ...]:
    if tags.__class__ is tuple and not tags:
        return ()
    if isinstance(tags, (str, bytes)):
        raise InvalidEnvelope(f"tags must be a list of strings, not {shown(tags)}")
    try:
        given = list(islice(tags, TAGS_MAX + 1))
    except Exception:
        raise InvalidEnvelope(f"tags must be a list of strings, not {shown(tags)}") from None
    if len(given) > TAGS_MAX:
        raise InvalidEnvelope(f"at most {TAGS_MAX} tags, not more")
    return tuple([check_text(tag, "tag") for tag in given])


def _extra(extra: Any, limit: int) -> bytes:
    if isinstance(extra, dict):
        extra = dict(dict.items(extra))  # whatever a subclass makes of them
    if not isinstance(extra, dict) or not all(isinstance(name, str) for name in extra):
        raise InvalidEnvelope(f"extra must be a dict with names of fields as its keys, not {shown(extra)}")
    try:
        data = encode_content(extra, limit)[0]
    except InvalidEnvelope as error:
        raise InvalidEnvelope(f"extra: {error.message}", hint=error.hint) from None
    return check_extra(data, limit)


# -- to JSON, for people and other programs ---------------------------------------------------


def when(ms: int) -> datetime:
    """The time as a `datetime`; beyond year 9999 its last moment."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.max.replace(tzinfo=UTC)


def envelope_json(envelope: Envelope, to: str, accepted_at: int, retry_count: int = 0) -> dict[str, Any]:
    """The envelope under its protocol names, for people: bytes are left to the caller to print.

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
    content: Any
    if envelope.encoding >= IN_FILE:  # it cannot be read: see `wire/payload.py`
        content = {"error": envelope.content.decode("utf-8", "replace")}
    else:
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
    if isinstance(unknown.get(METADATA), dict):
        fields[METADATA] = {**unforged_metadata(unknown[METADATA]), **fields[METADATA]}
    return {**unforged(unknown), **fields}


__all__ = [
    "build_envelope",
    "check_envelope",
    "check_envelopes",
    "check_id",
    "check_text",
    "envelope_json",
    "iso",
    "parse_delay",
    "parse_priority",
    "parse_ttl",
    "when",
]
