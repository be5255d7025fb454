"""Heat: a table of figures, the stronger the larger. Each field has its figure: nothing hangs on colour."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from relaymesh.pipeline.report.charts.label import label
from relaymesh.pipeline.report.charts.markup import chart, element, joined
from relaymesh.pipeline.shown import Show, told

__all__ = ["heat"]

STRENGTHS = 8
"""Classes of the style, `h0` to `h7`."""


def heat(
    name: str,
    down: Sequence[str],
    across: Sequence[str],
    values: Mapping[tuple[str, str], float],
    show: Show,
    measure: str,
) -> Markup:
    """A field for each of `down` and `across`; one without a value says so by a dash. `measure`: of what."""
    found = [values[row, column] for row in down for column in across if (row, column) in values]
    least, most = min(found, default=0.0), max(found, default=0.0)
    head = element("tr", element("th"), *(element("th", each, scope="col") for each in across))
    rows = [
        element(
            "tr",
            label(row, name="th"),
            *(_field(row, column, values.get((row, column)), least, most, show) for column in across),
        )
        for row in down
    ]
    table = element("table", head, *rows)
    return chart("heat", name, element("div", table, class_="wide"), _legend(least, most, show, measure))


def _field(row: str, column: str, value: float | None, least: float, most: float, show: Show) -> Markup:
    if value is None:
        return element("td", "·", class_="none", title=f"{row}, {column}: none")
    kind = f"h{_strength(value, least, most)}"
    return element("td", show(value), class_=kind, title=f"{row}, {column}: {told(show, value)}")


def _strength(value: float, least: float, most: float) -> int:
    """By the logarithm: what takes ten times as long is so many steps stronger."""
    low, high = math.log1p(max(0.0, least)), math.log1p(max(0.0, most))
    part = (math.log1p(max(0.0, value)) - low) / (high - low) if high > low else 0.0
    return min(STRENGTHS - 1, int(part * STRENGTHS))


def _legend(least: float, most: float, show: Show, measure: str) -> Markup:
    if most <= least:
        return element("p", f"{measure}: {show(most)} in every field.", class_="scale")
    steps = joined(element("i", class_=f"swatch h{number}") for number in range(STRENGTHS))
    return element(
        "p", f"{measure}: ", element("b", show(least)), element("span", steps, class_="swatches"),
        element("b", show(most)), ". Each step of colour multiplies it by the same factor.", class_="scale",
    )  # fmt: skip
