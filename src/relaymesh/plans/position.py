"""The position of an error in a plan: workflow, step and field."""

from __future__ import annotations

from typing import Any, NoReturn

import msgspec
from msgspec.structs import replace

from relaymesh.errors import InvalidPlan, MeshError
from relaymesh.kernel.bounds import shown, sound
from relaymesh.wire.near import Names


class Position(msgspec.Struct, frozen=True):
    """A position in a document. `step` and `field` may be empty."""

    workflow: str = ""
    step: str = ""
    field: str = ""
    inside: str = ""
    """The object field that contains the position; empty: none."""
    what: str = ""
    """What the document is, if it is no workflow."""

    def at(self, field: str) -> Position:
        return replace(self, field=f"{self.inside}.{field}" if self.inside else field)

    def in_step(self, step: str) -> Position:
        return replace(self, step=step, field="", inside="")

    def within(self, field: str) -> Position:
        """Inside a field that is an object: its fields are `compensate.input` and the like."""
        return replace(self, field=field, inside=field)

    def __str__(self) -> str:
        parts = [self.what or (f"workflow {self.workflow!r}" if self.workflow else "plan")]
        if self.step:
            parts.append(f"step {self.step!r}")
        if self.field:
            parts.append(self.field)
        return ", ".join(parts)

    def refuse(self, problem: str, hint: str | None = None) -> NoReturn:
        """Raises `InvalidPlan`, in one line."""
        raise InvalidPlan(one_line(f"{self}: {problem}"), hint=hint)

    def refuse_error(self, error: MeshError) -> NoReturn:
        """The same for an error of another module, with its message."""
        self.refuse(error.message, error.hint or None)

    def unknown(self, name: str, known: Names, listed: str) -> NoReturn:
        """Refuses a field that does not exist, with the one that was probably meant."""
        meant = known.nearest(name)
        hint = f"did you mean {meant!r}?" if meant else f"known fields: {listed}"
        self.refuse(f"unknown field {shown(name)}", hint)


def one_line(text: str) -> str:
    return " ".join(sound(text).split())


def kind_of(value: Any) -> str:
    """The name of a JSON value's type in errors."""
    if value is None:
        return "null"
    kinds = {
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "a string",
        list: "a list",
        dict: "an object",
    }
    return kinds.get(type(value), f"a {type(value).__name__}")
