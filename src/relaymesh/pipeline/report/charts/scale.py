"""Axes: which values are written beside them, and where they end."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from relaymesh.pipeline.shown import Show, count, duration, share

__all__ = ["YEARLY", "Scale", "scale_of", "time_text", "time_ticks", "value_ticks", "wide_scale_of"]

_MS, _S, _MIN, _H, _D = 1, 1_000, 60_000, 3_600_000, 86_400_000
_DURATIONS = tuple(
    float(times * unit)
    for unit, many in (
        (_MS, (1, 2, 5, 10, 20, 50, 100, 200, 500)),
        (_S, (1, 2, 5, 10, 15, 30)),
        (_MIN, (1, 2, 5, 10, 15, 30)),
        (_H, (1, 2, 3, 6, 12)),
        (_D, (1, 2, 5)),
    )
    for times in many
)
"""Steps of an axis of durations: a fourth of 20 hours is 5 hours, and not 5.5555."""
_STEPS_S = (60, 300, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 2 * 86_400, 7 * 86_400)

BURST = 5.0
"""A largest value more than so many times as large as the others would flatten them."""
KEPT = 3.0
"""What is at most so many times that large is still drawn whole."""
REST_MIN = 3
"""Fewer values have no rest that could be flattened."""
WIDE = 50.0
"""A largest value more than so many times the median, and no burst: only a logarithm shows both."""
TINY = 1e-9
"""No figure of a report is smaller; below it the steps of a scale cannot be told from 0."""
TICKS_MAX = 6
YEARLY = timedelta(days=300)
"""On a longer axis a day and its month would not say which year is meant."""


@dataclass(frozen=True)
class Scale:
    """From 0 to `top`; an axis ends at the last of `ticks`. With `cut` there are larger values."""

    top: float
    ticks: tuple[float, ...]
    cut: bool = False
    logarithmic: bool = False
    """The second of `ticks` is a step above 0; from there on each is the same factor larger."""

    def part(self, value: float) -> float:
        """0 to 1; a value that is cut is 1."""
        return min(1.0, max(0.0, value) / self.top)

    def level(self, value: float) -> float:
        """On an axis: 0 at its begin, 1 at its last tick."""
        if value <= 0:
            return 0.0
        if not self.logarithmic:
            return value / self.ticks[-1]
        low, high = math.log(self.ticks[1]), math.log(self.ticks[-1])
        step = 1 / (len(self.ticks) - 1)
        return max(0.0, step + (1 - step) * (math.log(value) - low) / (high - low))

    def is_cut(self, value: float | None) -> bool:
        return self.cut and value is not None and value > self.top


def scale_of(values: Iterable[float], show: Show = count, burst: float = BURST) -> Scale:
    """Linear, and as long as the largest value, if it is no burst.

    A burst: at most a tenth of the values (or one) are more than `burst` times as large as all others. Shares
    have none: they are parts of one whole, and say how large a part.
    """
    ordered = sorted((value for value in values if value > 0), reverse=True)
    if not ordered:
        return Scale(1.0, (0.0, 1.0))
    above = max(1, len(ordered) // 10)
    few = len(ordered) - above < REST_MIN
    if few or show is share or ordered[0] <= burst * ordered[above]:
        return Scale(ordered[0], tuple(value_ticks(ordered[0], show)))
    kept = next(value for value in ordered if value <= KEPT * ordered[above])
    ticks = tuple(value_ticks(kept, show))
    return Scale(max(kept, ticks[-1]), ticks, cut=True)


def wide_scale_of(values: Iterable[float], show: Show = count) -> Scale:
    """As `scale_of`; logarithmic where large values are no burst, and would still flatten the others."""
    ordered = sorted(value for value in values if value >= TINY)
    scale = scale_of(ordered, show)
    if scale.cut or show is share or not ordered or ordered[-1] <= WIDE * ordered[len(ordered) // 2]:
        return scale
    low = math.floor(math.log10(ordered[0]))
    high = max(low + 1, math.ceil(math.log10(ordered[-1])))
    step = -(-(high - low) // (TICKS_MAX - 2))
    powers = range(high - (high - low) // step * step, high + 1, step)
    return Scale(ordered[-1], (0.0, *(10.0**power for power in powers)), logarithmic=True)


def value_ticks(largest: float, show: Show = count, wanted: int = 4) -> list[float]:
    """From 0 to at least the largest, in round steps: of time where time is shown, whole where things are."""
    if largest < TINY:
        return [0.0, 1.0]
    rough = largest / wanted * 0.999
    if show is duration and 1 <= rough <= _DURATIONS[-1]:
        step = next(each for each in _DURATIONS if each >= rough)
    else:
        unit = _D if show is duration and rough > _D else 1
        power = 10.0 ** math.floor(math.log10(rough / unit)) * unit
        step = next(times * power for times in (1, 2, 5, 10) if times * power >= rough)
    if show is count and largest >= 1:
        step = max(1.0, step)
    return [round(step * number, 12) for number in range(math.ceil(largest / step * 0.999) + 1)]


def time_ticks(first: datetime, last: datetime, wanted: int = 8) -> list[datetime]:
    """Round moments from the first to the last."""
    span_s = (last - first).total_seconds()
    step = next((each for each in _STEPS_S if span_s / each <= wanted), None)
    if step is None:
        step = math.ceil(span_s / wanted / _STEPS_S[-1]) * _STEPS_S[-1]
    midnight = first.replace(hour=0, minute=0, second=0, microsecond=0)
    behind = math.ceil((first - midnight).total_seconds() / step)
    ticks = [midnight + timedelta(seconds=step * behind)]
    while ticks[-1] + timedelta(seconds=step) <= last:
        ticks.append(ticks[-1] + timedelta(seconds=step))
    return [tick for tick in ticks if tick <= last]


def time_text(moment: datetime, span: timedelta = timedelta(0)) -> str:
    """The day at midnight, else the time of day; on an axis of a year or so, the month and its year."""
    if span > YEARLY:
        return f"{moment:%b %Y}"
    return f"{moment:%d %b}" if (moment.hour, moment.minute) == (0, 0) else f"{moment:%H:%M}"
