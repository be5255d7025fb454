"""Axes: which values are written beside them."""

from __future__ import annotations

import math
from datetime import datetime, timedelta

__all__ = ["time_text", "time_ticks", "value_ticks"]

_STEPS_S = (60, 300, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 2 * 86_400, 7 * 86_400)


def value_ticks(largest: float, wanted: int = 4) -> list[float]:
    """From 0 to at least the largest, in steps of 1, 2 or 5 times a power of ten."""
    if largest <= 0:
        return [0.0, 1.0]
    rough = largest / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(times * power for times in (1, 2, 5, 10) if times * power >= rough * 0.999)
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


def time_text(moment: datetime) -> str:
    """The day at midnight, else the time of day."""
    return f"{moment:%d %b}" if (moment.hour, moment.minute) == (0, 0) else f"{moment:%H:%M}"
