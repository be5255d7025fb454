"""Bars below each other: one or more for each label, each with its value in figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from relaymesh.pipeline.report.charts.label import label
from relaymesh.pipeline.report.charts.markup import chart, element, joined, legend, note, percent
from relaymesh.pipeline.report.charts.scale import Scale, scale_of
from relaymesh.pipeline.shown import Show, count, told

__all__ = ["bars"]

LINE = 16
BURST = 20.0
"""Each bar has its value beside it: only a scale that leaves the others a twentieth is cut."""
THICK = (11, 6, 6)
"""The first series is thick, the second thin, the third thin and hollow."""

Series = Mapping[str, Sequence[float | None]]


def bars(
    name: str, labels: Sequence[str], series: Series, show: Show, *, more: int = 0, parts: bool = False
) -> Markup:
    """One group for each label, and in it one bar for each series. A missing value is said as such.

    `more`: how many labels there are besides. `parts`: the bars are parts of one whole, and none is cut.
    """
    largest = [max((each[place] or 0 for each in series.values()), default=0) for place in range(len(labels))]
    scale = scale_of(largest, show, math.inf if parts else BURST)
    inside = [legend(list(series), _mark)] if len(series) > 1 else []
    inside.append(
        element("div", *(_group(each, place, series, scale, show) for place, each in enumerate(labels)),
                class_="rows")
    )  # fmt: skip
    if scale.cut:
        inside.append(note(f"Bars above {show(scale.top)} are cut. The values beside them are exact."))
    if more > 0:
        inside.append(note(f"and {count(more)} more in the table"))
    return chart("bars", name, *inside)


def _group(words: str, place: int, series: Series, scale: Scale, show: Show) -> Markup:
    drawn, values = [], []
    for number, (what, column) in enumerate(series.items(), start=1):
        value = column[place]
        if value is None:
            values.append(element("span", "not known", class_="unknown"))
            continue
        title = element("title", f"{words}, {what}: {told(show, value)}")
        drawn.append(_bar(number, title, scale.part(value), LINE * (number - 1)))
        if scale.is_cut(value):
            drawn.append(_break(LINE * (number - 1)))
        values.append(element("span", show(value)))
    height = LINE * len(series)
    track = element("svg", *drawn, class_="track", width="100%", height=height)
    return label(words) + track + element("span", joined(values), class_="values")


def _bar(number: int, title: Markup, part: float, y: float) -> Markup:
    thick = THICK[number - 1]
    where = {
        "x": 0,
        "y": y + (LINE - thick) / 2,
        "width": percent(max(part, 0.003) if part else 0),
        "height": thick,
    }
    return element("rect", title, **where, rx=2, class_=f"bar s{number}")


def _break(y: float) -> Markup:
    slashes = element("path", d="M0 16 L6 0 M6 16 L12 0", class_="break")
    return element("svg", slashes, x="88%", y=y, width=12, height=LINE)


def _mark(number: int) -> Markup:
    thick = THICK[number - 1]
    return element("rect", x=2, y=(14 - thick) / 2, width=20, height=thick, rx=2, class_=f"bar s{number}")
