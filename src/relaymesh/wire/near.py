"""Names that were probably meant: `delayms`, `delay_ms` and `delyMs` all mean `delayMs`."""

from __future__ import annotations

from collections.abc import Iterable

EDITED_LENGTH_MIN = 4
"""Shorter names are compared letter by letter alone: `to` and `id` are one edit from too much."""
LENGTH_MAX = 64
"""A longer name is no typing mistake, and is not compared."""


class Names:
    """Known names, ready to be compared with."""

    __slots__ = ("_by_plain",)

    def __init__(self, known: Iterable[str]) -> None:
        self._by_plain = {_plain(each): each for each in known}

    def nearest(self, name: str) -> str | None:
        """The known name that was meant: in another case, with or without `_`, or one edit away."""
        if len(name) > LENGTH_MAX:
            return None
        plain = _plain(name)
        found = self._by_plain.get(plain)
        if found is not None:
            return found
        for other, each in self._by_plain.items():
            if len(other) >= EDITED_LENGTH_MIN and _is_one_edit(plain, other):
                return each
        return None


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").casefold()


def _is_one_edit(a: str, b: str) -> bool:
    """Whether one letter added, left out or replaced, or two neighbours swapped, make one of the other."""
    if abs(len(a) - len(b)) > 1:
        return False
    start = 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1
    rest_a, rest_b = a[start:], b[start:]
    if len(a) != len(b):
        longer, shorter = (rest_a, rest_b) if len(a) > len(b) else (rest_b, rest_a)
        return longer[1:] == shorter
    swapped = rest_a[1:2] + rest_a[:1] + rest_a[2:]
    return rest_a[1:] == rest_b[1:] or swapped == rest_b
