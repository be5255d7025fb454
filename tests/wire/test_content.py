"""Content at the edge: what passes can be stored and read back, byte for byte."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaymesh.errors import InvalidEnvelope, MeshError, PayloadTooLarge
from relaymesh.kernel.envelope import Encoding
from relaymesh.wire.content import check_json, decode_content, encode_content, plainly_sound

UNSOUND: dict[str, bytes] = {
    "nothing": b"",
    "blank": b" \n",
    "half an object": b'{"a":',
    "two values": b"1 2",
    "a trailing comma": b"[1,]",
    "a leading zero": b"01",
    "single quotes": b"{'a':1}",
    "a comment": b"1 // one",
    "NaN": b"NaN",
    "Infinity": b"[-Infinity]",
    "1e999": b"1e999",
    "-1e999 nested": b'{"a":[-1e999]}',
    "duplicate keys": b'{"a":1,"a":2}',
    "duplicate keys nested": b'[{"x":{"a":1,"b":2,"a":1}}]',
    "duplicate keys, one escaped": b'{"a":1,"\\u0061":2}',
    "invalid UTF-8": b'"\xff"',
    "cut UTF-8": b'"\xe2\x82"',
    "UTF-16": '"x"'.encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf1",
    "a surrogate in UTF-8": b'"\xed\xa0\x80"',
    "a lone surrogate, escaped": b'"\\ud800"',
    "a lone surrogate, escaped, with more": b'["\\udc00 and more text"]',
    "a control character": b'"\x00"',
    "65 levels": b"[" * 65 + b"]" * 65,
    "65 mixed levels": b'{"a":[' * 33 + b"1" + b"]}" * 33,
    "100000 levels": b"[" * 100_000 + b"]" * 100_000,
    "100000 levels that never end": b"[" * 100_000,
    "a number too long": b"1" * 5000,
}


@pytest.mark.parametrize("name", UNSOUND)
def test_json_that_a_reader_could_stumble_over_is_refused(name: str) -> None:
    with pytest.raises(InvalidEnvelope) as caught:
        check_json(UNSOUND[name])
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "data",
    [
        b"null",
        b' {"a" : 1.50e3 } ',
        b"[" * 64 + b"]" * 64,
        b'"' + b"[" * 100 + b'"',
        b'{"a":"\\"[[[","b":[]}',
        b'"\\ud83d\\ude00"',
        b"123456789012345678901234567890",
        b'{"a":{"a":1},"b":{"a":1}}',
    ],
)
def test_sound_json_is_kept_byte_for_byte(data: bytes) -> None:
    assert check_json(data) is data
    assert decode_content(data, Encoding.JSON) == json.loads(data)


def test_size_is_checked_before_anything_is_read() -> None:
    with pytest.raises(PayloadTooLarge, match="101 bytes; the limit is 100"):
        check_json(b"[" * 101, limit=100)
    with pytest.raises(PayloadTooLarge):
        encode_content("x" * 99, limit=100)
    assert encode_content("x" * 98, limit=100) == (b'"' + b"x" * 98 + b'"', Encoding.JSON)


def test_a_hostile_object_is_refused_in_the_time_of_a_sound_one() -> None:
    """Many keys and one of them twice: telling which must not cost their square."""
    keys = b",".join(b'"%d":0' % n for n in range(50_000))
    began = time.perf_counter()
    with pytest.raises(InvalidEnvelope, match="'49999' occurs twice"):
        check_json(b"{" + keys + b',"49999":1}')
    assert time.perf_counter() - began < 2


@pytest.mark.parametrize("content", [b"\xff\x00", bytearray(b"abc"), memoryview(b"abc"), b""])
def test_bytes_stay_bytes(content: Any) -> None:
    data, encoding = encode_content(content)
    assert encoding == Encoding.BYTES
    assert decode_content(data, encoding) == bytes(content)


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_sound_json_or_refused(data: bytes) -> None:
    try:
        check_json(data)
    except MeshError:
        return
    assert decode_content(data, Encoding.JSON) == json.loads(data)


ALPHABET = [
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b":",
    b",",
    b"1",
    b"-",
    b"e",
    b".",
    b"\\u",
    b"d800",
    b"null",
    b"a",
    b" ",
]


@settings(max_examples=1000, deadline=None)
@given(st.lists(st.sampled_from(ALPHABET), max_size=14).map(b"".join))
def test_anything_that_looks_like_json_is_sound_or_refused(data: bytes) -> None:
    try:
        check_json(data)
    except MeshError:
        return
    value = decode_content(data, Encoding.JSON)
    assert value == json.loads(data)
    assert decode_content(*encode_content(value)) == value


KEYS = [b'"a"', b'"b"', b'"\\u0061"', b'"a:"', b'"a\\u003a"', b'"a\\u003A"', b'"\\\\u003a"', b'"\\"a\\":"']
SPACE = st.sampled_from([b"", b"", b"", b" ", b"\n\t"])


def _object(pairs: list[tuple[bytes, bytes, bytes]]) -> bytes:
    return b"{" + b",".join(key + space + b":" + value for key, space, value in pairs) + b"}"


objects = st.recursive(
    st.sampled_from(
        [b"1", b"-0", b"1.0", b"1e2", b'"x:y"', b'"\\u003a"', b"null", b"18446744073709551616", b"[]"]
    ),
    lambda inner: (
        st.lists(st.tuples(st.sampled_from(KEYS), SPACE, inner), max_size=4).map(_object)
        | st.lists(inner, max_size=3).map(lambda parts: b"[" + b" ,".join(parts) + b"]")
    ),
    max_leaves=12,
)


@settings(max_examples=500, deadline=None)
@given(objects)
def test_keys_are_found_distinct_exactly_when_a_slow_look_finds_them_so(data: bytes) -> None:
    """The quick proof by counting colons never says yes where the slow way says no."""

    def distinct(pairs: list[tuple[str, Any]]) -> None:
        assert len({key for key, _ in pairs}) == len(pairs)

    try:
        json.loads(data, object_pairs_hook=distinct)
    except AssertionError:
        with pytest.raises(InvalidEnvelope, match="occurs twice"):
            check_json(data)
    else:
        assert check_json(data) is data


@pytest.mark.parametrize("levels", [64, 65])
@pytest.mark.parametrize(
    ("opening", "closing"),
    [(b"[", b"]"), (b'{"a":', b"}"), (b'["]]]",', b"]"), (b'["\\"[[[",', b"]"), (b'{"}":"{{",":":', b"}")],
)
def test_depth_is_counted_outside_strings_only(opening: bytes, closing: bytes, levels: int) -> None:
    text = opening * levels + b"1" + closing * levels
    if levels == 64:
        assert check_json(text) is text
    else:
        with pytest.raises(InvalidEnvelope, match="nested deeper"):
            check_json(text)


@settings(max_examples=300, deadline=None)
@given(
    st.recursive(st.floats() | st.none(), lambda inner: st.lists(inner, min_size=1, max_size=3), max_leaves=6)
)
def test_no_number_turns_into_null(value: Any) -> None:
    """The encoder writes NaN and infinities as null: nothing gets through that way."""

    def finite(part: Any) -> bool:
        if isinstance(part, list):
            return all(map(finite, part))
        return part is None or math.isfinite(part)

    if finite(value):
        assert decode_content(*encode_content(value)) == value
    else:
        with pytest.raises(InvalidEnvelope, match=r"nan|inf"):
            encode_content(value)


def test_structs_and_other_plain_things_are_written_as_json_sees_them() -> None:
    class Point(msgspec.Struct):
        x: float
        y: float | None = None

    assert decode_content(*encode_content([Point(1.0), (1, 2), {3}])) == [{"x": 1.0, "y": None}, [1, 2], [3]]
    with pytest.raises(InvalidEnvelope):
        encode_content(Point(math.nan))


# -- many at once -----------------------------------------------------------------------------

MISLEADING = [
    [b"1,2", b"[3", b"4]"],
    [b"1\n2", b"[3,", b"4]"],
    [b"1\n2", b'"3', b'4"'],
    [b"1", b"", b"2\n3"],
    [b"1\n2"],
    [b"", b""],
    [b"1", b'{"a":1,"a":1}'],
    [b"1", b"[" * 65 + b"]" * 65],
    [b'["]",' * 70 + b"1" + b',"["]' * 70],
    [b'"\xff"', b"1"],
]


@pytest.mark.parametrize("texts", MISLEADING)
def test_texts_that_are_sound_only_together_are_not_plainly_sound(texts: list[bytes]) -> None:
    assert not plainly_sound(texts)


def test_what_our_encoder_wrote_is_plainly_sound() -> None:
    values: list[Any] = [{"a": [1, {"b": "\n{["}]}, "x", 1.5, None, [], {"ü": True}]
    assert plainly_sound([msgspec.json.encode(value) for value in values])


@pytest.mark.parametrize("flat", [b"{}", b"[]", b"1", b'"x"', b'["[{"]'])
@pytest.mark.parametrize("place", [0, 40, 99])
def test_one_text_that_is_too_deep_is_found_among_many_that_are_flat(flat: bytes, place: int) -> None:
    texts = [flat] * 99
    for depth in (64, 65):
        deep = [*texts[:place], b"[" * depth + b"]" * depth, *texts[place:]]
        assert plainly_sound(deep) == (depth == 64)


PIECES = st.lists(
    st.one_of(
        st.sampled_from(
            [*UNSOUND.values(), b"1", b"[3", b"4]", b'"', b"{}", b"\n", b",", b'{"a":1}', b"[1,2]"]
        ),
        st.binary(max_size=4),
    ),
    max_size=6,
)


@given(PIECES)
@settings(deadline=None)
def test_what_is_plainly_sound_together_is_sound_one_by_one(texts: list[bytes]) -> None:
    if plainly_sound(texts):
        for text in texts:
            check_json(text)


def test_raw_json_is_checked_like_any_from_outside() -> None:
    assert encode_content(msgspec.Raw(b'{"a": 1}')) == (b'{"a": 1}', Encoding.JSON)
    with pytest.raises(InvalidEnvelope):
        encode_content(msgspec.Raw(b"{not json"))
