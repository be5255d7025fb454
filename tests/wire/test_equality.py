"""Which JSON texts are one value: those that differ in how they are written, and no others."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaymesh.wire.equality import same_json

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a":1,"b":[true,null]}', ' { "b" : [ true , null ] ,\n "a" : 1 }\t'),
        ('"caf\u00e9 \U0001f600"', '"caf\\u00e9 \\ud83d\\ude00"'),
        ('"a/b"', '"a\\/b"'),
        ("1", "1.0"),
        ("100", "1e2"),
        ("100", "1E+2"),
        ("0.10", "1e-1"),
        ("-0", "0.0"),
        ("0e5", "0"),
        ("1" + "0" * 400, "1e400"),
        ("123456789012345678901234567890", "123456789012345678901234567890.000"),
        ('{"a":{"x":1,"y":2}}', '{"a":{"y":2,"x":1}}'),
        ('{"a":1,"a":2}', '{ "a": 1, "a": 2 }'),
    ],
)
def test_these_are_one_value(one: str, other: str) -> None:
    assert same_json(one.encode(), other.encode())
    assert same_json(other.encode(), one.encode())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1", "true"),
        ("0", "false"),
        ("0", "null"),
        ('"1"', "1"),
        ("1", "-1"),
        ("1", "10"),
        ("0.1", "0.10000000000000001"),
        ("9007199254740993", "9007199254740992"),
        ("1e400", "1e401"),
        ("[1,2]", "[2,1]"),
        ("[]", "{}"),
        ("[1]", "1"),
        ("[]", '""'),
        ('[false,"1",0]', "1"),
        ('{"a":1}', '{"a":1,"b":null}'),
        ('{"a":1,"a":2}', '{"a":2}'),
        ('{"a":1,"a":2}', '{"a":2,"a":1}'),
        ('"caf\u00e9"', '"cafe\u0301"'),
        ('"a"', '"A"'),
        ('""', '" "'),
    ],
)
def test_these_are_two(one: str, other: str) -> None:
    assert not same_json(one.encode(), other.encode())
    assert not same_json(other.encode(), one.encode())


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff",
        b"{",
        b"NaN",
        b"[Infinity]",
        b"1 2",
        b"[" * 100_000,
        b"1e" + b"9" * 5_000,
        b"{'a':1}",
    ],
)
def test_what_cannot_be_read_is_equal_to_nothing_and_raises_nothing(text: bytes) -> None:
    assert not same_json(text, text)
    assert not same_json(b"1", text)


@given(VALUES)
def test_another_way_of_writing_a_value_is_the_same_value(value: Any) -> None:
    one = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    other = json.dumps(_turned(value), indent=2)
    assert same_json(one.encode(), other.encode())


def _turned(value: Any) -> Any:
    """The same value with the keys of its objects the other way round."""
    if isinstance(value, dict):
        return {key: _turned(value[key]) for key in reversed(value)}
    return [_turned(each) for each in value] if isinstance(value, list) else value


@given(VALUES, VALUES)
def test_two_values_are_equal_as_python_sees_their_canonical_texts(one: Any, other: Any) -> None:
    texts = [json.dumps(_plain(value), sort_keys=True) for value in (one, other)]
    assert same_json(texts[0].encode(), texts[1].encode()) == (texts[0] == texts[1])


def _plain(value: Any) -> Any:
    """Whole floats as integers: two ways to write one number."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value
