"""Spans of time, a row for each name: when something held, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from markupsafe import Markup

from relaymesh.pipeline.report.charts.scale import time_text, time_ticks
from relaymesh.pipeline.report.charts.svg import WIDTH, element, picture, shortened, text
from relaymesh.pipeline.report.shown import cell

__all__ = ["spans"]

LABEL_WIDTH, ROW, BOTTOM, RIGHT = 190, 26, 26, 14

Span = tuple[str, datetime, datetime, str, str]
"""Row, begin, end, class (1 to 6, as a series), words."""


def spans(name: str, drawn: Sequence[Span], first: datetime, last: datetime) -> Markup:
    """From `first` to `last`; a short span is drawn wide enough to be seen."""
    rows = list(dict.fromkeys(label for label, *_ in drawn))
    height = ROW * len(rows) + BOTTOM
    length = (last - first).total_seconds() or 1.0

    def x(moment: datetime) -> float:
        return LABEL_WIDTH + (WIDTH - LABEL_WIDTH - RIGHT) * (moment - first).total_seconds() / length

    parts = []
    for place, label in enumerate(rows):
        y = ROW * place
        parts.append(text(LABEL_WIDTH - 10, y + 17, shortened(label, 26), anchor="end"))
        parts.append(element("line", x1=LABEL_WIDTH, x2=WIDTH - RIGHT, y1=y + 13, y2=y + 13, class_="grid"))
    for label, begin, end, kind, words in drawn:
        title = element("title", f"{label}: {words}, {cell(begin)} to {cell(end)}")
        parts.append(
            element("rect", title, x=x(begin), y=ROW * rows.index(label) + 4, height=ROW - 8, rx=2,
                    width=max(3.0, x(end) - x(begin)), class_=f"bar s{kind}")
        )  # fmt: skip
    ticks = [
        text(x(tick), height - 6, time_text(tick), anchor="middle", class_="tick")
        for tick in time_ticks(first, last, wanted=4)
    ]
    return picture(height, name, *parts, *ticks)
