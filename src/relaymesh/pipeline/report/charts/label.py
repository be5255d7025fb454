"""Names in the room there is: the middle of a long one is left out, for names differ at both ends."""

from __future__ import annotations

import unicodedata

from markupsafe import Markup

from relaymesh.pipeline.report.charts.markup import element

__all__ = ["label", "shortened"]

CELLS_MAX = 40
ELLIPSIS = "…"


def shortened(words: str, most: int = CELLS_MAX) -> str:
    """At most so many cells wide: a Chinese character fills two, an accent that is combined none."""
    words = " ".join(words.split())
    if _width(words) <= most:
        return words
    head = _fitting(words, (most - 1) - (most - 1) // 2)
    tail = _fitting(words[::-1], (most - 1) // 2)[::-1]
    while tail and _cells(tail[0]) == 0:  # an accent whose letter was left out
        tail = tail[1:]
    return f"{head}{ELLIPSIS}{tail}"


def label(words: str, *, class_: str = "label", name: str = "span") -> Markup:
    """An element with the name, and the whole of it as its title where it is shortened."""
    short = shortened(words)
    return element(name, short, class_=class_, title=words if short != words else None)


def _fitting(words: str, most: int) -> str:
    taken, width = 0, 0
    for letter in words:
        width += _cells(letter)
        if width > most:
            break
        taken += 1
    return words[:taken]


def _width(words: str) -> int:
    return sum(map(_cells, words))


def _cells(letter: str) -> int:
    if unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in ("W", "F") else 1
