"""Values as people read them: short beside a bar, exact in a table."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime
from typing import Any

__all__ = ["Show", "cell", "count", "dollars", "milliseconds", "share"]

Show = Callable[[float], str]
"""A number in a few characters, its unit included."""

NOTHING = "–"


def cell(value: Any) -> str:
    """A value of a table: exact, except that a fraction has six digits."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}" if math.isfinite(value) else NOTHING
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, date):
        return value.isoformat()
    return str(value)


def count(value: float) -> str:
    """`950`, `12.3 k`, `4.56 M`."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e4)):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):.3g} {unit}"
    return f"{value:.3g}" if value != int(value) else f"{int(value)}"


def milliseconds(value: float) -> str:
    """`850 ms`, `12.3 s`, `5 min`, `2.5 h`, `3 d`."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} ms"


def share(value: float) -> str:
    """`12.5 %`; what is too small to be read is only said to be so."""
    if 0 < value < 1e-5:
        return "< 0.001 %"
    return f"{value * 100:.3g} %"


def dollars(value: float) -> str:
    return f"${value:,.2f}" if abs(value) >= 1 else f"${value:.3g}"
