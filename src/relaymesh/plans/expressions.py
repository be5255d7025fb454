"""Expressions: CEL inside `${{ … }}`, evaluated over the input and the outputs of steps.

A context holds `input`, `steps` (name to `{"output": …}`) and, for an item of `for_each`, `item` and `index`.
That of a step which undoes another holds its `output`, and `uncertain`: whether it is unknown if it was done.
An expression reads no clock and is not random, so evaluating it again gives the same bytes. The CEL library
is imported with the first expression that does more than read a value: its package loads a command line that
most programs never need.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from relaymesh.errors import MeshError
from relaymesh.kernel.bounds import shown
from relaymesh.kernel.tasks.plan import EXPRESSION_LENGTH_MAX
from relaymesh.plans.cel_text import (
    OPENING,
    PLAIN_LENGTH_MAX,
    ROOTS,
    UNDO_ROOTS,
    Malformed,
    Path,
    check_text,
    loop_names,
    loops_nested,
    paths,
    pieces,
    plain_path,
    written,
)
from relaymesh.plans.cel_work import work_of
from relaymesh.plans.position import kind_of, one_line
from relaymesh.wire.content import encode_content
from relaymesh.wire.near import Names

if TYPE_CHECKING:
    from cel import Program

ITEMS_MAX = 10_000
LOOP_ITEMS_MAX = {1: 500, 2: 60}
"""Items of the lists that a loop, or two nested ones, may read: some tens of milliseconds at most."""
WORK_MAX = 250_000_000
"""Of one expression: some tenths of a second at most."""
EXPRESSIONS_LIGHT = 8
"""Up to this many expressions of one input are cheap, whatever they read."""
READ_BYTES_MAX = 67_108_864
"""What all expressions of one input may read together: the library copies it for each."""
FUNCTIONS = frozenset(
    {
        "size",
        "contains",
        "startsWith",
        "endsWith",
        "matches",
        "string",
        "bytes",
        "double",
        "int",
        "uint",
        "dyn",
        "type",
        "timestamp",
        "duration",
        "getFullYear",
        "getMonth",
        "getDate",
        "getHours",
        "getMinutes",
        "getSeconds",
        "getMilliseconds",
        "getDayOfYear",
        "getDayOfMonth",
        "getDayOfWeek",
    }
)
"""The functions that expressions may call. None of them reads a clock or is random."""

_ABSENT: Any = object()
_MATCHES = re.compile(r"\bmatches\b")
_encode_sorted = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.decode
_measure = msgspec.msgpack.Encoder().encode


class ExpressionFailed(Exception):
    """An expression could not be evaluated. `message` names the expression, what is missing, and what
    exists."""

    def __init__(self, expression: str, problem: str) -> None:
        quoted = expression if len(expression) <= 200 else f"{expression[:200]}…"
        self.message = one_line(f"${{{{ {quoted} }}}}: {problem}" if expression else problem)
        super().__init__(self.message)


@lru_cache(maxsize=1024)
def _compiled(expression: str) -> Program:
    """The expression, ready to run. Raises `Malformed`."""
    check_text(expression)
    import cel  # noqa: PLC0415  loads a command line

    try:
        return cel.compile(expression)
    except UnicodeEncodeError:
        raise Malformed("the expression holds half a surrogate pair") from None
    except ValueError as error:
        raise Malformed(_syntax(str(error))) from None


def _syntax(told: str) -> str:
    """The library's first message, without its long list of allowed tokens."""
    first = told.partition("ERROR: <input>:")[2].splitlines() or [told]
    where, _, what = first[0].partition(": ")
    column = where.rpartition(":")[2]
    return f"column {column}: {what.removeprefix('Syntax error: ').partition(' expecting ')[0]}"


def check_expression(expression: str, roots: tuple[str, ...] = ROOTS) -> list[Path]:
    """The fields of its context that a valid expression reads. `roots` are the names of the context.
    Raises `Malformed`."""
    plain = plain_path(expression)
    if plain is not None and plain[0] in roots:
        return [Path(plain)]
    program = _compiled(expression)
    bound = loop_names(expression)
    for name in sorted(bound & set(roots)):
        raise Malformed(f"a loop names its variable {name!r}, which hides the other {name!r}: rename it")
    for name in program.variables():
        if name in bound or name in roots:
            continue
        if name in UNDO_ROOTS:
            raise Malformed(f"{name!r} is known only in compensate")
        raise Malformed(f"unknown name {name!r}: an expression reads {', '.join(roots)}")
    for name in program.functions():
        if name.isidentifier() and name not in FUNCTIONS and not name.startswith("_"):
            meant = Names(FUNCTIONS).nearest(name)
            raise Malformed(f"unknown function {name!r}" + (f": did you mean {meant!r}?" if meant else ""))
    return paths(expression)


def expressions_in(value: Any) -> list[str]:
    """All expressions in the strings of a JSON value. Raises `Malformed`."""
    if isinstance(value, str):
        return [text for is_expression, text in pieces(value) if is_expression]
    if isinstance(value, list):
        return [each for part in value for each in expressions_in(part)]
    if isinstance(value, dict):
        for key in value:
            if OPENING in key:
                raise Malformed(f"the key {shown(key)} holds an expression: only values may")
        return [each for part in value.values() for each in expressions_in(part)]
    return []


def evaluate(template: bytes, context: Mapping[str, Any]) -> bytes:
    """The JSON value with each expression replaced. Raises `ExpressionFailed`.

    A string that is one expression becomes its value and keeps its type; inside other text, a string is
    inserted as it is and any other value as JSON.
    """
    expression = _sole_path(template) if len(template) <= PLAIN_LENGTH_MAX else None
    if expression is None and template.count(OPENING.encode()) > EXPRESSIONS_LIGHT:
        _check_many(template, context)
    try:
        value = _filled(_decode(template), context) if expression is None else _value(expression, context)
        return encode_content(value, READ_BYTES_MAX)[0]
    except MeshError as error:
        raise ExpressionFailed("", error.message) from None


@lru_cache(maxsize=1024)
def _sole_path(template: bytes) -> str | None:
    """The expression of an input that only reads a value, as most do; None: any other input."""
    value = _decode(template)
    try:
        found = pieces(value) if isinstance(value, str) else []
    except Malformed:
        return None
    return found[0][1] if len(found) == 1 and found[0][0] and plain_path(found[0][1]) else None


def evaluate_when(expression: str, context: Mapping[str, Any]) -> bool:
    """Whether a condition holds; it must give true or false."""
    value = _value(expression, context)
    if not isinstance(value, bool):
        raise ExpressionFailed(expression, f"a condition must give true or false, not {kind_of(value)}")
    return value


def evaluate_list(expression: str, context: Mapping[str, Any]) -> list[Any]:
    """The list that `for_each` walks."""
    value = _value(expression, context)
    if not isinstance(value, list):
        raise ExpressionFailed(expression, f"for_each must give a list, not {kind_of(value)}")
    if len(value) > ITEMS_MAX:
        raise ExpressionFailed(expression, f"for_each gives {len(value)} items; {ITEMS_MAX} are allowed")
    return value


class Effort(IntEnum):
    """How long evaluating a template may take."""

    NONE = 0
    """It only inserts values."""
    READS = 1
    """The time grows with the size of what is read."""
    LOOPS = 2
    """Some tenths of a second, even if little is read."""


def effort_of(template: bytes) -> Effort:
    """The longest time that evaluating this may take."""
    return _effort(template) if len(template) <= EXPRESSION_LENGTH_MAX else Effort.LOOPS


@lru_cache(maxsize=1024)
def _effort(template: bytes) -> Effort:
    try:
        found = [each for each in expressions_in(_decode(template)) if plain_path(each) is None]
    except Malformed:
        return Effort.NONE  # it is refused
    if any(loops_nested(each) or _MATCHES.search(each) for each in found):
        return Effort.LOOPS
    return Effort.READS if found else Effort.NONE


@lru_cache(maxsize=1024)
def _reads(expression: str) -> dict[str, Any]:
    """The fields that an expression reads; None instead of further fields: the whole value."""
    tree: dict[str, Any] = {}
    for path in paths(expression):
        fields: list[str] = []
        for part in path.parts[:-1] if path.called else path.parts:
            if not isinstance(part, str):
                break
            fields.append(part)
        branch = tree
        for field in fields[:-1]:
            branch = branch.setdefault(field, {})
            if branch is None:
                break
        else:
            branch[fields[-1]] = None
    return tree


def _picked(value: Any, wanted: dict[str, Any] | None) -> Any:
    """The part of a value that is needed: the library copies everything that it gets, at each evaluation."""
    if wanted is None or not isinstance(value, Mapping):
        return value
    return {field: _picked(value[field], inside) for field, inside in wanted.items() if field in value}


def _check_many(template: bytes, context: Mapping[str, Any]) -> None:
    """Refuse an input whose expressions together read too much."""
    try:
        found = expressions_in(_decode(template))
    except Malformed as error:
        raise ExpressionFailed("", str(error)) from None
    left = READ_BYTES_MAX
    for expression in found:
        left -= _check_context(_picked(context, _reads(expression)))
        if left < 0:
            raise ExpressionFailed(
                "", f"its {len(found)} expressions read more than {READ_BYTES_MAX} bytes. Let an agent do it"
            )


def _check_context(context: Any) -> int:
    """Its size. Refuses what CEL cannot hold: it would make a number of more than 64 bits inexact."""
    try:
        return len(_measure(context))  # unlike JSON, MessagePack has no longer numbers
    except OverflowError:
        raise ExpressionFailed("", "the input or an output holds a number of more than 64 bits") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise ExpressionFailed("", f"the input or an output is not JSON: {error}") from None


def _check_work(expression: str, context: Mapping[str, Any]) -> None:
    """Refuse loops over long lists, and other work that would take long: the library cannot be
    interrupted."""
    nested = loops_nested(expression)
    if nested and (longest := _longest(context)) > LOOP_ITEMS_MAX[nested]:
        raise ExpressionFailed(
            expression,
            f"a loop may read lists of {LOOP_ITEMS_MAX[nested]} items; one of {longest} is there."
            " Use for_each, or let an agent do it",
        )
    if work_of(expression, context) > WORK_MAX:
        raise ExpressionFailed(
            expression, "it is too much work with what it reads. Use for_each, or let an agent do it"
        )


def _longest(value: Any) -> int:
    """The length of the longest list or object in a value."""
    if isinstance(value, Mapping):
        return max(len(value), *map(_longest, value.values())) if value else 0
    if isinstance(value, list):
        return max(len(value), *map(_longest, value)) if value else 0
    return 0


def _filled(value: Any, context: Mapping[str, Any]) -> Any:
    if isinstance(value, str):
        return _filled_text(value, context) if OPENING in value else value
    if isinstance(value, list):
        return [_filled(part, context) for part in value]
    if isinstance(value, dict):
        return {key: _filled(part, context) for key, part in value.items()}
    return value


def _filled_text(text: str, context: Mapping[str, Any]) -> Any:
    try:
        found = pieces(text)
    except Malformed as error:
        raise ExpressionFailed("", str(error)) from None
    if len(found) == 1 and found[0][0]:
        return _value(found[0][1], context)
    parts = []
    for is_expression, part in found:
        value = _value(part, context) if is_expression else part
        parts.append(value if isinstance(value, str) else _encode_sorted(value).decode())
    return "".join(parts)


def _value(expression: str, context: Mapping[str, Any]) -> Any:
    plain = plain_path(expression)
    if plain is not None and (value := _read(plain, context)) is not _ABSENT:
        _check_context(value)
        return _json_value(value, expression)
    try:
        program = _compiled(expression)
    except Malformed as error:
        raise ExpressionFailed(expression, str(error)) from None
    given = _picked(context, _reads(expression))
    _check_context(given)
    _check_work(expression, given)
    try:
        value = program.execute(given)
    except BaseException as error:
        # A panic of the library is no Exception, and must not end the node.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ExpressionFailed(expression, _problem(expression, context, error)) from None
    return _json_value(value, expression)


def _read(fields: Sequence[str], context: Mapping[str, Any]) -> Any:
    """The value at the end of a path; `_ABSENT` if there is none: the library then reports the error."""
    value: Any = context
    for field in fields:
        if not isinstance(value, dict) or field not in value:
            return _ABSENT
        value = value[field]
    return value


def _json_value(value: Any, expression: str) -> Any:
    """A value as JSON. Keys are sorted, because the library returns them in random order."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ExpressionFailed(expression, f"gives {value}, which JSON cannot carry")
        return value
    if isinstance(value, list):
        return [_json_value(part, expression) for part in value]
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise ExpressionFailed(expression, f"gives an object with the key {key!r}: keys are strings")
        return {key: _json_value(value[key], expression) for key in sorted(value)}
    kinds = {
        "bytes": "bytes",
        "datetime": "a timestamp: use string(…)",
        "timedelta": "a duration: use string(…)",
    }
    kind = type(value).__name__
    raise ExpressionFailed(expression, f"gives {kinds.get(kind, kind)}, which JSON cannot carry")


def _problem(expression: str, context: Mapping[str, Any], error: BaseException) -> str:
    """The reason of the failure: the first missing field, else the message of the library."""
    if isinstance(error, (KeyError, IndexError, TypeError, RuntimeError)):
        for path in paths(expression):
            missing = _missing(path, context)
            if missing:
                return missing
    if isinstance(error, KeyError):
        return f"no field {error.args[0]!r}" if error.args else "a field is missing"
    said = one_line(str(error))
    if said.startswith("Undefined variable or function: '"):
        name = said.split("'")[1]
        if name in FUNCTIONS:
            return f"{name}() does not take what it was given"
        return f"unknown name {name!r}"
    return said.partition(". ")[0].rstrip(".")


def _missing(path: Path, context: Mapping[str, Any]) -> str:
    """Which part of the path is missing, and what exists instead; empty: the path exists."""
    parts = path.parts[:-1] if path.called else path.parts
    value: Any = context
    for position, part in enumerate(parts):
        parent = written(parts[:position]) if position else "the context"
        if isinstance(value, Mapping):
            if part not in value:
                return f"no field {part!r} in {parent}; it has: {_listed(value)}"
        elif isinstance(value, list):
            if not isinstance(part, int):
                return f"no field {part!r} in {parent}; it is a list of {len(value)}"
            if part >= len(value):
                return f"no item {part} in {parent}; it is a list of {len(value)}"
        else:
            return f"no field {part!r} in {parent}; it is {kind_of(value)}"
        value = value[part]
    return ""


def _listed(value: Mapping[str, Any]) -> str:
    names = sorted(str(each) for each in value)
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return (", ".join(names[:20]) or "nothing") + more
