"""Content at the edge: checked once, then carried as bytes and never encoded again.

A Python value becomes JSON; `bytes` stay bytes. What a reader elsewhere could not read back is
refused here: NaN and infinities, lone surrogates, nesting beyond 64, keys that occur twice,
numbers out of range, and anything over the limit in size.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import msgspec

from relaymesh.errors import InvalidEnvelope, JournalDamaged, PayloadTooLarge
from relaymesh.kernel.envelope import IN_FILE, Encoding

PAYLOAD_BYTES_MAX = 10_485_760
DEPTH_MAX = 64
_JSON, _BYTES = Encoding.JSON, Encoding.BYTES

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_NO_OPENING = bytes(set(range(256)) - set(b"[{\n"))
_ONE_KIND = bytes.maketrans(b"{}", b"[]")

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_encode_lines = msgspec.json.Encoder().encode_lines
_decode_lines = msgspec.json.Decoder().decode_lines


def encode_content(content: Any, limit: int = PAYLOAD_BYTES_MAX) -> tuple[bytes, int]:
    """The bytes of a Python value and how they are encoded."""
    kind = content.__class__
    if kind is not dict and kind is not str and kind is not int:
        if isinstance(content, (bytes, bytearray, memoryview)):
            return check_size(bytes(content), limit), _BYTES
        if isinstance(content, msgspec.Raw):
            return check_json(bytes(content), limit), _JSON
    try:
        data = _encode(content)
    except RecursionError:
        raise InvalidEnvelope(f"content is nested deeper than {DEPTH_MAX} levels") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidEnvelope(
            f"content cannot be written as JSON: {error}",
            hint="send str, numbers, lists, dicts, None or bytes",
        ) from None
    # The encoder writes NaN and infinities as null, and counts no depth: look closer where either can be.
    if not _is_flat(content):
        if b"null" in data:
            _check_value(content, DEPTH_MAX)
        elif data.count(b"[") + data.count(b"{") > DEPTH_MAX and _is_deep(data, DEPTH_MAX):
            raise InvalidEnvelope(f"content is nested deeper than {DEPTH_MAX} levels")
    if len(data) > limit:
        check_size(data, limit)
    return data, _JSON


def check_json(data: bytes, limit: int = PAYLOAD_BYTES_MAX) -> bytes:
    """JSON text from outside, kept byte for byte if it is sound."""
    if len(data) > limit:
        check_size(data, limit)
    return check_sound(data)


def check_sound(data: bytes, *, what: str = "content", depth: int = DEPTH_MAX) -> bytes:
    """The same for text of any size; `what` it is called in the error."""
    try:
        value = _decode(data)
        if data.count(b"[") + data.count(b"{") > depth and _is_deep(data, depth):
            raise RecursionError
        if not _keys_seen_distinct(data, value):
            json.loads(data, object_pairs_hook=_distinct, parse_constant=_no_constant)
    except RecursionError:
        raise InvalidEnvelope(f"{what} is nested deeper than {depth} levels") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
        raise InvalidEnvelope(f"{what} is not sound JSON: {error}") from None
    return data


def plainly_sound(texts: list[bytes]) -> bool:
    """Whether it is plain that each is sound JSON, seen in one look at all: less than half the cost.

    Text that encodes to itself line by line holds one value a line, as the encoder writes it: complete, in
    UTF-8, no key twice, no newline within. With as many lines as texts, each text is one of them. None has
    more than DEPTH_MAX opening brackets, so none is too deep. A wrong no costs time only; a yes is a proof.
    """
    lines = b"\n".join(texts) + b"\n"
    try:
        values = _decode_lines(lines)
        if len(values) != len(texts) or _encode_lines(values) != lines:
            return False
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError):
        return False
    return max(map(len, lines.translate(None, _NO_OPENING).split(b"\n"))) <= DEPTH_MAX


def decode_content(data: bytes, encoding: int) -> Any:
    """The value again: what `encode_content` was given, as JSON sees it.

    Raises `JournalDamaged` for content that is in a payload file which cannot be read.
    """
    if encoding >= IN_FILE:
        raise JournalDamaged(data.decode("utf-8", "replace"))
    return data if encoding == Encoding.BYTES else _decode(data)


def _is_flat(content: Any) -> bool:
    """Whether it is a text or a dict of plain values, as most are: nothing in it needs a closer look."""
    kind = content.__class__
    if kind is not dict:
        return kind is str or kind is int
    for value in content.values():
        kind = value.__class__
        if kind is str or kind is int or kind is bool or value is None:
            continue
        if (
            kind is not float or value - value != 0
        ):  # NaN and infinities differ from themselves, or do so here
            return False
    return True


def check_size(data: bytes, limit: int) -> bytes:
    if len(data) > limit:
        raise PayloadTooLarge(f"content has {len(data)} bytes; the limit is {limit}")
    return data


def _check_value(value: Any, depth: int) -> None:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidEnvelope(
                f"content holds {value}, which JSON cannot carry", hint="use None or a string"
            )
    elif isinstance(value, (dict, list, tuple, set, frozenset)):
        if depth == 0:
            raise InvalidEnvelope(f"content is nested deeper than {DEPTH_MAX} levels")
        for part in value.values() if isinstance(value, dict) else value:
            _check_value(part, depth - 1)
    elif value is not None and not isinstance(value, (str, int, bool, bytes)):
        _check_value(msgspec.to_builtins(value), depth)


def _is_deep(data: bytes, depth: int) -> bool:
    """Whether the brackets of sound JSON go deeper than allowed: peels one level at a time."""
    brackets = _STRING.sub(b"", data).translate(_ONE_KIND, _NO_BRACKETS)
    for _ in range(depth):
        brackets = brackets.replace(b"[]", b"")
        if not brackets:
            return False
    return True


def _keys_seen_distinct(data: bytes, value: Any) -> bool:
    """Whether it is plain that no object in `data`, which decoded to `value`, has a key twice.

    A decoder that meets a key again forgets the pair before. So data that encodes to itself has no such
    key; and where only spaces and escapes differ, the value encoded anew has fewer colons than the data,
    because every key is followed by one. (A colon in a string may be written as an escape: those count
    too.) A wrong no costs time only; a yes is a proof.
    """
    try:
        again = _encode(value)
    except OverflowError:  # an integer of more than 64 bits, which the decoder knows and the encoder does not
        return False
    if again == data:
        return True
    colons = data.count(b":")
    if b"\\" in data:
        colons += data.count(b"\\u003a") + data.count(b"\\u003A")
    return again.count(b":") == colons


def _distinct(pairs: list[tuple[str, Any]]) -> None:
    keys: set[str] = set()
    for key, _ in pairs:
        if key in keys:
            raise ValueError(f"the key {key[:80]!r} occurs twice in one object")
        keys.add(key)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
