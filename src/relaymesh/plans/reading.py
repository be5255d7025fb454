"""Plan text, YAML or JSON, to a document. Refuses what is not plain data, with line and column.

YAML is read as version 1.1, by PyYAML: `yes`, `no`, `on` and `off` are booleans, `010` is 8. Values that JSON
does not have (dates, anchors, tags) are refused, so a document means the same in both forms.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

import yaml

from relaymesh.errors import InvalidPlan
from relaymesh.kernel.bounds import shown
from relaymesh.kernel.tasks.plan import PLAN_BYTES_MAX
from relaymesh.plans.json_value import DEPTH_MAX, check_value
from relaymesh.plans.position import Position, kind_of, one_line

_TAG = "tag:yaml.org,2002:"
# Without libyaml, PyYAML has only the slower parser: it accepts the same text.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_construct = yaml.constructor.SafeConstructor()


def read_plan(text: str | bytes) -> dict[str, Any]:
    """The document of a text: JSON if it starts with `{`, else YAML. Raises `InvalidPlan`, in one line."""
    plain = _plain(text)
    return read_json(plain) if plain.lstrip()[:1] == "{" and _is_json(plain) else read_yaml(plain)


def read_json(text: str | bytes) -> dict[str, Any]:
    """The document of JSON text."""
    plain = _plain(text)
    try:
        value = json.loads(plain, object_pairs_hook=_distinct, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise InvalidPlan(f"JSON, line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise InvalidPlan(f"JSON: is nested deeper than {DEPTH_MAX} levels") from None
    except ValueError as error:
        raise InvalidPlan(one_line(f"JSON: {error}")) from None
    return _document(value)


def read_yaml(text: str | bytes) -> dict[str, Any]:
    """The document of YAML text."""
    plain = _plain(text)
    try:
        _check_events(plain)
        node = yaml.compose(plain, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        told = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        _refuse(mark, str(told))
    return _document(_value(node, "the plan"))


def _plain(text: str | bytes) -> str:
    """The text, if it is not too large and can be written as UTF-8."""
    if len(text) <= PLAN_BYTES_MAX:  # a character has a byte or more
        try:
            data = text if isinstance(text, bytes) else text.encode()
            plain = data.decode()
        except UnicodeDecodeError as error:
            raise InvalidPlan(f"the plan is not UTF-8: byte {error.start}") from None
        except UnicodeEncodeError as error:
            raise InvalidPlan(f"the plan holds half a surrogate pair: character {error.start}") from None
        if len(data) <= PLAN_BYTES_MAX:
            return plain
        text = data
    raise InvalidPlan(f"the plan has {len(text)} bytes; {PLAN_BYTES_MAX} are allowed")


def _document(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidPlan(f"a plan must be an object with workflow and steps, not {kind_of(value)}")
    check_value(value, Position())
    return value


def _is_json(text: str) -> bool:
    """Whether a text that starts with `{` is meant as JSON: YAML's flow style does not quote its keys."""
    return text.lstrip()[1:].lstrip()[:1] in ('"', "}", "")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key {shown(key)} occurs twice in one object")
            seen.add(key)
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _check_events(text: str) -> None:
    """Refuses anchors, aliases, tags, a second document and deep nesting, before any value is made."""
    depth = documents = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            _refuse(event.start_mark, f"the alias *{event.anchor} is not allowed: write the value out")
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                _refuse(event.start_mark, "a second document starts: a plan is one document")
        if not isinstance(event, yaml.NodeEvent):
            depth -= isinstance(event, yaml.CollectionEndEvent)
            continue
        if event.anchor is not None:
            _refuse(event.start_mark, f"the anchor &{event.anchor} is not allowed: write the value out")
        tag = getattr(event, "tag", None)
        if tag is not None:
            _refuse(event.start_mark, f"the tag {shown(tag)} is not allowed")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEPTH_MAX:
                _refuse(event.start_mark, f"is nested deeper than {DEPTH_MAX} levels")


def _value(node: Any, name: str) -> Any:
    """The JSON value of a node; `name`: what it is called in errors."""
    if node is None:
        return None
    if isinstance(node, yaml.SequenceNode):
        return [_value(part, f"{name}[{number}]") for number, part in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        return _mapping(node)
    kind = node.tag.removeprefix(_TAG)
    if kind == "str":
        return node.value
    if kind == "null":
        return None
    if kind == "bool":
        return _construct.construct_yaml_bool(node)
    if kind in ("int", "float") and ":" not in node.value:
        try:
            return getattr(_construct, f"construct_yaml_{kind}")(node)
        except ValueError:  # such as 0x without a digit, or thousands of digits
            _refuse(node.start_mark, f"{name}: {shown(node.value)} is no number: quote it if it is text")
    what = "a number with base 60" if ":" in node.value and kind in ("int", "float") else _a(kind)
    return _refuse(
        node.start_mark, f"{name}: {shown(node.value)} is {what} in YAML: quote it to make it text"
    )


def _mapping(node: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            _refuse(key.start_mark, "a key must be text")
        if key.tag != f"{_TAG}str":
            kind = _a(key.tag.removeprefix(_TAG))
            _refuse(key.start_mark, f"the key {shown(key.value)} is {kind} in YAML: quote it to make it text")
        if key.value in found:
            _refuse(key.start_mark, f"the key {shown(key.value)} occurs twice")
        found[key.value] = _value(value, key.value)
    return found


def _a(kind: str) -> str:
    names = {"bool": "a boolean", "timestamp": "a date", "int": "a number", "float": "a number"}
    return names.get(kind, f"a {kind}")


def _refuse(mark: Any, problem: str) -> NoReturn:
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    raise InvalidPlan(one_line(f"YAML, {where}{problem}" if where else f"YAML: {problem}")) from None
