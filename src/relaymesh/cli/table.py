"""Tables for people: columns as wide as they need, and no wider than the terminal.

In a pipe nothing is cut. On a terminal that is too narrow, long ids keep the part that tells them apart, and
the text columns give way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from rich.cells import cell_len, set_cell_size

from relaymesh.kernel.address import DEFAULT_NAMESPACE
from relaymesh.printable import printable
from relaymesh.wire.ids import uuid7_ms

ID_SHOWN_MAX = 20
GAP = "  "
TEXT_WIDTH_MIN = 8
ROWS_AT_ONCE = 200

Kind = Literal["plain", "number", "id", "text"]


@dataclass(frozen=True, slots=True)
class Column:
    """`name` is the field's name in `--json`; `show` makes the cell of its value.

    `title` is a shorter heading, where the name would cost the room of the values.
    """

    name: str
    kind: Kind = "plain"
    show: Callable[[Any], str] | None = None
    title: str = ""

    @property
    def heading(self) -> str:
        return (self.title or self.name).upper()

    def cell(self, value: Any) -> str:
        return printable(self.show(value) if self.show is not None and value is not None else plain(value))


def plain(value: Any) -> str:
    """A value as people read it."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "-"
    return str(value)


def short_address(address: str) -> str:
    """`coder` for `default/coder`, as it is also written; other namespaces are shown."""
    return address.removeprefix(f"{DEFAULT_NAMESPACE}/")


def short_id(id: str) -> str:
    """The unique part of a long id; commands that take an id accept it.

    Of a UUIDv7 the middle: the low bits of its time, its counter and some of its random bits. The beginning
    is the same for minutes, and the end is the same for ids made in one millisecond.
    """
    if len(id) <= ID_SHOWN_MAX:
        return id
    if uuid7_ms(id) is not None:
        return f"…{id[9:23]}…"
    return f"{id[:7]}…{id[-8:]}"


def table_lines(
    columns: Sequence[Column], rows: Iterable[Mapping[str, Any]], width: int | None
) -> Iterator[str]:
    """The header and a line for each row. Rows are drawn as they are needed, so a stream stays one."""
    source = iter(rows)
    widths = [0] * len(columns)
    first = True
    while chunk := list(islice(source, ROWS_AT_ONCE)):
        cells = [[column.cell(row.get(column.name)) for column in columns] for row in chunk]
        widths = _widths(columns, cells, widths, width)
        if first:
            yield _line(columns, [column.heading for column in columns], widths)
            first = False
        for line in cells:
            yield _line(columns, line, widths)


def _widths(
    columns: Sequence[Column], cells: list[list[str]], before: Sequence[int], width: int | None
) -> list[int]:
    """How wide each column is; ids in `cells` are shortened when it is too narrow for them."""
    widths = _natural(columns, cells, before)
    if width is None or _total(widths) <= width:
        return widths
    for i, column in enumerate(columns):
        if column.kind == "id":
            for line in cells:
                line[i] = short_id(line[i])
    widths = _natural(columns, cells, [0] * len(columns))
    for i in reversed(range(len(columns))):
        over = _total(widths) - width
        if over > 0 and columns[i].kind == "text":
            widths[i] = max(min(TEXT_WIDTH_MIN, widths[i]), widths[i] - over)
    return widths


def _natural(columns: Sequence[Column], cells: list[list[str]], before: Sequence[int]) -> list[int]:
    return [
        max(before[i], len(column.heading), *(cell_len(line[i]) for line in cells))
        for i, column in enumerate(columns)
    ]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _line(columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int]) -> str:
    parts = []
    for column, cell, width in zip(columns, cells, widths, strict=True):
        if cell_len(cell) > width:
            parts.append(set_cell_size(cell, width - 1) + "…")
        elif column.kind == "number":
            parts.append(" " * (width - cell_len(cell)) + cell)
        else:
            parts.append(set_cell_size(cell, width))
    return GAP.join(parts).rstrip()
