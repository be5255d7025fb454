"""Columns, a group for each day, the oldest at the left as on every axis of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

from markupsafe import Markup

from relaymesh.pipeline.report.charts.frame import BOTTOM, HEAD, framed, height_of
from relaymesh.pipeline.report.charts.markup import chart, element, legend, note, percent, text
from relaymesh.pipeline.report.charts.scale import YEARLY, Scale, scale_of
from relaymesh.pipeline.shown import Show, told, words_of

__all__ = ["days"]

FILLED = 0.66
"""Of the width of a day; the rest is the gap to the next one."""
WIDE_DAYS_MAX = 4
"""So few have room for their values in figures."""
NAMED_DAYS_MAX = 5
"""So many days are all named. Of more, every so many, so that four names have room on a phone."""

Series = Mapping[str, Sequence[float | None]]


def days(name: str, dates: Sequence[date], series: Series, show: Show) -> Markup:
    """A column for each day and series; a missing value has none."""
    largest = [max((each[n] or 0 for each in series.values()), default=0) for n in range(len(dates))]
    scale = scale_of(largest, show)
    form = "%b %Y" if dates[-1] - dates[0] > YEARLY else "%d %b"
    below = [((n + 0.5) / len(dates), f"{dates[n]:{form}}") for n in _named(len(dates))]
    drawn = [
        _column(n, len(dates), number, len(series), f"{what}, {words_of(dates[n])}: {told(show, value)}",
                value, scale)
        for number, (what, values) in enumerate(series.items(), start=1)
        for n, value in enumerate(values)
        if value is not None
    ]  # fmt: skip
    if len(dates) <= WIDE_DAYS_MAX:
        drawn += [_figure(n, len(dates), list(series.values()), scale, show) for n in range(len(dates))]
    parts = [legend(list(series), _mark)] if len(series) > 1 else []
    parts.append(framed(scale, show, below, *drawn))
    if scale.cut:
        longest = max(range(len(dates)), key=largest.__getitem__)
        parts.append(
            note(
                f"The scale ends at {show(scale.top)}. The highest day is {words_of(dates[longest])}:"
                f" {show(largest[longest])}."
            )
        )
    return chart("days", name, *parts)


def _named(many: int) -> list[int]:
    if many <= NAMED_DAYS_MAX:
        return list(range(many))
    if many <= 3 * (NAMED_DAYS_MAX - 1):
        step = -(-many // (NAMED_DAYS_MAX - 1))
        return list(range(step // 2, many, step))
    return [int((2 * name + 1) * many / 8 - 0.5) for name in range(NAMED_DAYS_MAX - 1)]


def _column(
    place: int, places: int, number: int, numbers: int, words: str, value: float, scale: Scale
) -> Markup:
    width = FILLED / places / numbers
    left = (place + (1 - FILLED) / 2) / places + width * (number - 1)
    top = min(height_of(scale, value), BOTTOM - 1.0)
    return element("rect", element("title", words), x=percent(left), y=top, width=percent(width * 0.94),
                   height=BOTTOM - top, rx=1, class_=f"bar s{number}")  # fmt: skip


def _figure(
    place: int, places: int, columns: Sequence[Sequence[float | None]], scale: Scale, show: Show
) -> Markup:
    """The largest value of a day, above its column; that of a cut one at the end of the scale."""
    value, behind = max((each[place] or 0, -number) for number, each in enumerate(columns))
    width = FILLED / places / len(columns)
    middle = (place + (1 - FILLED) / 2) / places + width * (0.5 - behind)
    y = HEAD - 12 if scale.is_cut(value) else height_of(scale, value) - 6
    words = ("▲ " if scale.is_cut(value) else "") + show(value)
    return text(percent(middle), y, words, class_="figure", anchor="middle")


def _mark(number: int) -> Markup:
    return element("rect", x=5, y=1, width=12, height=12, rx=2, class_=f"bar s{number}")
