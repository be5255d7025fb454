"""Large JSON, looked at piece by piece, so that an event loop can turn in between.

A decoder looks at a text in one call, which nothing interrupts: 10 MB of `[],[],…` take more than a second.
`is_light` says whether one call is short enough. If not, the generators here find and check the pieces of the
text; they yield None where the caller may pause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from relaymesh.errors import InvalidEnvelope
from relaymesh.wire.content import DEPTH_MAX, check_sound

PIECE_BYTES = 65_536
"""Text of this length is checked in one call, whatever it holds: some milliseconds at most."""
WEIGHT_MAX = 400_000
TOKENS_A_TURN = 5_000
SKIP_BYTES = 16_384
"""Brackets, strings and commas that are looked at without a pause, and bytes that are skipped in one step:
about two milliseconds' worth. Neighbours that are skipped together are smaller than a piece."""

SKIPPED_A_TOKEN = 8
"""So many skipped bytes take as long as one token."""

Span = tuple[int, int]

_SPACE = b" \t\r\n"
_TOP = re.compile(rb'["\[\]{},]')
_DEEP = re.compile(rb'["\[\]{}]')
_INSIDE = re.compile(rb'(?>(?:[^"\[\]{}]++|"[^"\\]*+"|[\[{][^"\[\]{}]*+[\]}])*)')
"""Plain values, and containers of them, that can be skipped in one step. No backtracking: `++` and `(?>…)`.

No `*+` behind a group: before 3.11.5 it keeps a repetition that failed halfway (python/cpython#106052).
"""
_NEIGHBOURS = re.compile(rb'(?>(?:(?>(?:[^"\[\]{},]++|"[^"\\]*+"|[\[{][^"\[\]{}]*+[\]}])*),)*)')
"""The same, each with the comma behind it."""
_KEY = re.compile(rb'[ \t\r\n]*("[^"\\]*(?:\\.[^"\\]*)*")[ \t\r\n]*:', re.DOTALL)
_QUOTE, _COMMA, _BACKSLASH = b'",\\'
_OPENING = frozenset(b"[{")
_CLOSING = {b"[": b"]", b"{": b"}"}

_decode = msgspec.json.Decoder().decode


def is_light(data: bytes) -> bool:
    """Whether a decoder is done with it in a few milliseconds: by its length, or by the values in it."""
    if len(data) <= PIECE_BYTES:
        return True
    brackets = data.count(b"[") + data.count(b"{")
    return 20 * brackets + 12 * data.count(b":") + data.count(b",") <= WEIGHT_MAX


def elements(data: bytes, *, several: bool = False) -> Iterator[Span | None]:
    """Where the elements of an array, or the pairs of an object, begin and end in `data`.

    `several`: a span may hold several neighbours, up to some KiB of them, which is found faster. Raises
    `InvalidEnvelope` when brackets or strings do not end. The elements themselves are not checked.
    """
    begin = at = 1
    end = len(data) - 1
    depth, in_string, left = 0, False, TOKENS_A_TURN
    while True:
        left -= 1
        if left <= 0:
            yield None
            left = TOKENS_A_TURN
        if in_string:
            quote = _next_quote(data, at, end)
            in_string = _is_escaped(data, at, quote)
            at = quote + 1
            continue
        if depth or (several and at == begin):
            after = _skipped(_INSIDE if depth else _NEIGHBOURS, data, at, end)
            left -= (after - at) // SKIPPED_A_TOKEN
            if after > at and not depth:
                yield begin, after - 1
                begin = after
            at = after
        match = (_DEEP if depth else _TOP).search(data, at, end)
        if match is None:
            break
        at = match.end()
        token = data[at - 1]
        if token == _QUOTE:
            in_string = True
        elif token == _COMMA:
            yield begin, at - 1
            begin = at
        elif token in _OPENING:
            depth += 1
        else:
            depth -= 1
            if depth < 0:
                break
    if depth:
        raise _unsound("its brackets do not match")
    yield begin, end


def check_pieces(data: bytes, *, what: str = "content", depth: int = DEPTH_MAX) -> Iterator[None]:
    """Raise `InvalidEnvelope` unless `data` is sound JSON, as `check_sound` does.

    The proof goes by pieces: a container is sound when its elements, taken together in groups between its
    commas, are sound; an object's keys must also be distinct over all groups.
    """
    text = data.strip(_SPACE)
    opening, closing = text[:1], text[-1:]
    if is_light(text) or opening not in _CLOSING:
        check_sound(text, what=what, depth=depth)
        return
    if closing != _CLOSING[opening]:
        raise _unsound("its brackets do not match", what)
    if depth == 0:
        raise InvalidEnvelope(f"{what} is nested deeper than allowed")
    groups = _Groups(text, what, depth)
    for span in elements(text, several=True):
        if span is None:
            yield None
        elif span[1] - span[0] > PIECE_BYTES:
            yield from groups.check()
            yield from check_pieces(groups.large(span), what=what, depth=depth - 1)
        elif groups.add(span) > PIECE_BYTES:
            yield from groups.check()
    yield from groups.check()


class _Groups:
    """Neighbouring elements of one container, checked together."""

    def __init__(self, text: bytes, what: str, depth: int) -> None:
        self._text = text
        self._opening = text[:1]
        self._closing = text[-1:]
        self._what = what
        self._depth = depth
        self._begin = self._end = 0
        self._keys: set[str] = set()

    def add(self, span: Span) -> int:
        """The length of the group with this element in it."""
        if self._begin == 0:
            self._begin = span[0]
        self._end = span[1]
        return self._end - self._begin

    def check(self) -> Iterator[None]:
        if self._begin == 0:
            return
        piece = self._opening + self._text[self._begin : self._end] + self._closing
        self._begin = 0
        check_sound(piece, what=self._what, depth=self._depth)
        value = _decode(piece)
        if not value:
            raise _unsound("an element is missing", self._what)
        if isinstance(value, dict):
            self._add_keys(set(value))
        yield None

    def large(self, span: Span) -> bytes:
        """An element that is checked in pieces itself: the value of a pair, when it is one."""
        if self._opening == b"[":
            return self._text[span[0] : span[1]]
        match = _KEY.match(self._text, *span)
        if match is None:
            raise _unsound("an object has a pair without a key", self._what)
        check_sound(match[1], what=self._what)
        self._add_keys({_decode(match[1])})
        return self._text[match.end() : span[1]]

    def _add_keys(self, keys: set[str]) -> None:
        twice = self._keys & keys
        if twice:
            raise _unsound(f"the key {min(twice)[:80]!r} occurs twice in one object", self._what)
        self._keys |= keys


def check_fields(data: bytes, most: int) -> Iterator[None]:
    """Raise `InvalidEnvelope` if an object, or its `metadata`, has more than `most` fields."""
    text = data.strip(_SPACE)
    if text[:1] != b"{" or text[-1:] != b"}":
        return
    count = 0
    for span in elements(text):
        if span is None:
            yield None
            continue
        count += 1
        if count > most:
            raise InvalidEnvelope(f"the message has more than {most} fields")
        if span[1] - span[0] > PIECE_BYTES:
            match = _KEY.match(text, *span)
            if match is not None and (match[1] == b'"metadata"' or _BACKSLASH in match[1]):
                yield from check_fields(text[match.end() : span[1]], most)


def _skipped(plain: re.Pattern[bytes], data: bytes, at: int, end: int) -> int:
    match = plain.match(data, at, min(end, at + SKIP_BYTES))
    return at if match is None else match.end()


def _next_quote(data: bytes, at: int, end: int) -> int:
    quote = data.find(b'"', at, end)
    if quote < 0:
        raise _unsound("a string has no end")
    return quote


def _is_escaped(data: bytes, begin: int, quote: int) -> bool:
    """Whether an odd number of backslashes stands before the quote."""
    if data[quote - 1] != _BACKSLASH:
        return False
    length = 64
    while True:
        before = data[max(begin, quote - length) : quote]
        run = len(before) - len(before.rstrip(b"\\"))
        if run < len(before) or len(before) < length:
            return run % 2 == 1
        length *= 8


def _unsound(why: str, what: str = "the body") -> InvalidEnvelope:
    return InvalidEnvelope(f"{what} is not sound JSON: {why}")
