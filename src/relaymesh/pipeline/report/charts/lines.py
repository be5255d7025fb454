"""Lines over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from markupsafe import Markup

from relaymesh.pipeline.report.charts.frame import BOTTOM, HEAD, framed, height_of
from relaymesh.pipeline.report.charts.label import shortened
from relaymesh.pipeline.report.charts.markup import chart, element, joined, legend, note, percent, text
from relaymesh.pipeline.report.charts.scale import Scale, time_text, time_ticks, wide_scale_of
from relaymesh.pipeline.shown import Show, count, told, words_of

__all__ = ["lines"]

MARKED_POINTS_MAX = 150
"""Beyond this a line has no dots: they would be one band."""
ACROSS = 1_000
"""Of the path's own units; the page stretches it."""

Series = Mapping[str, Sequence[float | None]]


def lines(name: str, moments: Sequence[datetime], series: Series, show: Show) -> Markup:
    """One line for each series over the same moments; a missing value is a gap."""
    first, last = moments[0], moments[-1]
    span = (last - first).total_seconds()
    places = [(at - first).total_seconds() / span if span else 0.5 for at in moments]
    largest = [max((each[n] or 0 for each in series.values()), default=0) for n in range(len(moments))]
    scale = wide_scale_of(largest, show)
    ticks = time_ticks(first, last, wanted=4) if span else [first]
    below = [
        ((tick - first).total_seconds() / span if span else 0.5, time_text(tick, last - first))
        for tick in ticks
    ]
    drawn = [
        _line(number, values, places, scale) + _dots(number, label, values, places, moments, scale, show)
        for number, (label, values) in enumerate(series.items(), start=1)
    ]
    parts = [legend([shortened(each) for each in series], _mark)] if len(series) > 1 else []
    if scale.logarithmic:
        parts.append(note("The scale is logarithmic: from tick to tick, values grow by the same factor."))
    if not scale.cut:
        return chart("lines", name, *parts, framed(scale, show, below, *drawn))
    value, place, label = max(
        (value or 0, place, label)
        for label, values in series.items()
        for place, value in enumerate(values)
    )  # fmt: skip
    peak = _peak(places[place], f"▲ {show(value)}")
    higher = sum(any(scale.is_cut(each[n]) for each in series.values()) for n in range(len(moments)))
    words = (
        f"The scale ends at {show(scale.top)}, so that one burst does not flatten the rest. Higher:"
        f" {count(higher)} of {count(len(moments))} moments, the highest {show(value)}"
        f" ({shortened(label)}, {moments[place]:%d %b %H:%M})."
    )
    return chart("lines", name, *parts, framed(scale, show, below, *drawn, peak), note(words))


def _line(number: int, values: Sequence[float | None], places: Sequence[float], scale: Scale) -> Markup:
    path, begun = [], False
    for place, value in zip(places, values, strict=True):
        if value is not None:
            path.append(f"{'L' if begun else 'M'}{place * ACROSS:.1f} {height_of(scale, value):.1f}")
        begun = value is not None
    inside = element("path", d=" ".join(path), class_=f"line s{number}")
    return element("svg", inside, viewBox=f"0 0 {ACROSS} {BOTTOM}", preserveAspectRatio="none", width="100%",
                   height=BOTTOM)  # fmt: skip


def _dots(
    number: int,
    label: str,
    values: Sequence[float | None],
    places: Sequence[float],
    moments: Sequence[datetime],
    scale: Scale,
    show: Show,
) -> Markup:
    """Seen under the pointer only, with their words; a line of one point is seen always."""
    points = [each for each in zip(places, values, moments, strict=True) if each[1] is not None]
    if len(points) > MARKED_POINTS_MAX:
        return Markup("")
    kind = f"dot s{number}" + (" alone" if len(points) == 1 else "")
    return joined(
        element("circle", element("title", f"{label}, {words_of(at)}: {told(show, value)}"),
                cx=percent(place), cy=height_of(scale, value), r=4, class_=kind)
        for place, value, at in points
        if value is not None
    )  # fmt: skip


def _peak(at: float, words: str) -> Markup:
    """The value of the burst, in the head, beside its line."""
    right = at < 0.6
    return text(
        percent(at),
        HEAD - 12,
        words,
        class_="peak",
        anchor="start" if right else "end",
        dx=6 if right else -6,
    )


def _mark(number: int) -> Markup:
    """A piece of the line: dashes tell them apart where colours do not."""
    return element("line", x1=0, x2=24, y1=7, y2=7, class_=f"line s{number}")
