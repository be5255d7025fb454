"""Spans of time, a row for each name: when something held, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from markupsafe import Markup

from relaymesh.pipeline.report.charts.frame import anchor_at, tick_class
from relaymesh.pipeline.report.charts.label import label
from relaymesh.pipeline.report.charts.markup import chart, element, note, percent, text
from relaymesh.pipeline.report.charts.scale import time_text, time_ticks
from relaymesh.pipeline.shown import count, words_of

__all__ = ["spans"]

ROW, ROWS_MAX = 18, 30

Span = tuple[str, datetime, datetime, str, str]
"""Row, begin, end, class (1 to 6, as a series), words."""


def spans(name: str, drawn: Sequence[Span], first: datetime, last: datetime) -> Markup:
    """From `first` to `last`; a short span is drawn wide enough to be seen."""
    length = (last - first).total_seconds() or 1.0
    rows: dict[str, list[Markup]] = {}
    for words, begin, end, kind, told in drawn:
        title = element("title", f"{words}: {told}, {words_of(begin)} to {words_of(end)}")
        left, wide = (begin - first).total_seconds() / length, (end - begin).total_seconds() / length
        rows.setdefault(words, []).append(
            element("rect", title, x=percent(left), y=3, width=percent(max(0.002, wide)), height=ROW - 6,
                    class_=f"span s{kind}")
        )  # fmt: skip
    ticks = [((tick - first).total_seconds() / length, tick) for tick in time_ticks(first, last, wanted=4)]
    lines = [element("line", x1=percent(at), x2=percent(at), y1=0, y2=ROW, class_="grid") for at, _ in ticks]
    shown = list(rows.items())[:ROWS_MAX]
    parts = [
        label(words) + element("svg", *lines, *marks, class_="track", width="100%", height=ROW)
        for words, marks in shown
    ]
    below = [
        text(percent(at), 13, time_text(tick, last - first), anchor=anchor_at(at), class_=tick_class(number))
        for number, (at, tick) in enumerate(ticks)
    ]
    axis = element("span", class_="label") + element("svg", *below, class_="track", width="100%", height=18)
    more = [note(f"and {count(len(rows) - ROWS_MAX)} more in the table")] if len(rows) > ROWS_MAX else []
    return chart("spans", name, element("div", *parts, axis, class_="rows"), *more)
