"""Heat: a table of figures, the stronger the larger. Each field has its figure: nothing hangs on colour."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from relaymesh.pipeline.report.charts.svg import WIDTH, element, picture, shortened, text
from relaymesh.pipeline.report.shown import Show

__all__ = ["heat"]

LABEL_WIDTH, ROW, HEAD = 150, 30, 28


def heat(
    name: str,
    down: Sequence[str],
    across: Sequence[str],
    values: Mapping[tuple[str, str], float],
    show: Show,
) -> Markup:
    """A field for each of `down` and `across`; one without a value stays empty."""
    width = (WIDTH - LABEL_WIDTH) / max(1, len(across))
    largest = max(values.values(), default=0)
    parts = [
        text(LABEL_WIDTH + width * (place + 0.5), 18, label, anchor="middle", class_="tick")
        for place, label in enumerate(across)
    ]
    for row, label in enumerate(down):
        y = HEAD + ROW * row
        parts.append(text(LABEL_WIDTH - 10, y + 19, shortened(label, 21), anchor="end"))
        for place, other in enumerate(across):
            value = values.get((label, other))
            if value is None:
                continue
            strength = math.log1p(max(0.0, value)) / math.log1p(largest) if largest > 0 else 0.0
            x = LABEL_WIDTH + width * place
            title = element("title", f"{label}, {other}: {show(value)}")
            parts.append(
                element("rect", title, x=x + 1, y=y + 1, width=width - 2, height=ROW - 2, rx=3, class_="heat",
                        fill_opacity=round(0.08 + 0.62 * strength, 2))
            )  # fmt: skip
            parts.append(text(x + width / 2, y + 19, show(value), anchor="middle", class_="inside"))
    return picture(HEAD + ROW * len(down) + 4, name, *parts)
