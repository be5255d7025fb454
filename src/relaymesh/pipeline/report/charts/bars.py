"""Bars beside each other: one or more for each label, each with its value in figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from relaymesh.pipeline.report.charts.svg import WIDTH, element, legend, picture, shortened, text
from relaymesh.pipeline.report.shown import Show

__all__ = ["bars"]

LABEL_WIDTH, VALUE_WIDTH, BAR, GAP = 190, 76, 15, 9


def bars(
    name: str,
    labels: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    show: Show,
    more: int = 0,
) -> Markup:
    """One group for each label, and in it one bar for each series. A missing value is said as such.

    `more`: how many labels there are besides.
    """
    ordered = [f"{number}. {what}" for number, what in enumerate(series, start=1)]  # from above
    names, top = legend(ordered, LABEL_WIDTH - 20, _mark) if len(series) > 1 else (Markup(""), 6.0)
    group = BAR * len(series) + GAP
    largest = max((value for each in series.values() for value in each if value), default=0) or 1.0
    parts = [names]
    for place, label in enumerate(labels):
        y = top + group * place
        words = shortened(label, 24)
        middle = y + BAR * len(series) / 2 + 4
        whole = element("title", label)
        parts.append(
            element("text", whole, words, x=LABEL_WIDTH - 10, y=middle, class_="label", text_anchor="end")
        )
        parts += [
            _bar(number, f"{label}, {what}", values[place], largest, y + BAR * (number - 1), show)
            for number, (what, values) in enumerate(series.items(), start=1)
        ]
    height = top + group * len(labels)
    if more:
        parts.append(text(LABEL_WIDTH, height + 12, f"and {more} more in the table", class_="tick"))
        height += 18
    return picture(height, name, *parts)


def _bar(number: int, words: str, value: float | None, largest: float, y: float, show: Show) -> Markup:
    if value is None:
        return text(LABEL_WIDTH + 4, y + 12, "not known", class_="tick")
    length = (WIDTH - LABEL_WIDTH - VALUE_WIDTH) * max(0.0, value) / largest
    title = element("title", f"{words}: {show(value)}")
    kind = f"bar s{number}"
    bar = element(
        "rect", title, x=LABEL_WIDTH, y=y, width=max(1.0, length), height=BAR - 2, rx=2, class_=kind
    )
    return bar + text(LABEL_WIDTH + length + 6, y + 11, show(value), class_="value")


def _mark(number: int, x: float, y: float) -> Markup:
    return element("rect", x=x + 11, y=y - 7, width=13, height=13, rx=2, class_=f"bar s{number}")
