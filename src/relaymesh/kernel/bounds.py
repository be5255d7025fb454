"""Bounds: which values may enter the kernel, for every command and every setting, from every transport.

Every command checks itself with these functions when it is built, so embedded programs, HTTP, WebSocket and
the file bus share one set of bounds. A value inside the bounds survives encoding and decoding unchanged, in
every record and every checkpoint that may hold it.

Each function returns the plain value: a subclass of `int` or `str` becomes an `int` or a `str`, because the
journal's encoder knows no subclasses and a subclass may override methods.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from relaymesh.errors import InvalidValue, MeshError

DURATION_MS_MAX = 1 << 53
"""About 285,000 years, the largest delay or time to live."""
MOMENT_MS_MAX = 1 << 54
"""The latest mesh time that a record may hold: the largest duration after the largest clock reading."""
LEASE_MS_MAX = 365 * 86_400_000
"""A year: the longest lease, and the longest extension."""
COUNT_MAX = 1_000_000_000
"""The largest number of messages, failures or probes in a setting."""
BYTES_MAX = 1 << 53
RETRIES_MAX = 1_000_000
RECEIVE_MAX = 1_000_000
"""Deliveries that one receive may ask for."""
TOKEN_MAX = (1 << 63) - 1
CODE_LENGTH_MAX = 128
TEXT_LENGTH_MAX = 512
"""Names that are not addresses: correlation ids, tasks, keys, tags, roles, capabilities."""
ADDRESS_LENGTH_MAX = 512
"""A namespace, a pattern and a subscription's name, each of up to 128 characters, with their separators."""
SECONDS_MAX = 1_000_000_000.0
"""About 32 years: a longer wait is cut to this, which every platform's clock can count."""

_SURROGATE = re.compile("[\ud800-\udfff]")


def shown(value: object) -> str:
    """A refused value in the form that errors show: short, whatever it is."""
    try:
        return sound(f"{value!r:.80}")
    except Exception:  # a number too long to print, an object that cannot be shown
        return f"a {type(value).__name__}"


def sound(text: str) -> str:
    """The text in a form that UTF-8 can encode: pairs of surrogates are joined, lone ones become U+FFFD."""
    if text.isascii() or _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def whole(value: Any, what: str, least: int, most: int, error: type[MeshError] = InvalidValue) -> int:
    """A whole number between two bounds. A bool is refused, and so is 5.0."""
    kind = type(value)
    if kind is not int:
        if kind is bool or not issubclass(kind, int):
            raise error(f"{what} must be a whole number, not {shown(value)}")
        value = int.__int__(value)
    if not least <= value <= most:
        raise error(f"{what} must lie between {least} and {most}, not {shown(value)}")
    return value  # type: ignore[no-any-return]


def real(value: Any, what: str, least: float, most: float, error: type[MeshError] = InvalidValue) -> float:
    """A finite number between two bounds."""
    plain = number(value)
    if plain is None:
        raise error(f"{what} must be a number, not {shown(value)}")
    if not least <= plain <= most:  # NaN lies between no bounds
        raise error(f"{what} must lie between {_written(least)} and {_written(most)}, not {shown(plain)}")
    return float(plain)


def seconds(value: Any, what: str, error: type[MeshError] = InvalidValue) -> float:
    """A time to wait: a negative one counts as 0, and one above `SECONDS_MAX` as `SECONDS_MAX`."""
    plain = number(value)
    if plain is None or plain != plain:  # noqa: PLR0124  NaN
        raise error(f"{what} must be a number of seconds, not {shown(value)}")
    return float(min(max(plain, 0), SECONDS_MAX))


def _written(bound: float) -> str:
    """A bound as a person writes it: 1000000000, not 1e+09."""
    return str(int(bound)) if bound == int(bound) else f"{bound:g}"


def patience(timeout: Any) -> float | None:
    """How many seconds a caller waits; None: forever."""
    if timeout is None:
        return None
    if timeout.__class__ is int and 0 <= timeout <= SECONDS_MAX:
        return timeout
    return seconds(timeout, "timeout")


def number(value: Any) -> int | float | None:
    """The plain number; None for anything else."""
    kind = type(value)
    if kind is int or kind is float:
        return value  # type: ignore[no-any-return]
    if kind is bool:
        return None
    if issubclass(kind, int):
        return int.__int__(value)
    return float.__float__(value) if issubclass(kind, float) else None


def flag(value: Any, what: str, error: type[MeshError] = InvalidValue) -> bool:
    if value is not True and value is not False:
        raise error(f"{what} must be True or False, not {shown(value)}")
    return value


def text(value: Any, what: str, least: int, most: int, error: type[MeshError] = InvalidValue) -> str:
    """A text with a length between two bounds, in a form that UTF-8 can encode."""
    if type(value) is str and value.isascii() and least <= len(value) <= most:
        return value
    plain = sound(plain_text(value, what, error))
    if not least <= len(plain) <= most:
        raise error(f"{what} must have {least} to {most} characters, not {len(plain)}")
    return plain


def exact(value: Any, what: str, least: int, most: int, error: type[MeshError] = InvalidValue) -> str:
    """A text by which something is found again: two of them must not become one, so none is mended."""
    plain = text(value, what, least, most, error)
    if not plain.isascii() and _is_mended(plain_text(value, what, error)):
        raise error(f"{what} holds half a surrogate pair (half an emoji): {shown(plain)}")
    return plain


def _is_mended(given: str) -> bool:
    try:
        given.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        return True
    return False


def plain_text(value: Any, what: str, error: type[MeshError] = InvalidValue) -> str:
    """The plain text, without the methods of a subclass."""
    kind = type(value)
    if kind is str:
        return value  # type: ignore[no-any-return]
    if not issubclass(kind, str):
        raise error(f"{what} must be a string, not {shown(value)}")
    return str.__str__(value)


def one_of(value: Any, what: str, names: Sequence[str], error: type[MeshError] = InvalidValue) -> str:
    if issubclass(type(value), str):
        plain = str.__str__(value)
        if plain in names:
            return plain
    raise error(f"{what} must be one of {', '.join(names)}, not {shown(value)}")
