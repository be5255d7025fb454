"""Lines over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from markupsafe import Markup

from relaymesh.pipeline.report.charts.scale import time_text, time_ticks, value_ticks
from relaymesh.pipeline.report.charts.svg import WIDTH, element, joined, legend, picture, text
from relaymesh.pipeline.report.shown import Show, cell

__all__ = ["lines"]

PLOT, BOTTOM, LEFT, RIGHT = 190, 28, 48, 18
MARKED_POINTS_MAX = 150
"""Beyond this a line has no dots: they would be one band."""

Series = Mapping[str, Sequence[float | None]]


def lines(name: str, moments: Sequence[datetime], series: Series, show: Show) -> Markup:
    """One line for each series over the same moments; a missing value is a gap."""
    names, top = legend(list(series), LEFT, _mark)
    bottom = top + PLOT
    first, last = moments[0], moments[-1]
    span = (last - first).total_seconds() or 1.0
    ticks = value_ticks(max((value for each in series.values() for value in each if value), default=0))

    def x(moment: datetime) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (moment - first).total_seconds() / span

    def y(value: float) -> float:
        return bottom - PLOT * value / ticks[-1]

    grid = [
        element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y(tick), y2=y(tick), class_="grid")
        + text(LEFT - 8, y(tick) + 4, show(tick), anchor="end", class_="tick")
        for tick in ticks
    ]
    below = [
        element("line", x1=x(tick), x2=x(tick), y1=bottom, y2=bottom + 5, class_="axis")
        + text(x(tick), bottom + 20, time_text(tick), anchor="middle", class_="tick")
        for tick in time_ticks(first, last, wanted=6)
    ]
    drawn = [
        _line(number, label, [(x(at), y(value), at, value) for at, value in points], show)
        for number, (label, values) in enumerate(series.items(), start=1)
        if (points := [(at, v) for at, v in zip(moments, values, strict=True) if v is not None])
    ]
    return picture(bottom + BOTTOM, name, *grid, *below, *drawn, names)


def _line(number: int, label: str, points: list[tuple[float, float, datetime, float]], show: Show) -> Markup:
    path = " ".join(f"{'M' if i == 0 else 'L'}{x:.1f} {y:.1f}" for i, (x, y, _, _) in enumerate(points))
    largest = max(value for *_, value in points)
    whole = element("title", f"{label}: at most {show(largest)}")
    dots = [
        element("circle", element("title", f"{label}, {cell(at)}: {show(value)}"), cx=x, cy=y, r=3.0,
                class_=f"dot s{number}")
        for x, y, at, value in points
    ]  # fmt: skip
    shown = dots if len(points) <= MARKED_POINTS_MAX else []
    return element("path", whole, d=path, class_=f"line s{number}") + joined(shown)


def _mark(number: int, x: float, y: float) -> Markup:
    """A piece of the line: dashes tell them apart where colours do not."""
    return element("line", x1=x, x2=x + 24, y1=y, y2=y, class_=f"line s{number}")
