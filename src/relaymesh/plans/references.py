"""What a step's expressions may read: the input, the outputs of other steps, and its item."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from relaymesh.plans.cel_text import ROOTS, UNDO_ROOTS, Malformed, Path, written
from relaymesh.plans.expressions import check_expression
from relaymesh.plans.position import Position
from relaymesh.plans.shape import Shape
from relaymesh.wire.near import Names


class Readable(msgspec.Struct, frozen=True):
    """What the expressions of one step may refer to."""

    name: str
    number: dict[str, int]
    """The number of each step of its group."""
    outer: dict[str, int]
    """The numbers of steps outside of its group. A step of the group hides a step of the same name."""
    shape: Shape | None
    looped: bool
    """Whether it has `for_each`."""


class Reads(msgspec.Struct, frozen=True):
    """The steps whose outputs expressions read."""

    steps: dict[int, str]
    """By number, with the field that reads it first."""
    outer: frozenset[int]


NOTHING = Reads({}, frozenset())


def read_steps(
    expressions: Sequence[tuple[str, str]], readable: Readable, position: Position, *, undoes: bool = False
) -> Reads:
    """What the expressions of a step read. Refuses what they may not. `undoes`: they are of `compensate`."""
    if not expressions:
        return NOTHING
    steps: dict[int, str] = {}
    outer: set[int] = set()
    roots = UNDO_ROOTS if undoes else ROOTS
    for field, expression in expressions:
        here = position.at(field)
        try:
            paths = check_expression(expression, roots)
        except Malformed as error:
            quoted = expression if len(expression) <= 100 else f"{expression[:100]}…"
            here.refuse(f"${{{{ {quoted} }}}}: {error}")
        for path in paths:
            root = path.parts[0]
            if root == "steps":
                name = _check_step(path, readable, here, undoes=undoes)
                if name in readable.number:
                    steps.setdefault(readable.number[name], field)
                else:
                    outer.add(readable.outer[name])
            elif root == "input":
                _check_input(path, readable, here)
            elif root in ("item", "index"):
                _check_item(str(root), field, readable, here)
    return Reads(steps, frozenset(outer))


def _check_item(root: str, field: str, readable: Readable, position: Position) -> None:
    if not readable.looped:
        position.refuse(
            f"{root!r} is known only in a step with for_each", "add for_each, or use input or steps"
        )
    if field in ("when", "for_each"):
        position.refuse(f"{root!r} is not known here: {field} is evaluated once, before the items")


def _check_step(path: Path, readable: Readable, position: Position, *, undoes: bool) -> str:
    fields = path.parts[:-1] if path.called and len(path.parts) == 2 else path.parts
    if len(fields) < 2:
        position.refuse(
            "'steps' must be followed by the name of a step",
            'write steps.NAME.output or steps["NAME"].output',
        )
    name = fields[1]
    if not isinstance(name, str) or (name not in readable.number and name not in readable.outer):
        known = [*readable.number, *readable.outer]
        position.refuse(f"{written(('steps', name))}: there is no step {name!r}", _meant(str(name), known))
    if len(fields) < 3 or fields[2] != "output":
        quoted = written(("steps", name))
        position.refuse(f"{quoted}: of a step only its output can be read", f"write {quoted}.output")
    if name == readable.name:
        hint = "write output" if undoes else None
        quoted = written(("steps", name))
        position.refuse(f"{quoted}.output: a step cannot read its own output", hint)
    return name


def _meant(name: str, known: Iterable[str]) -> str | None:
    """`steps.x-y` is parsed as a subtraction."""
    for each in known:
        if each.startswith((f"{name}-", f"{name}.")):
            return f"write {written(('steps', each))}"
    meant = Names(known).nearest(name)
    return f"did you mean {meant!r}?" if meant else None


def _check_input(path: Path, readable: Readable, position: Position) -> None:
    fields = path.parts[:-1] if path.called and len(path.parts) == 2 else path.parts
    if readable.shape is None or len(fields) < 2 or fields[1] in readable.shape:
        return
    meant = Names(readable.shape).nearest(str(fields[1]))
    declared = ", ".join(readable.shape) or "nothing"
    hint = f"did you mean {meant!r}?" if meant else f"declared: {declared}"
    position.refuse(f"{written(fields[:2])}: the workflow declares no input {fields[1]!r}", hint)
