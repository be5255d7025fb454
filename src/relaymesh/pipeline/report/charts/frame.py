"""What every chart over time stands in: values at the left, time below, and a head for what is cut."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from relaymesh.pipeline.report.charts.markup import element, joined, percent, text
from relaymesh.pipeline.report.charts.scale import Scale
from relaymesh.pipeline.shown import Show

__all__ = ["BOTTOM", "HEAD", "PLOT", "anchor_at", "framed", "height_of", "tick_class"]

HEAD, PLOT, FOOT = 26, 180, 26
BOTTOM = HEAD + PLOT
LETTER = 7.4
"""About the width of the widest figure, at the size that the style gives; some room is left."""
EDGE = 0.08
"""So near an end a label begins or ends at its tick: it must not leave the picture."""


def framed(scale: Scale, show: Show, below: Sequence[tuple[float, str]], *inside: Markup) -> Markup:
    """`below`: where along the width (0 to 1) which words stand."""
    words = [show(tick) for tick in scale.ticks]
    width = round(max(map(len, words)) * LETTER + 10)
    beside = [
        text(width - 8, height_of(scale, tick) + 4, each, anchor="end")
        for tick, each in zip(scale.ticks, words, strict=True)
    ]
    lines = [
        element("line", x1=0, x2="100%", y1=height_of(scale, tick), y2=height_of(scale, tick),
                class_="axis" if tick == 0 else "grid")
        for tick in scale.ticks
    ]  # fmt: skip
    if scale.cut:
        lines.append(element("line", x1=0, x2="100%", y1=HEAD, y2=HEAD, class_="end"))
    moments = [
        element("line", x1=percent(at), x2=percent(at), y1=BOTTOM, y2=BOTTOM + 5, class_="axis")
        + text(percent(at), BOTTOM + 20, each, anchor=anchor_at(at), class_=tick_class(number))
        for number, (at, each) in enumerate(below)
    ]
    area = {"width": "100%", "height": HEAD + PLOT + FOOT}
    return element(
        "div",
        element("svg", *beside, class_="values-axis", width=width, height=area["height"]),
        element("svg", joined(lines), joined(moments), *inside, class_="area", **area),
        class_="frame",
    )


def height_of(scale: Scale, value: float) -> float:
    """From above. A value that is cut goes through the head."""
    if scale.is_cut(value):
        return 2.0
    return BOTTOM - PLOT * scale.level(value)


def tick_class(number: int) -> str:
    """Every second label goes where the picture is narrow."""
    return "tick second" if number % 2 else "tick"


def anchor_at(at: float) -> str:
    """How a label stands at its tick."""
    return "start" if at < EDGE else "end" if at > 1 - EDGE else "middle"
