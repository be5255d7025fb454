"""When two JSON texts mean the same: they differ in spacing, the order of keys, or ways to write a value.

Numbers are compared as the numbers they are, exactly: `1`, `1.0` and `10e-1` are one number, and
9007199254740993 is not 9007199254740992, though both are the same float. `true` is no number. The order of
an array counts. A key that occurs twice is never taken for one that occurs once.
"""

from __future__ import annotations

import json
from typing import Any

EXPONENT_DIGITS_MAX = 18


def same_json(one: bytes, other: bytes) -> bool:
    """Whether these are the same value. What cannot be read is equal to nothing."""
    try:
        return bool(_value(one) == _value(other))
    except (ValueError, RecursionError):
        return False


def _value(text: bytes) -> Any:
    return json.loads(
        text.decode(),
        parse_int=_number,
        parse_float=_number,
        parse_constant=_no_constant,
        object_pairs_hook=_object,
    )


class _Object:
    """A JSON object: its pairs by key. Of equal keys the order counts."""

    __slots__ = ("_pairs",)

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self._pairs = sorted(pairs, key=lambda pair: pair[0])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Object) and self._pairs == other._pairs

    __hash__ = None  # type: ignore[assignment]


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    return _Object(pairs)


def _number(text: str) -> tuple[bool, str, int]:
    """Sign, digits and exponent, each number in one form only; a tuple is equal to no other JSON value."""
    negative = text.startswith("-")
    mantissa, _, exponent = text.lstrip("-").lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    if len(exponent) > EXPONENT_DIGITS_MAX:
        raise ValueError(f"an exponent of {len(exponent)} digits")
    power = int(exponent or 0) - len(fraction)
    digits = (whole + fraction).lstrip("0")
    significant = digits.rstrip("0")
    if not significant:
        return False, "", 0
    return negative, significant, power + len(digits) - len(significant)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
