"""Content at the edge: checked once, then carried as bytes and never encoded again.

A Python value becomes JSON; `bytes` stay bytes. What a reader elsewhere could not read back is
refused here: NaN and infinities, lone surrogates, nesting beyond 64, keys that occur twice,
numbers out of range, and anything over the limit in size.
"""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec

from relaymesh.errors import InvalidEnvelope, PayloadTooLarge
from relaymesh.kernel.envelope import Encoding

PAYLOAD_BYTES_MAX = 10_485_760
DEPTH_MAX = 64

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def encode_content(content: Any, limit: int = PAYLOAD_BYTES_MAX) -> tuple[bytes, int]:
    """The bytes of a Python value and how they are encoded."""
    if isinstance(content, (bytes, bytearray, memoryview)):
        data = bytes(content)
        _check_size(data, limit)
        return data, Encoding.BYTES
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
    if not _is_flat(content) and (b"null" in data or data.count(b"[") + data.count(b"{") > DEPTH_MAX):
        _check_value(content, DEPTH_MAX)
    _check_size(data, limit)
    return data, Encoding.JSON


def check_json(data: bytes, limit: int = PAYLOAD_BYTES_MAX) -> bytes:
    """JSON text from outside, kept byte for byte if it is sound."""
    _check_size(data, limit)
    if data.count(b"[") + data.count(b"{") > DEPTH_MAX and _depth(data) > DEPTH_MAX:
        raise InvalidEnvelope(f"content is nested deeper than {DEPTH_MAX} levels")
    try:
        _decode(data)
        json.loads(data, object_pairs_hook=_distinct, parse_constant=_no_constant)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise InvalidEnvelope(f"content is not sound JSON: {error}") from None
    return data


def decode_content(data: bytes, encoding: int) -> Any:
    """The value again: what `encode_content` was given, as JSON sees it."""
    return data if encoding == Encoding.BYTES else _decode(data)


def _is_flat(content: Any) -> bool:
    """Whether it is a text or a dict of plain values, as most are: nothing in it needs a closer look."""
    if content.__class__ is not dict:
        return content.__class__ is str
    for value in content.values():
        kind = value.__class__
        if kind is str or kind is int or kind is bool or value is None:
            continue
        if (
            kind is not float or value - value != 0
        ):  # NaN and infinities differ from themselves, or do so here
            return False
    return True


def _check_size(data: bytes, limit: int) -> None:
    if len(data) > limit:
        raise PayloadTooLarge(f"content has {len(data)} bytes; the limit is {limit}")


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


def _depth(data: bytes) -> int:
    """How deep the brackets go, strings left aside. Sound even where the JSON is not."""
    depth = deepest = 0
    in_string = escaped = False
    for byte in data:
        if in_string:
            if escaped:
                escaped = False
            elif byte == 0x5C:
                escaped = True
            elif byte == 0x22:
                in_string = False
        elif byte == 0x22:
            in_string = True
        elif byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest


def _distinct(pairs: list[tuple[str, Any]]) -> None:
    keys: set[str] = set()
    for key, _ in pairs:
        if key in keys:
            raise ValueError(f"the key {key[:80]!r} occurs twice in one object")
        keys.add(key)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
