"""Large JSON in pieces says what one look at all of it would say, and never looks long without a pause."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaymesh.errors import InvalidEnvelope
from relaymesh.wire import pieces
from relaymesh.wire.content import check_sound
from relaymesh.wire.pieces import check_fields, check_pieces, elements

SMALL = 40
"""A piece in these tests, so that a short text has several."""

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=12), inner, max_size=8),
    max_leaves=40,
)


@pytest.fixture(autouse=True)
def _small_pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "long" not in request.node.name:
        monkeypatch.setattr(pieces, "PIECE_BYTES", SMALL)
        monkeypatch.setattr(pieces, "WEIGHT_MAX", 0)
        monkeypatch.setattr(pieces, "SKIP_BYTES", SMALL - 10)


@pytest.fixture
def frozen_heap() -> Iterator[None]:
    """What other tests left behind is not collected while a turn is timed."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def verdict(data: bytes) -> bool:
    try:
        check_sound(data)
    except InvalidEnvelope:
        return False
    return True


def verdict_in_pieces(data: bytes) -> bool:
    try:
        for _ in check_pieces(data):
            pass
    except InvalidEnvelope:
        return False
    return True


@given(VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_what_is_sound_is_sound_in_pieces(value: Any, ascii: bool, indent: int | None) -> None:
    data = json.dumps(value, ensure_ascii=ascii, indent=indent).encode("utf-8", "replace")
    assert verdict_in_pieces(data) == verdict(data)


@given(VALUES, st.data())
def test_what_is_damaged_is_refused_alike(value: Any, data: st.DataObject) -> None:
    text = bytearray(json.dumps(value).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(at, min(len(text), at + 2)))
        text[at:end] = data.draw(st.sampled_from([b"", b",", b'"', b"[", b"}", b"\\", b":", b"\xff", b"[]"]))
    assert verdict_in_pieces(bytes(text)) == verdict(bytes(text))


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1,"' + b"b" * 60 + b'":2,"a":3}',
        b'{"k":[' + b"1," * 60 + b'1],"k":0}',
        b"[" + b"1," * 60 + b",1]",
        b"[" + b"1," * 60 + b"]",
        b"[" * 65 + b"1," * 40 + b"1" + b"]" * 65,
        b'["' + b"\\" * 99 + b'"]',
        b"[" + b'"x",' * 40 + b'"\\ud800"]',
        b"[" + b"1," * 60 + b"NaN]",
    ],
)
def test_unsound_texts_are_unsound_in_pieces_too(text: bytes) -> None:
    assert not verdict_in_pieces(text)


@given(st.lists(VALUES, min_size=1, max_size=20))
def test_the_elements_of_an_array_are_found(values: list[Any]) -> None:
    data = json.dumps(values).encode()
    found = [data[span[0] : span[1]] for span in elements(data) if span is not None]
    assert [json.loads(each) for each in found] == values


@pytest.mark.parametrize(
    "text",
    [
        b"[" + b"[]," * 700_000 + b"[]]",
        b"[" + b"0," * 1_000_000 + b"0]",
        b"{" + b",".join(b'"k%d":0' % number for number in range(200_000)) + b"}",
        b'["' + b'\\"' * 1_000_000 + b'"]',
        b'["' + b"\\\\" * 1_000_000 + b'"]',
    ],
    ids=["brackets", "numbers", "keys", "quotes", "backslashes"],
)
def test_long_texts_are_checked_in_short_turns(text: bytes, frozen_heap: None) -> None:
    longest, last = 0.0, time.thread_time()
    for _ in check_pieces(text):
        now = time.thread_time()
        longest, last = max(longest, now - last), now
    assert max(longest, time.thread_time() - last) < 0.1


def test_fields_are_counted_at_the_top_and_in_metadata() -> None:
    many = b",".join(b'"f%d":0' % number for number in range(300))
    for text in (b"{" + many + b"}", b'{"to":"a","metadata":{' + many + b"}}",
                 b'{"meta\\u0064ata":{' + many + b"}}"):  # fmt: skip
        with pytest.raises(InvalidEnvelope, match="fields"):
            list(check_fields(text, 299))
        list(check_fields(text, 300))
    list(check_fields(b'{"content":{' + many + b"}}", 10))
