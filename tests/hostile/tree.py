"""Bodies and frames as trees, drawn from schemas and types, one place spoiled; as JSON or MessagePack.

A leaf is a plain value, or `Bytes` of a protocol's own: text that is no JSON, numbers that no float holds.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import inspect as types

Path = tuple[str | int, ...]


class Bytes(bytes):
    """What is written as it stands."""


NAMES: dict[str, tuple[Any, ...]] = {
    "mailbox": ("a1", "a1", "a1", "a2", "default/a3", "default/t.*:s1"),
    "to": ("a1", "a2", "a3"),
    "from": ("a1", "a2"),
    "sender": ("default/a1",),
    "receiver": ("a1", "default/a2", None),
    "agent": ("a1", "a2"),
    "name": ("s1", "s2"),
    "topic": ("t.one", "t.two"),
    "pattern": ("t.one", "t.*", "t.**"),
    "type": ("message", "question", "status_report"),
    "content": ({"do": "x"}, "text", None, 5, [1, {"a": None}]),
    "priority": (1, 3, 5),
    "id": ("m-1", "m-2", None),
    "ids": (["m-1"], None),
    "code": ("timeout", "other", "invalid", "rate_limited"),
    "delayMs": (0, 0, 5, None),
    "untilMs": (None,),
    "until": (None,),
    "delay_ms": (0, 5),
    "ttl_ms": (3_600_000,),
    "ttl": (3600,),
    "max": (1, 5),
    "limit": (1, 20),
    "waitMs": (0,),
    "wait_ms": (0,),
    "timeout_ms": (0,),
    "protocol": ("1.1",),
    "credit": (0, 5),
    "encoding": (0,),
    "role": ("agent", "developer"),
    "traceparent": ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",),
    "trace": (None, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    "timestamp": ("2026-01-01T00:00:00Z",),
    "timestamp_ms": (None, 1_767_225_600_000),
    "reply_to": (None, "default/a2"),
    "replyTo": ("a2",),
    "extra": (None, b'{"model":"x"}'),
    "lease_ms": (0, 1_000),
    "leaseMs": (1_000, 60_000),
    "ms": (1_000, 60_000),
    "dead_sequence": ("1", "5"),
    "status": ("pending", "all"),
    "since": ("2020-01-01T00:00:00Z",),
    "resume": (None,),
}
"""Good values by the name of a field; a field without a row is drawn by its type."""


class Grow:
    """Draws good trees. `of`: values that this run knows, such as tokens of deliveries, by field name."""

    def __init__(self, rng: random.Random, of: Callable[[str], Any]) -> None:
        self.rng = rng
        self._of = of

    def _named(self, name: str) -> tuple[bool, Any]:
        known = self._of(name)
        if known is not None:
            return True, known
        if name in NAMES:
            return True, self.rng.choice(NAMES[name])
        return False, None

    # -- from a JSON schema

    def schema(
        self, schema: dict[str, Any], components: dict[str, Any], name: str = "", depth: int = 0
    ) -> Any:
        found, value = self._named(name)
        if found and not isinstance(value, bytes):
            return value
        if "$ref" in schema:
            return self.schema(components[schema["$ref"].rpartition("/")[2]], components, "", depth)
        if "anyOf" in schema or "oneOf" in schema:
            return self.schema(self.rng.choice(schema.get("anyOf") or schema["oneOf"]), components, "", depth)
        for word in ("enum", "examples"):
            if schema.get(word):
                return self.rng.choice(schema[word])
        return self._by_type(schema, components, name, depth)

    def _by_type(self, schema: dict[str, Any], components: dict[str, Any], name: str, depth: int) -> Any:
        kind = schema.get("type")
        if kind == "object":
            required = schema.get("required", ())
            return {
                each: self.schema(inner, components, each, depth + 1)
                for each, inner in schema.get("properties", {}).items()
                if each in required or self.rng.random() < (0.5 if depth == 0 else 0.15)
            }
        if kind == "array":
            singular = name.removesuffix("s")
            return [
                self.schema(schema.get("items", {}), components, singular, depth + 1)
                for _ in range(self.rng.choice((1, 1, 2)))
            ]
        if kind == "integer":
            return self.rng.choice(
                (schema.get("minimum", 0), schema.get("default", 1) or 1, schema.get("maximum", 5))
            )
        return {"number": 0.5, "boolean": self.rng.random() < 0.5, "null": None, "string": "x"}.get(
            str(kind), "x"
        )

    # -- from a type

    def typed(self, info: types.Type, name: str = "", depth: int = 0) -> Any:
        found, value = self._named(name)
        if found and not isinstance(info, types.BytesType):
            return value
        if isinstance(info, types.UnionType):
            return self.typed(self.rng.choice(info.types), "", depth)
        if isinstance(info, types.StructType):
            return self._struct(info, depth)
        if isinstance(info, types.ListType):
            inner = name.removesuffix("s")
            return [self.typed(info.item_type, inner, depth + 1) for _ in range(self.rng.choice((1, 1, 2)))]
        if isinstance(info, types.VarTupleType):
            return [self.typed(info.item_type, "", depth + 1)]
        if isinstance(info, types.TupleType):
            return [self.typed(each, "", depth + 1) for each in info.item_types]
        if isinstance(info, types.DictType):
            return {"other": self.typed(info.value_type, "", depth + 1)}
        return self._plain(info)

    def _struct(self, info: types.StructType, depth: int) -> Any:
        if info.array_like:
            return [
                self.typed(each.type, each.name, depth + 1)
                if each.required or self.rng.random() < 0.3
                else _default(each)
                for each in info.fields
            ]
        made = {} if info.tag_field is None else {info.tag_field: info.tag}
        for each in info.fields:
            if each.required or self.rng.random() < (0.5 if depth == 0 else 0.15):
                made[each.encode_name] = self.typed(each.type, each.encode_name, depth + 1)
        return made

    def _plain(self, info: types.Type) -> Any:
        if isinstance(info, types.LiteralType):
            return self.rng.choice(info.values)
        if isinstance(info, types.Metadata):
            return self.typed(info.type)
        plain: dict[type, Any] = {
            types.IntType: self.rng.choice((0, 1, 5)),
            types.FloatType: 0.5,
            types.BoolType: self.rng.random() < 0.5,
            types.StrType: "x",
            types.BytesType: b'{"a":1}',
        }
        return plain.get(type(info))


def _default(field: types.Field) -> Any:
    if field.default is not msgspec.NODEFAULT:
        return field.default
    return [] if field.default_factory is msgspec.NODEFAULT else field.default_factory()


# -- spoiling


def paths(tree: Any, here: Path = ()) -> list[Path]:
    """Every place of a tree."""
    found = [here]
    if isinstance(tree, dict):
        for key, value in tree.items():
            found += paths(value, (*here, key))
    elif isinstance(tree, (list, tuple)):
        for i, value in enumerate(tree):
            found += paths(value, (*here, i))
    return found


def spoil(
    tree: Any, rng: random.Random, values: tuple[Any, ...], *, spare: frozenset[str] = frozenset()
) -> Any:
    """The tree with one place of it replaced, left out, or added. `spare`: fields that stay as they are."""
    places = [path for path in paths(tree) if path and path[-1] not in spare] or [()]
    leaves = [path for path in places if not isinstance(_at(tree, path), (dict, list))]
    path = rng.choice(leaves if leaves and rng.random() < 0.8 else places)
    roll = rng.random()
    value = rng.choice(_alike(_at(tree, path), values) if rng.random() < 0.6 else values)
    if roll < 0.08 and path and isinstance(path[-1], str):
        return _changed(tree, path, value, leave_out=True)
    if roll < 0.14 and isinstance(tree, dict):
        return {**tree, rng.choice(("unknown", "x" * 300, "\x1b[31m", "leaseToken")): value}
    return _changed(tree, path, value)


def _at(tree: Any, path: Path) -> Any:
    for key in path:
        tree = tree[key]
    return tree


_spreads: dict[tuple[type, int], tuple[Any, ...]] = {}


def _spread(kind: type, values: tuple[Any, ...]) -> tuple[Any, ...]:
    found = _spreads.get((kind, id(values)))
    if found is None:
        found = tuple(
            each for each in values if isinstance(each, kind) and not isinstance(each, (bool, Bytes))
        )
        if kind is int:
            found += tuple(each for each in values if isinstance(each, Bytes) and each.lstrip(b"-").isdigit())
            found += tuple(each for each in found if isinstance(each, Bytes) or abs(each) > 2**60) * 3
        _spreads[kind, id(values)] = found
    return found


def _alike(old: Any, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Those of the kind that stands there now: they get past a reader that looks at types alone."""
    for kind in (int, float, str, bytes):
        if isinstance(old, kind) and not isinstance(old, bool):
            return _spread(kind, values) or values
    return values


def _changed(tree: Any, path: Path, value: Any, *, leave_out: bool = False) -> Any:
    if not path:
        return value
    first, rest = path[0], path[1:]
    if isinstance(tree, dict):
        if leave_out and not rest:
            return {key: each for key, each in tree.items() if key != first}
        return {
            key: _changed(each, rest, value, leave_out=leave_out) if key == first else each
            for key, each in tree.items()
        }
    return [
        _changed(each, rest, value, leave_out=leave_out) if i == first else each
        for i, each in enumerate(tree)
    ]


# -- writing


def as_json(tree: Any) -> bytes:
    """JSON; `Bytes` as they stand."""
    if isinstance(tree, Bytes):
        return bytes(tree)
    if isinstance(tree, dict):
        return (
            b"{"
            + b",".join(json.dumps(key).encode() + b":" + as_json(value) for key, value in tree.items())
            + b"}"
        )
    if isinstance(tree, (list, tuple)):
        return b"[" + b",".join(map(as_json, tree)) + b"]"
    if isinstance(tree, bytes):
        return json.dumps(tree.decode("latin-1")).encode()
    return json.dumps(tree).encode()


def as_msgpack(tree: Any) -> bytes:
    """MessagePack; `Bytes` as they stand."""
    return msgspec.msgpack.encode(_packed(tree))


def _packed(tree: Any) -> Any:
    if isinstance(tree, Bytes):
        return msgspec.Raw(tree)
    if isinstance(tree, dict):
        return {key: _packed(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_packed(value) for value in tree]
    return tree


_BOTH: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 6, 0.5, 500.0, 3.0, -0.5, 1e300, -1e300, 1e-300, 2**31 - 1, 2**31,
    2**32, 2**53,
    2**53 + 1, 2**62, 2**63 - 1, -(2**31), -(2**63), "", " ", "x", "5", "0.5", "x" * 200, "x" * 5_000,
    "x" * 300_000,
    "\x00", "a\x00b", "\x1b[31mred", "\u202e", "é" * 300, "default/", "/", "a/b/c", "../..", "other/name",
    "*", "**",
    "ｍｅｓｈ", "a1 ", "topic:x", "tomorrow", "0.1.1", "0.99999999999.99999999999999", "9" * 500, "-1", "1e5",
    "null",
    [], {}, [None], [[]], [{}], {"x": None}, [1] * 5_000, ["x"] * 1_000, {"": ""}, "high",
    "2030-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00Z", "2030-01-01", "2030-01-01T00:00:00+99:99",
)  # fmt: skip

JSON_VALUES: tuple[Any, ...] = (
    *_BOTH,
    *(Bytes(text) for text in (
        b"NaN", b"Infinity", b"-Infinity", b"1e400", b"-1e400", b"1e-400", b"-0", b"-0.0", b"1E3", b"01",
        b"0x10", b"+1",
        b"1" + b"0" * 400, b"-1" + b"0" * 400, b"100000000000000000000", b"18446744073709551615",
        b"18446744073709551616", b"9223372036854775808", b"-9223372036854775809", b'"\\ud83d"',
        b'"\\udc00 x"',
        b'"\\u0000"', b'"\xff\xfe"', b'"\xed\xa0\xbd"', b'"unfinished', b"undefined", b"'x'", b"", b"[",
        b"}", b"nul",
        b"[" * 5_000 + b"]" * 5_000, b'{"a":' * 500 + b"1" + b"}" * 500, b'{"a":1,"a":2}',
        b'{"\\ud83d":1}', b"1 2",
        b"0." + b"1" * 5_000,
    )),
)  # fmt: skip

MSGPACK_VALUES: tuple[Any, ...] = (
    *_BOTH, math.nan, math.inf, -math.inf, 2**63, 2**64 - 1, b"", b"x", b"\xff" * 100, b"x" * 300_000,
    b"[" * 5_000, {1: 2},
    b'{"a":NaN}', b'{"leaseToken":"0.1.1"}', b'{"metadata":{"replyTo":"x"}}', b'{"originId":"x"}', b"[]",
    b'"\\ud83d"',
    *(Bytes(data) for data in (
        b"\xa3\xed\xa0\xbd", b"\xa2\xff\xfe", b"\xc1", b"\xd6\xff\x00\x00\x00\x00", b"\xd4\x05x",
        b"\x91" * 5_000 + b"\x01",
        b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xffx",
        b"\xc6\xff\xff\xff\xffx", b"",
        b"\x82\xa1a\x01\xa1a\x02", b"\x81\xc0\x01", b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00",
        b"\xd3\x80" + b"\x00" * 7,
    )),
)  # fmt: skip
