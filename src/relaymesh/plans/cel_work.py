"""How much work an expression would be, guessed before it is evaluated.

The library copies values whenever it joins them or collects them in a loop, holds the interpreter meanwhile,
and cannot be stopped. So the expression is walked once with the weights of the values that it reads.
Operators are not told apart: what stands beside each other may be joined. The guess is an upper bound, about
1 ns for each unit of work.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from relaymesh.plans.cel_text import LOOPS, Token, tokens

UNIT = 128
"""The weight of a number; a text weighs its length more."""
READS_LIGHT = 8
"""An expression without a loop that reads no more names than this is light, whatever they hold."""

COMPILING = 1_000
"""Work of each character of a pattern before it is matched."""

_COUNT = re.compile(r"\{(\d*),?(\d*)\}")
_HEAVY = LOOPS | {"matches"}
_CLOSING = frozenset({")", "]", "}"})


class Guess(msgspec.Struct, frozen=True):
    """What a part of an expression may give. `values`: one of these; None: it is made by the expression."""

    weight: float = UNIT
    items: int = 0
    values: Sequence[Any] | None = None


def work_of(expression: str, context: Mapping[str, Any]) -> float:
    """About how many nanoseconds its evaluation takes, at most; 0: few."""
    found = list(tokens(expression))
    reads = sum([token.kind == "name" for token in found])
    if reads <= READS_LIGHT and _HEAVY.isdisjoint([token.text for token in found]):
        return 0
    walk = _Walk(found, context)
    walk.group()
    return walk.work


class _Walk:
    """One walk over the tokens. `rounds`: how often the present token is evaluated."""

    def __init__(self, found: list[Token], context: Mapping[str, Any]) -> None:
        self._tokens = found
        self._index = 0
        self._weights: dict[int, int] = {}
        self._names = {name: self._known([value]) for name, value in context.items()}
        self._rounds = 1
        self.work = 0.0

    def group(self) -> Guess:
        """Everything up to a closing bracket, or the end: its parts may be joined."""
        parts: list[Guess] = []
        while self._text() and self._text() not in _CLOSING:
            if self._tokens[self._index].kind != "sign" or self._text() in ("(", "[", "{"):
                parts.append(self._part())
            else:
                self._index += 1
        self._index += 1
        if len(parts) == 1:
            return parts[0]
        weight = sum([part.weight for part in parts])
        self.work += self._rounds * len(parts) * weight
        return Guess(weight, sum([part.items for part in parts]))

    def _text(self, ahead: int = 0) -> str:
        index = self._index + ahead
        return self._tokens[index].text if index < len(self._tokens) else ""

    def _part(self) -> Guess:
        token = self._tokens[self._index]
        self._index += 1
        if token.text == "(":
            found = self.group()
        elif token.text in ("[", "{"):
            before = self._index
            inside = self.group()
            found = Guess(inside.weight + UNIT, self._index - before)
        elif token.kind == "name" and self._text() != "(":
            found = self._names.get(token.text, Guess())
        else:
            found = Guess(UNIT + len(token.text), 0, [token.text])
        found = self._behind(found)
        self.work += self._rounds * found.weight
        return found

    def _behind(self, found: Guess) -> Guess:
        """The fields, indexes, calls and loops that follow a part."""
        while True:
            if self._text() == "(":
                called, self._index = self._text(-1), self._index + 1
                inside = self.group()
                if called == "matches":
                    self.work += self._rounds * (found.weight + COMPILING) * _pattern_size(inside)
                found = Guess(found.weight + inside.weight, max(found.items, inside.items))
            elif self._text() == "[":
                self._index += 1
                self.group()
                found = self._one_of(found)
            elif self._text() == "." and self._text(1) in LOOPS and self._text(2) == "(":
                self._index += 3
                found = self._loop(found, self._text(-2))
            elif self._text() == "." and self._text(1):
                self._index += 2
                found = self._field(found, self._text(-1))
            else:
                return found

    def _field(self, found: Guess, name: str) -> Guess:
        if found.values is None or self._text() == "(":
            return found
        return self._known(
            [each[name] for each in found.values if isinstance(each, Mapping) and name in each]
        )

    def _one_of(self, found: Guess) -> Guess:
        """An item: of a list that the expression made, it may be all that there is."""
        if found.values is None:
            return Guess(found.weight, int(found.weight / UNIT))
        items: list[Any] = []
        for each in found.values:
            if isinstance(each, list):
                items += each
            elif isinstance(each, Mapping):
                items += each.values()
        return self._known(items)

    def _loop(self, source: Guess, kind: str) -> Guess:
        count = max(1, source.items)
        name, self._index = self._text(), self._index + 1
        hidden = self._names.get(name)
        one = self._one_of(source)
        if one.values is None:
            one = Guess(source.weight / count, one.items)
        self._names[name] = one
        self._rounds *= count
        body = self.group()
        self._rounds //= count
        if hidden is None:
            del self._names[name]
        else:
            self._names[name] = hidden
        if kind == "map":
            self.work += self._rounds * count * count * body.weight / 2
            return Guess(count * body.weight, count)
        if kind == "filter":
            self.work += self._rounds * count * source.weight / 2
            return source
        return Guess()

    def _known(self, values: Sequence[Any]) -> Guess:
        if not values:
            return Guess(values=values)
        weight = sum([self._weigh(each) for each in values]) / len(values)
        items = max([len(each) if isinstance(each, (list, Mapping)) else 0 for each in values])
        return Guess(weight, items, values)

    def _weigh(self, value: Any) -> int:
        if isinstance(value, str):
            return UNIT + len(value)
        if not isinstance(value, (list, Mapping)):
            return UNIT
        if id(value) not in self._weights:
            inside = value if isinstance(value, list) else [*value, *value.values()]
            self._weights[id(value)] = UNIT + sum([self._weigh(each) for each in inside])
        return self._weights[id(value)]


def _pattern_size(pattern: Guess) -> float:
    """About how many states a pattern has: repeats inside repeats multiply."""
    if pattern.values is None:
        return math.inf
    size = 1.0
    for each in pattern.values:
        counts = [max(float(least or 1), float(most or 1)) for least, most in _COUNT.findall(str(each))]
        size = max(size, len(str(each)) * math.prod(counts))
    return size
