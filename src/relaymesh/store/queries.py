"""The statements of `sql/queries.sql`, by name, and statements over many rows at once.

A statement with one VALUES list of many rows crosses from Python into SQLite once for all of them.
That is what makes a projected row cheap, and above all it is what keeps the projector moving beside
a busy Python thread: each crossing gives up the interpreter and may wait a whole switch interval
to get it back.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources

import apsw

CHUNKS = (500, 100, 20, 5, 1)
"""Rows of one statement, largest first; what is left over goes into smaller ones. Fixed sizes, so that
each statement is prepared once."""

KEPT_BYTES_MAX = 16_383
"""apsw keeps no longer statement prepared; sizes that would lead to one are left out."""

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def _read(name: str) -> str:
    return (resources.files("relaymesh.store") / "sql" / name).read_text(encoding="utf-8")


def _named() -> dict[str, str]:
    parts = _NAME.split(_read("queries.sql"))
    return {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}


QUERIES = _named()


class ManyRows:
    """A statement whose `{rows}` is a VALUES list of `width` columns, run over a flat list of values."""

    __slots__ = ("_texts", "width")

    def __init__(self, name: str, width: int) -> None:
        self.width = width
        row = "(" + ",".join("?" * width) + ")"
        texts = [(size, QUERIES[name].replace("{rows}", ",".join([row] * size))) for size in CHUNKS]
        self._texts = [(size, text) for size, text in texts if len(text) <= KEPT_BYTES_MAX]

    def run(
        self, connection: apsw.Connection, values: Sequence[object], common: tuple[object, ...] = ()
    ) -> None:
        """Row after row, in as few statements as the chunk sizes allow; `common` is bound before each."""
        start, width = 0, self.width
        left = len(values) // width
        for size, text in self._texts:
            while left >= size:
                end = start + size * width
                connection.execute(text, (*common, *values[start:end]))
                start, left = end, left - size
