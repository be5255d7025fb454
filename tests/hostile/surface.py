"""The public surface of the embedded mesh, derived from what `relaymesh` exports and what its calls return.

A class is public when `relaymesh.__all__` names it, or when the annotation of a public method or property of
a public class leads to it. A member is public when its name has no leading underscore; `with` blocks count
under `__enter__` or `__aenter__`. A new method, parameter, option or field is here by itself.
"""

from __future__ import annotations

import enum
import inspect
import sys
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

import relaymesh
from relaymesh.sdk.agent import Agent
from relaymesh.sdk.letters import select
from relaymesh.testing import ManualMesh

Kind = typing.Literal["construct", "method", "read", "block"]

KEYWORDS: dict[str, Callable[..., Any]] = {"fields": Agent.send, "filters": select}
"""What a `**name: Any` stands for: the keywords of this function. An unknown one fails the run."""


RETURNED = frozenset(
    {
        "Agent",
        "AsyncAgent",
        "AsyncDelivery",
        "AsyncSubscription",
        "AsyncTask",
        "DeadLetter",
        "Delivery",
        "Receipt",
        "Subscription",
        "Task",
    }
)
"""Classes that calls return. They are exported for annotations; programs do not make them."""


@dataclass(frozen=True)
class Parameter:
    name: str
    annotation: Any
    required: bool
    positional: bool


@dataclass(frozen=True)
class Public:
    """One public name: what is called, and with what."""

    name: str
    owner: type | None
    member: str
    kind: Kind
    parameters: tuple[Parameter, ...] = ()
    leads_to: tuple[type, ...] = field(default=())


def surface() -> dict[str, Public]:
    """Every public name of the package, in a stable order."""
    found: dict[str, Public] = {}
    waiting: list[type] = []
    for name in relaymesh.__all__:
        value = getattr(relaymesh, name)
        assert isinstance(value, type), f"{name} is public and no class: teach tests/hostile to call it"
        waiting.append(value)
        if name not in RETURNED:
            parameters = tuple(_parameters(None if _is_enum(value) else _constructor(value), value))
            found[name] = Public(name, None, name, "construct", parameters)
    found["ManualMesh"] = Public(
        "ManualMesh", None, "ManualMesh", "construct", tuple(_parameters(ManualMesh.__init__, ManualMesh))
    )
    waiting.append(ManualMesh)
    seen: set[type] = set()
    while waiting:
        owner = waiting.pop(0)
        if owner in seen:
            continue
        seen.add(owner)
        for public in _members(owner):
            found[public.name] = public
            waiting.extend(public.leads_to)
    return found


def _constructor(kind: type) -> Any:
    """The constructor as its class has it."""
    return inspect.getattr_static(kind, "__init__")


def _is_enum(kind: type) -> bool:
    return issubclass(kind, enum.Enum)


def _members(owner: type) -> Iterator[Public]:
    if issubclass(owner, BaseException) and owner is not relaymesh.MeshError:
        return  # its constants; what it says is the judge's to read
    names = sorted(name for name in dir(owner) if not name.startswith("_"))
    inside = owner.__module__.startswith("relaymesh.kernel")  # a value that a call shows: read, never called
    prefix = f"kernel.{owner.__name__}" if inside else owner.__name__
    for name in (*names, "__enter__", "__aenter__"):
        home = next((kind for kind in owner.__mro__ if name in vars(kind)), None)
        if home is None or not home.__module__.startswith("relaymesh"):
            continue  # of Exception, int or object
        value = inspect.getattr_static(owner, name)
        full = f"{prefix}.{name}"
        if inside:
            if not inspect.isfunction(value) and not isinstance(value, type):
                yield Public(full, owner, name, "read")
            continue
        if name in ("__enter__", "__aenter__"):
            yield Public(full, owner, name, "block")
        elif inspect.isfunction(value):
            hints = _hints(value)
            yield Public(
                full, owner, name, "method", tuple(_parameters(value, owner)), _classes(hints.get("return"))
            )
        elif not isinstance(value, type):
            yield Public(full, owner, name, "read", (), _classes(_annotation_of(owner, name, value)))


def _annotation_of(owner: type, name: str, value: Any) -> Any:
    if isinstance(value, property):
        return _hints(value.fget).get("return")
    return _hints(owner).get(name) if issubclass(owner, msgspec.Struct) else None


def _hints(thing: Any) -> dict[str, Any]:
    """Annotations, also where a name is imported for type checkers alone."""
    names: dict[str, Any] = {"Mesh": relaymesh.Mesh, "AsyncMesh": relaymesh.AsyncMesh, "Any": Any}
    while True:
        try:
            return typing.get_type_hints(thing, localns=names)
        except NameError as error:
            names[str(error.name)] = _anywhere(str(error.name))


def _anywhere(name: str) -> Any:
    for module in list(sys.modules.values()):
        if module.__name__.startswith("relaymesh.") and hasattr(module, name):
            return getattr(module, name)
    return Any


def _classes(annotation: Any) -> tuple[type, ...]:
    """The classes of this package that an annotation names, inside lists and unions too."""
    if isinstance(annotation, type) and not typing.get_args(annotation):
        ours = annotation.__module__.startswith("relaymesh.") and not _is_enum(annotation)
        return (annotation,) if ours else ()
    if typing.get_origin(annotation) in (typing.Literal, None) or "Callable" in str(annotation):
        return ()
    return tuple(kind for each in typing.get_args(annotation) for kind in _classes(each))


def _parameters(function: Any, owner: type) -> Iterator[Parameter]:
    """What a call takes, each name once: `**fields` may name again what stands before it."""
    seen: set[str] = set()
    for each in _declared(function, owner):
        if each.name not in seen:
            seen.add(each.name)
            yield each


def _declared(function: Any, owner: type) -> Iterator[Parameter]:
    if function is None:
        yield Parameter("value", int, required=True, positional=True)
        return
    hints = _hints(function) if inspect.isfunction(function) else _hints(owner)
    if issubclass(owner, BaseException) and not inspect.isfunction(function):
        yield Parameter("reason", str, required=False, positional=True)  # as every exception takes
        return
    signature = inspect.signature(function if inspect.isfunction(function) else owner)
    for each in signature.parameters.values():
        if each.name == "self":
            continue
        if each.kind is each.VAR_POSITIONAL:
            yield Parameter("arguments", Any, required=False, positional=True)
        elif each.kind is each.VAR_KEYWORD:
            yield from _keywords(each.name, hints.get(each.name))
        else:
            required = each.default is each.empty
            positional = each.kind is not each.KEYWORD_ONLY
            yield Parameter(each.name, hints.get(each.name, Any), required, positional)


def _keywords(name: str, annotation: Any) -> Iterator[Parameter]:
    inner = typing.get_args(annotation)
    if inner and typing.is_typeddict(inner[0]):
        for option, kind in typing.get_type_hints(inner[0]).items():
            yield Parameter(option, kind, required=False, positional=False)
        return
    assert name in KEYWORDS, f"**{name} is public: say in tests/hostile/surface.py whose keywords it takes"
    for each in _parameters(KEYWORDS[name], Agent):
        if not each.positional:
            yield each
