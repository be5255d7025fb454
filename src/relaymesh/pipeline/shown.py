"""Values as people read them: thousands kept apart, the unit chosen by size, the exact value beside it.

Every number of a report and of a proposal is written here, and nowhere else. A column says its unit by its
name (`_ms`, `_bytes`, `_share`, `_usd`), so a table needs no second description.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

__all__ = [
    "NOTHING",
    "Cell",
    "Show",
    "cell",
    "count",
    "dollars",
    "duration",
    "exact",
    "heading",
    "per_second",
    "share",
    "size",
    "told",
    "words_of",
]

Show = Callable[[float], str]
"""A number in a few characters, its unit included."""

NOTHING = "–"
MINUS = "−"
LONG = 28
"""A text of more characters may be wrapped in a table; a shorter one stays on its line."""

_SI = (("T", 1e12), ("G", 1e9), ("M", 1e6))
_BINARY = (("PiB", 2**50), ("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
_PARTS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


# -- one number


def count(value: float) -> str:
    """`950`, `12,345`, `22.2 M`, `0.167`."""
    if not math.isfinite(value):
        return NOTHING
    if value < 0:
        return MINUS + count(-value)
    if value >= 999_999.5:
        value = float(f"{value:.3g}")
        unit, unit_size = next(each for each in _SI if value >= each[1])
        return f"{_three_digits(value / unit_size)} {unit}"
    if value == int(value):
        return f"{int(value):,}"
    if value < 0.0001:
        return "< 0.0001"
    return _three_digits(value)


def duration(milliseconds: float) -> str:
    """`350 µs`, `850 ms`, `12.3 s`, `47 min 4 s`, `2 h 30 min`, `3 d 4 h`: two parts at most."""
    if not math.isfinite(milliseconds):
        return NOTHING
    if milliseconds < 0:
        return MINUS + duration(-milliseconds)
    if milliseconds == 0:
        return "0 s"
    if milliseconds < 0.9995:
        micros = milliseconds * 1_000
        return f"{_three_digits(micros)} µs" if micros >= 1 else "< 1 µs"
    if milliseconds < 999.5:
        return f"{_three_digits(milliseconds)} ms"
    seconds = milliseconds / 1_000
    if seconds < 59.95:
        return f"{_three_digits(seconds)} s"
    return _two_parts(seconds)


def size(octets: float) -> str:
    """`950 B`, `1.2 GiB`."""
    if not math.isfinite(octets):
        return NOTHING
    if octets < 0:
        return MINUS + size(-octets)
    for unit, unit_size in _BINARY:
        if octets >= unit_size:
            return f"{_three_digits(octets / unit_size)} {unit}"
    return f"{_three_digits(octets)} B"


def share(value: float) -> str:
    """`12.5 %`. A share too small to be read is written as `< 0.001 %`."""
    if not math.isfinite(value):
        return NOTHING
    if 0 < value < 1e-5:
        return "< 0.001 %"
    return f"{_three_digits(value * 100)} %"


def dollars(value: float) -> str:
    """`$1,234.50`, `$22.2 M`, `$0.0123`."""
    if not math.isfinite(value):
        return NOTHING
    if value < 0:
        return MINUS + dollars(-value)
    if value >= 999_999.5:
        return f"${count(value)}"
    if value >= 1 or value == 0:
        return f"${value:,.2f}"
    return f"${_three_digits(value)}" if value >= 0.0001 else "< $0.0001"


def per_second(value: float) -> str:
    """`9/s`, `0.525/s`."""
    return f"{count(value)}/s"


def exact(value: Any, unit: str = "") -> str:
    """Every digit, thousands kept apart."""
    if isinstance(value, float) and math.isfinite(value):
        whole = value == int(value) and abs(value) < 1e15
        value = f"{int(value):,}" if whole else f"{value:,}"
    elif isinstance(value, int) and not isinstance(value, bool):
        value = f"{value:,}"
    return f"{value} {unit}".rstrip()


def told(show: Show, value: float) -> str:
    """As shown, and the exact value behind it where it is another: `47 min 4 s (2,823,631 ms)`."""
    text, whole = show(value), exact(value, _EXACT_IN.get(show, ""))
    return text if whole == text else f"{text} ({whole})"


_EXACT_IN = {duration: "ms", size: "bytes", dollars: "USD", per_second: "per second"}


def _three_digits(value: float) -> str:
    """Three significant digits, never an exponent, no zeros at the end."""
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _two_parts(seconds: float) -> str:
    """The largest unit that fits and the one below it, rounded to the latter."""
    for index, (unit, unit_s) in enumerate(_PARTS[:-1]):
        below, below_s = _PARTS[index + 1]
        rounded = round(seconds / below_s) * below_s
        if rounded >= unit_s:
            many, rest = divmod(rounded, unit_s)
            return f"{many:,} {unit}" + (f" {rest // below_s} {below}" if rest else "")
    return f"{seconds:.0f} s"


# -- a value of a table


@dataclass(frozen=True)
class Cell:
    """A value in a table. `exact` is empty where `text` is exact already."""

    text: str
    exact: str = ""
    kind: str = ""
    """`n`: a number; `long`: a text that may be wrapped."""


@dataclass(frozen=True)
class Unit:
    show: Show
    name: str = ""
    suffix: str = ""
    """What a heading need not repeat."""


_UNITS: tuple[tuple[Callable[[str], bool], Unit], ...] = (
    (lambda name: name == "ms" or name.endswith("_ms"), Unit(duration, "ms", "_ms")),
    (lambda name: name.endswith("_minutes"), Unit(lambda value: duration(value * 60_000), "min", "_minutes")),
    (lambda name: name.endswith("_s"), Unit(lambda value: duration(value * 1_000), "s", "_s")),
    (lambda name: name.endswith("bytes"), Unit(size, "bytes")),
    (lambda name: name.endswith("_usd"), Unit(dollars, "USD", "_usd")),
    (lambda name: name.startswith(("lambda_", "mu_")), Unit(per_second, "per second")),
    (lambda name: "share" in name or name.startswith("p_") or name.endswith("_rate"), Unit(share)),
)
_NAMES = ("sequence", "partition", "version", "priority")
"""Whole numbers that name something, and are copied into commands: no commas."""
_TOLD_BY = {"peak": "unit", "threshold": "unit", "value": "metric", "most": "metric"}
"""Columns whose unit another column of the row says."""


def cell(column: str, value: Any, row: Mapping[str, Any]) -> Cell:
    """The value of this column, in its row."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return Cell(NOTHING)
    if isinstance(value, bool):
        return Cell("✓ yes" if value else "✗ no")
    if isinstance(value, int | float):
        return _number(column, value, row)
    text = words_of(value)
    return Cell(text, kind="long" if len(text) > LONG else "")


def words_of(value: Any) -> str:
    """A value as it is: moments without their zone (all are UTC), fractions to six places."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        if not math.isfinite(value):
            return NOTHING
        return f"{value:.6f}".rstrip("0").rstrip(".") if value == 0 or abs(value) >= 1e-4 else f"{value:.3g}"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, date):
        return value.isoformat()
    return str(value)


def heading(column: str) -> str:
    """`latency_p95_ms` is `latency p95`: each value has its unit."""
    unit = _unit_of(column)
    return column.removesuffix(unit.suffix if unit is not None else "").replace("_", " ")


def _number(column: str, value: float, row: Mapping[str, Any]) -> Cell:
    if isinstance(value, int) and column.endswith(_NAMES):
        return Cell(str(value), kind="n")
    unit = _unit_of(str(row.get(_TOLD_BY.get(column, ""), column)))
    whole = exact(value, unit.name if unit is not None else "")
    if unit is None:
        text = exact(value) if value == int(value) and abs(value) < 1e15 else count(value)
    else:
        text = unit.show(value)
    return Cell(text, "" if whole == text else whole, "n")


def _unit_of(name: str) -> Unit | None:
    return next((unit for fits, unit in _UNITS if fits(name)), None)
