"""Elements of HTML and SVG. Text and attributes are escaped here, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from markupsafe import Markup, escape

__all__ = ["chart", "element", "joined", "legend", "note", "percent", "text"]


def element(name: str, *inside: Markup | str, **attributes: object) -> Markup:
    """`<name a="b">inside</name>`; an underscore in a name of an attribute is a dash, `class_` is `class`."""
    told = "".join(
        f' {escape(key.rstrip("_").replace("_", "-"))}="{escape(_plain(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{told}>{joined(inside)}</{name}>")


def joined(parts: Iterable[Markup | str]) -> Markup:
    return Markup("").join(parts)


def text(
    x: float | str, y: float, words: str, *, class_: str = "tick", anchor: str = "start", dx: float = 0
) -> Markup:
    """A text of SVG; `x` may be a percent."""
    return element("text", words, x=x, y=y, dx=dx or None, class_=class_, text_anchor=anchor)


def chart(kind: str, name: str, *inside: Markup) -> Markup:
    """The whole of a picture; `name` is what a screen reader says."""
    told = f"{name}. The numbers are in the table that follows."
    return element("div", *inside, class_=f"chart {kind}", role="img", aria_label=told)


def legend(labels: Sequence[str], mark: Callable[[int], Markup]) -> Markup:
    """A mark and a name for each series."""
    entries = [
        element("li", element("svg", mark(number), class_="mark", width=24, height=14), label)
        for number, label in enumerate(labels, start=1)
    ]
    return element("ul", *entries, class_="legend")


def note(words: str) -> Markup:
    """A sentence below a chart: how its scale is to be read."""
    return element("p", words, class_="scale")


def percent(part: float) -> str:
    """Of the width: `0.125` is `12.5%`."""
    return f"{_plain(round(part * 100, 3))}%"


def _plain(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
