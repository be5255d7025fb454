"""A figure: one query, how its rows are drawn, and what it says. The rows are the figure's table as well."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from markupsafe import Markup

from relaymesh.kernel.address import DEFAULT_NAMESPACE
from relaymesh.pipeline.report.charts.bars import bars
from relaymesh.pipeline.report.charts.days import days
from relaymesh.pipeline.report.charts.heat import heat
from relaymesh.pipeline.report.charts.lines import lines
from relaymesh.pipeline.report.published import Answer
from relaymesh.pipeline.shown import Show, words_of

__all__ = [
    "DAYS_MAX",
    "Bucket",
    "Draw",
    "Figure",
    "Section",
    "drawn_bars",
    "drawn_days",
    "drawn_heat",
    "drawn_lines",
    "newest_days",
    "short",
]

Draw = Callable[[str, Answer], Markup]
"""From the title and the rows, of which there is at least one, to a picture."""

BARS_MAX = 15
HEAT_ROWS_MAX = 30
DAYS_MAX = 366


@dataclass(frozen=True, kw_only=True)
class Figure:
    """`draw` is None where a table says it best. `rows_max` bounds the table; how many are left is said.

    `wide`: as wide as the page. Every other figure has half of it, so its place does not hang on the data.
    """

    name: str
    title: str
    says: str
    sql: str
    draw: Draw | None = None
    empty: str = "Nothing of the kind happened."
    rows_max: int = 100
    wide: bool = False


@dataclass(frozen=True, kw_only=True)
class Section:
    name: str
    title: str
    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class Bucket:
    """The step of time axes: the finest that gives no more than so many points."""

    sql: str
    words: str

    @classmethod
    def of(cls, first: datetime | None, last: datetime | None, points_max: int = 120) -> Bucket:
        seconds = (last - first).total_seconds() if first is not None and last is not None else 0.0
        for size, sql, words in _STEPS:
            if seconds / size <= points_max:
                return cls(sql, words)
        days = int(seconds / 86_400 / points_max) + 1
        return cls(f"INTERVAL '{days} days'", f"{days} days")


_STEPS = (
    (60, "INTERVAL '1 minute'", "minute"),
    (300, "INTERVAL '5 minutes'", "5 minutes"),
    (900, "INTERVAL '15 minutes'", "15 minutes"),
    (3_600, "INTERVAL '1 hour'", "hour"),
    (10_800, "INTERVAL '3 hours'", "3 hours"),
    (86_400, "INTERVAL '1 day'", "day"),
)


# -- from rows to a picture


def drawn_bars(label: tuple[str, ...], series: Mapping[str, str], show: Show, *, parts: bool = False) -> Draw:
    """`series`: what is written in the legend, and the column it comes from. The first rows are drawn."""

    def draw(title: str, answer: Answer) -> Markup:
        records = answer.records()[:BARS_MAX]
        labels = [" · ".join(short(record[each]) for each in label) for record in records]
        values = {what: [_number(record[column]) for record in records] for what, column in series.items()}
        return bars(title, labels, values, show, more=answer.total - len(records), parts=parts)

    return draw


def drawn_days(series: Mapping[str, str], show: Show) -> Draw:
    """Over the column `day`. Days without a row are there too, empty, while they are not too many."""

    def draw(title: str, answer: Answer) -> Markup:
        found = {record["day"]: record for record in answer.records()}
        dates: list[date] = sorted(found)
        if (span := (dates[-1] - dates[0]).days) < DAYS_MAX:
            dates = [dates[0] + timedelta(days=number) for number in range(span + 1)]
        values = {
            what: [_number(found[day][column]) if day in found else None for day in dates]
            for what, column in series.items()
        }
        return days(title, dates, values, show)

    return draw


def newest_days(query: str) -> str:
    """A query with a row for each `day`: the newest so many, the oldest first as on every axis of time."""
    return f"{query}\nQUALIFY row_number() OVER (ORDER BY day DESC) <= {DAYS_MAX}\nORDER BY day"


def drawn_heat(down: str, across: str, value: str, show: Show, measure: str) -> Draw:
    """`measure`: what the values are, in the legend."""

    def draw(title: str, answer: Answer) -> Markup:
        records = [record for record in answer.records() if record[value] is not None]
        rows = list(dict.fromkeys(short(record[down]) for record in records))[:HEAT_ROWS_MAX]
        columns = sorted({words_of(record[across]) for record in records})
        values = {(short(each[down]), words_of(each[across])): float(each[value]) for each in records}
        return heat(title, rows, columns, values, show, measure)

    return draw


def drawn_lines(series: Mapping[str, str], show: Show, *, split_by: str | None = None) -> Draw:
    """Over the column `moment`. `split_by`: a line for each value of that column, in place of each column."""

    def draw(title: str, answer: Answer) -> Markup:
        records = answer.records()
        moments = sorted({_moment(record["moment"]) for record in records})
        found: dict[str, dict[datetime, float | None]] = {}
        for record in records:
            for what, column in series.items():
                name = what if split_by is None else short(record[split_by])
                found.setdefault(name, {})[_moment(record["moment"])] = _number(record[column])
        return lines(title, moments, {name: [at.get(m) for m in moments] for name, at in found.items()}, show)

    return draw


def _moment(value: Any) -> datetime:
    return value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)  # noqa: DTZ001


def short(value: Any) -> str:
    """Addresses of the default namespace are written without it, as everywhere."""
    return words_of(value).removeprefix(f"{DEFAULT_NAMESPACE}/")


def _number(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None
