"""Elements of SVG. Text and attributes are escaped here, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from markupsafe import Markup, escape

__all__ = ["WIDTH", "element", "joined", "legend", "picture", "shortened", "text"]

WIDTH = 540
"""Of every picture, in its own units: the page scales it."""
LETTER = 6.6
"""About the width of one, at the size the style gives."""


def element(name: str, *inside: Markup | str, **attributes: object) -> Markup:
    """`<name a="b">inside</name>`; an underscore in a name of an attribute is a dash, `class_` is `class`."""
    told = "".join(
        f' {escape(key.rstrip("_").replace("_", "-"))}="{escape(_plain(value))}"'
        for key, value in attributes.items()
    )
    return Markup(f"<{name}{told}>{joined(inside)}</{name}>")


def joined(parts: Iterable[Markup | str]) -> Markup:
    return Markup("").join(parts)


def text(x: float, y: float, words: str, *, class_: str = "label", anchor: str = "start") -> Markup:
    return element("text", words, x=x, y=y, class_=class_, text_anchor=anchor)


def picture(height: float, name: str, *inside: Markup) -> Markup:
    """The whole of it; `name` is what a screen reader says."""
    return element(
        "svg",
        *inside,
        class_="chart",
        viewBox=f"0 0 {WIDTH} {height:g}",
        role="img",
        aria_label=name,
    )


def legend(
    labels: Sequence[str], left: float, mark: Callable[[int, float, float], Markup]
) -> tuple[Markup, float]:
    """A mark and a name for each series, in as many rows as they need; and how high that is."""
    parts, x, y = [], left, 14.0
    for number, label in enumerate(labels, start=1):
        words = shortened(label, 40)
        wide = 32 + LETTER * len(words) + 16
        if x > left and x + wide > WIDTH:
            x, y = left, y + 18
        parts += [mark(number, x, y), text(x + 30, y + 4, words)]
        x += wide
    return joined(parts), y + 16


def shortened(words: str, most: int) -> str:
    """The end is kept: addresses and ids differ there."""
    return words if len(words) <= most else "…" + words[-(most - 1) :]


def _plain(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
