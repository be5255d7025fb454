"""Hostile values, each as the line of Python that makes it: what a failing call prints reproduces it.

`value_of(source)` makes a new object every time, so that no call sees what an earlier one did to it.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
import enum
import fractions
import functools
import math
import pathlib
import time
import uuid
from collections.abc import Callable
from types import CodeType
from typing import Any

import relaymesh


class Whole(int):
    """An int of another class, as numpy and many ORMs have."""


class Words(str):
    """A str of another class."""

    __slots__ = ()


class Listed(list[Any]):
    """A list of another class."""


class Mapped(dict[str, Any]):
    """A dict of another class."""


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 2
    HUGE = 2**70


class Mood(enum.StrEnum):
    CALM = "calm"


class Indexed:
    """No int, and says that it can be used as one, as numpy's integers do."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __index__(self) -> int:
        return self._value  # type: ignore[no-any-return]

    __int__ = __index__

    def __float__(self) -> float:
        return float(self._value)


class Spite(Exception):
    """What hostile objects raise. It must never come out of a call."""


def _spite(*_: Any, **__: Any) -> Any:
    raise Spite("a hostile object was asked")


class Evil:
    """Whatever is asked of it raises."""

    __str__ = __repr__ = __eq__ = __hash__ = __iter__ = __len__ = __index__ = __int__ = _spite
    __float__ = __bool__ = __getitem__ = __contains__ = __call__ = __fspath__ = __format__ = _spite
    __lt__ = __le__ = __gt__ = __ge__ = __add__ = __radd__ = __mul__ = __rmul__ = __bytes__ = _spite


class EvilStr(str):
    """A string that is one, and whose methods raise."""

    __slots__ = ()
    __str__ = __repr__ = __eq__ = __hash__ = __len__ = __format__ = _spite
    encode = split = partition = rpartition = startswith = _spite


class EvilInt(int):
    __str__ = __repr__ = __eq__ = __hash__ = __index__ = __int__ = __lt__ = __gt__ = __le__ = __ge__ = _spite


class EvilDict(dict[str, Any]):
    """A dict whose looks and content differ."""

    items = keys = values = get = __iter__ = __getitem__ = __len__ = _spite


class EvilList(list[Any]):
    __iter__ = __len__ = __getitem__ = _spite


class Lying(list[Any]):
    """Says that it is longer than it is."""

    def __len__(self) -> int:
        return super().__len__() + 3


class EvilError(Exception):
    """An exception that cannot be shown."""

    __str__ = __repr__ = _spite


class StatusError(Exception):
    """An exception whose attributes raise."""

    @property
    def status_code(self) -> int:
        raise Spite("status_code")

    @property
    def response(self) -> Any:
        raise Spite("response")


def looped() -> list[Any]:
    """A list that holds itself."""
    value: list[Any] = [1]
    value.append(value)
    return value


def knot() -> dict[str, Any]:
    """A dict that holds itself."""
    value: dict[str, Any] = {"a": 1}
    value["self"] = value
    return value


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def changed(error: BaseException, **attributes: Any) -> BaseException:
    """An exception whose attributes were assigned after it was made."""
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


def chained(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


def raises(error: Any) -> Callable[[Any], Any]:
    """A handler that raises."""

    def handler(delivery: Any) -> None:
        raise error

    return handler


def returns(value: Any) -> Callable[[Any], Any]:
    """A handler that returns."""

    def handler(delivery: Any) -> Any:
        return value

    return handler


def calls(method: str, *arguments: Any, **options: Any) -> Callable[[Any], Any]:
    """A handler that calls a method of its delivery, as the handlers of both meshes may."""

    def handler(delivery: Any) -> Any:
        return getattr(delivery, method)(*arguments, **options)

    return handler


NAMESPACE: dict[str, Any] = {
    **{name: value for name, value in globals().items() if not name.startswith("_")},
    **{name: getattr(relaymesh, name) for name in relaymesh.__all__},
    "datetime": dt.datetime,
    "timedelta": dt.timedelta,
    "timezone": dt.timezone,
    "date": dt.date,
    "Decimal": decimal.Decimal,
    "Fraction": fractions.Fraction,
    "Path": pathlib.Path,
    "UUID": uuid.UUID,
    "partial": functools.partial,
    "inf": math.inf,
    "nan": math.nan,
    "time": time,
    "asyncio": asyncio,
}

NUMBERS = (
    "0", "-0.0", "-1", "1", "2", "0.5", "500.0", "3.0", "-0.5", "1e-300", "1e300", "nan", "inf", "-inf",
    "2**31 - 1", "2**31", "2**32", "2**53", "2**53 + 1", "2**62", "2**63 - 1", "2**63", "2**64 - 1", "2**64",
    "10**20", "10**400", "-(2**31)", "-(2**63)", "-(2**63) - 1", "-(2**64)", "-(10**400)",
    "True", "False", "Whole(5)", "Whole(2**70)", "EvilInt(5)", "Level.HIGH", "Level.HUGE",
    "Decimal('1.5')", "Decimal('NaN')", "Decimal('1e400')", "Fraction(1, 3)", "1j", "Indexed(5)",
    "Indexed('5')",
    "time.time_ns()", "time.time()", "timedelta(seconds=5)", "timedelta.max",
    "datetime(2030, 1, 1)", "datetime(2030, 1, 1, tzinfo=timezone.utc)", "datetime.min", "datetime.max",
    "datetime.max.replace(tzinfo=timezone.utc)", "datetime.min.replace(tzinfo=timezone.utc)",
    "date(2030, 1, 1)",
)  # fmt: skip

TEXTS = (
    "''", "' '", "'x'", "'5'", "'\\ud83d'", "'half \\udc00 of it'", "'\\x00'", "'a\\x00b'", "'\\x1b[31mred'",
    "'\\u202e'", "'é' * 300", "'x' * 200", "'x' * 5_000", "'x' * 300_000", "'\\ud83d' * 5_000", "'\\n'",
    "'default/'", "'/'", "'a/b/c'", "'../..'", "'other/name'", "'*'", "'**'", "'ｍｅｓｈ'", "'a1 '",
    "'topic:x'",
    "Words('a1')", "Words('\\ud83d')", "EvilStr('a1')", "Mood.CALM", "b'a1'", "bytearray(b'a1')",
    "memoryview(b'a1')", "UUID(int=1)", "Path('a1')", "'tomorrow'", "'high'", "'HIGH'", "'None'", "'null'",
)  # fmt: skip

THINGS = (
    "None", "object()", "Evil()", "Evil", "Colour.RED", "...", "NotImplemented", "int", "len", "lambda: 1",
    "lambda *a, **k: Evil()", "ValueError('\\ud83d')", "EvilError()", "EvilError", "Retry", "Retry()",
    "Drop()",
    "{}", "[]", "()", "set()", "{1, 2}", "frozenset({'a1'})", "[None]", "[[]]", "[Evil()]", "{'a': Evil()}",
    "{Evil: 1}", "{1: 2}", "{None: None}", "{'\\ud83d': '\\ud83d'}", "{'a': {2**64: 1}}", "{'a': 10**400}",
    "[nan]", "{'a': inf}", "looped()", "knot()", "nested(100)", "nested(5_000)", "[1] * 10_000",
    "(i for i in range(3))", "iter([])", "(1 / 0 for _ in range(1))", "range(3)", "range(2**70)",
    "Listed(['a1'])", "Mapped(a=1)", "Mapped(to='a1', content=1)", "EvilDict(a=1)", "EvilList([1])",
    "Lying(['a1'])", "[{'to': 'a1', 'content': 1}]", "{'to': 'a1', 'content': 1}",
    "[{'to': Evil(), 'content': 1}]",
    "b''", "b'\\xff' * 100", "bytearray(5)", "memoryview(b'abc')", "(0, 0)", "(-1, 2)", "(1, 2, 3)",
    "('1', '2')",
    "partial(len, 1)", "asyncio.Event()", "Rule(3)", "MeshSettings()", "RemoteSettings()", "Priority.LOW",
)  # fmt: skip

HOSTILE = (*NUMBERS, *TEXTS, *THINGS)

_compiled: dict[str, CodeType] = {}


def value_of(source: str, **names: Any) -> Any:
    """The object that a line of Python makes."""
    code = _compiled.get(source)
    if code is None:
        code = compile(source, "<hostile>", "eval")
        if len(_compiled) < 20_000:
            _compiled[source] = code
    return eval(code, {**NAMESPACE, **names} if names else NAMESPACE)


ERRORS = (
    "ValueError('no')", "ValueError('half an emoji \\ud83d')", "ValueError('\\x00')",
    "ValueError('x' * 500_000)",
    "ValueError(Evil())", "EvilError()", "StatusError('x')", "KeyError(Evil())", "OSError(2**70, 'x')",
    "UnicodeDecodeError('utf-8', b'\\xff', 0, 1, 'x')", "TimeoutError()", "ConnectionError()",
    "MemoryError()",
    "RecursionError()", "chained(ValueError('a'), EvilError())",
    "ExceptionGroup('\\ud83d', [ValueError('\\ud83d')])",
    "StopIteration(5)", "AssertionError(Evil())", "Empty('x')", "LeaseLost('x')", "Closed('x')",
    "MeshError('\\ud83d')",
    "Retry('busy')", "Retry('busy', after=0.5)", "Retry(after=5, times=2)", "Retry('\\ud83d', after=1)",
    "Retry(until=time.time() + 60)", "Retry(until=datetime(2030, 1, 1))", "Reject('no')", "Reject('\\ud83d')",
    "Reject(Evil())", "Reject()", "Drop()", "Drop(Evil())", "Drop('\\ud83d' * 5_000)",
    "type('E' * 100_000, (Exception,), {})('x')",
    "changed(ValueError('x'), status_code=Evil())", "changed(ValueError('x'), status_code=429)",
)  # fmt: skip
"""What a handler, or a `with` block, may raise."""
