"""The input that a workflow declares, and whether a submitted input agrees with it."""

from __future__ import annotations

import math
from typing import Any

from relaymesh.kernel.bounds import shown
from relaymesh.plans.position import Position, kind_of
from relaymesh.wire.near import Names

TYPES = ("string", "number", "integer", "boolean", "list", "object", "any")
_KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "list": (list,),
    "object": (dict,),
}

Shape = dict[str, str]


def declared_shape(declared: Any, position: Position) -> Shape | None:
    """The shape of a document's field `input`; None: nothing is declared, any input is accepted."""
    if declared is None:
        return None
    if not isinstance(declared, dict):
        position.refuse(f"must be an object of names and types, not {kind_of(declared)}")
    for name, kind in declared.items():
        if not isinstance(kind, str) or kind not in TYPES:
            position.at(f"input.{name}").refuse(f"{shown(kind)} is no type", f"types: {', '.join(TYPES)}")
    return dict(declared)


def check_shape(shape: Shape | None, value: Any, position: Position) -> None:
    """Refuses an input that lacks a declared name, has another one, or a value of another type."""
    if shape is None:
        return
    if not isinstance(value, dict):
        position.refuse(f"must be an object with {', '.join(shape) or 'no names'}, not {kind_of(value)}")
    names = Names(shape)
    for name in value:
        if name not in shape:
            meant = names.nearest(name) if isinstance(name, str) else None
            hint = f"did you mean {meant!r}?" if meant else f"declared: {', '.join(shape) or 'nothing'}"
            position.refuse(f"{shown(name)} is not declared", hint)
    for name, kind in shape.items():
        if name not in value:
            position.refuse(f"{shown(name)} is missing: the workflow declares it as {kind}")
        if not _agrees(value[name], kind):
            position.at(f"input.{name}").refuse(f"must be {kind}, not {kind_of(value[name])}")


def _agrees(value: Any, kind: str) -> bool:
    if kind == "any":
        return True
    if isinstance(value, bool):
        return kind == "boolean"
    if isinstance(value, float) and not math.isfinite(value):
        return False
    return isinstance(value, _KINDS[kind])
