"""Checks that a Python value is JSON that can be stored: its types, depth, numbers, texts and size."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from relaymesh.kernel.bounds import shown
from relaymesh.kernel.tasks.plan import PLAN_BYTES_MAX
from relaymesh.plans.position import Position

DEPTH_MAX = 64


def check_value(value: Any, position: Position) -> None:
    """Refuses what is not JSON, is nested too deep or too large; names where."""
    _Walk(position).check(value)
    size = len(msgspec.json.encode(value))
    if size > PLAN_BYTES_MAX:
        position.refuse(f"has {size} bytes as JSON; {PLAN_BYTES_MAX} are allowed")


class _Walk:
    """A walk over a value that counts its parts: a list that occurs in many places is large as JSON."""

    __slots__ = ("_met", "_path", "_position")

    def __init__(self, position: Position) -> None:
        self._position = position
        self._path: list[str | int] = []
        """Keys and numbers from the value down to the part that is looked at."""
        self._met = 0

    def check(self, value: Any) -> None:
        self._met += 1
        if self._met > PLAN_BYTES_MAX:
            self._position.refuse(f"has more than {PLAN_BYTES_MAX} bytes as JSON")
        kind = type(value)
        if kind is str:
            if not value.isascii():
                self._check_text(value)
        elif kind is dict or kind is list:
            if len(self._path) >= DEPTH_MAX:
                self._position.refuse(f"is nested deeper than {DEPTH_MAX} levels")
            self._check_parts(value)
        elif kind is float:
            if not math.isfinite(value):
                self._refuse(f"{value} is not JSON")
        elif kind is int:
            if not -(1 << 63) <= value < 1 << 64:
                self._refuse("a number has more than 64 bits")
        elif value is not None and kind is not bool:
            self._refuse(f"a {kind.__name__} is not JSON")

    def _check_parts(self, value: Any) -> None:
        path = self._path
        if type(value) is list:
            for number, part in enumerate(value):
                path.append(number)
                self.check(part)
                path.pop()
            return
        for key, part in value.items():
            if type(key) is not str:
                self._refuse(f"the key {shown(key)} is not text")
            if not key.isascii():
                self._check_text(key)
            if type(part) is str and part.isascii() and self._met < PLAN_BYTES_MAX:
                self._met += 1  # as `check` does: most parts of a document are short texts
                continue
            path.append(key)
            self.check(part)
            path.pop()

    def _check_text(self, text: str) -> None:
        try:
            text.encode()
        except UnicodeEncodeError:
            self._refuse("a text holds half a surrogate pair (half an emoji)")

    def _refuse(self, problem: str) -> None:
        where = "".join([f"[{each}]" if isinstance(each, int) else f".{each}" for each in self._path])
        self._position.refuse(f"{where.removeprefix('.')}: {problem}" if where else problem)
