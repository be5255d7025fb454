"""Columns of a batch of rows. Most of them are mostly empty.

A record fills a run of rows: with one value for all of them, or with one each. For each record only the run
and its values are kept; the rows between are null. So the cost of a batch depends on its records, not on its
rows times its columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

__all__ = ["Cells", "Runs", "spread"]

_Ints = np.ndarray[Any, np.dtype[np.int64]]


class Runs:
    """A column whose values each cover a run of rows."""

    __slots__ = ("_counts", "_starts", "_values")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._counts: list[int] = []
        self._values: list[Any] = []

    def put(self, start: int, count: int, value: Any) -> None:
        self._starts.append(start)
        self._counts.append(count)
        self._values.append(value)

    def numbers(self) -> _Ints:
        """The column of a number that every row has."""
        return np.repeat(np.array(self._values, np.int64), self._counts)

    def array(self, rows: int, kind: pa.DataType) -> pa.Array:
        if not self._values:
            return pa.nulls(rows, kind)
        values = pa.array(self._values, kind)
        counts = np.array(self._counts, np.int64)
        positions = _positions(self._starts, counts)
        return spread(values, rows, positions, np.repeat(np.arange(len(counts)), counts))


class Cells:
    """A column with a value of its own for each row that has one."""

    __slots__ = ("_counts", "_starts", "values")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._counts: list[int] = []
        self.values: list[Any] = []

    def put(self, start: int, values: Sequence[Any]) -> None:
        self._starts.append(start)
        self._counts.append(len(values))
        self.values.extend(values)

    def positions(self) -> _Ints:
        """The rows that have a value, in the order of `values`."""
        return _positions(self._starts, np.array(self._counts, np.int64))

    def array(self, rows: int, kind: pa.DataType) -> pa.Array:
        if not self.values:
            return pa.nulls(rows, kind)
        return spread(pa.array(self.values, kind), rows, self.positions())


def spread(values: pa.Array, rows: int, positions: _Ints, which: _Ints | None = None) -> pa.Array:
    """A column of `rows`: `values[which[i]]` (or `values[i]`) at `positions[i]`, elsewhere null."""
    if len(positions) == rows and which is None:
        return values  # every row has one, and records come in the order of their rows
    if values.null_count == len(values):
        return pa.nulls(rows, values.type)
    index = np.full(rows, -1, np.int64)
    index[positions] = np.arange(len(positions)) if which is None else which
    return values.take(pa.array(index, mask=index < 0))


def _positions(starts: list[int], counts: _Ints) -> _Ints:
    ends = np.cumsum(counts)
    shift = np.array(starts, np.int64) - (ends - counts)
    return np.repeat(shift, counts) + np.arange(int(ends[-1]) if len(ends) else 0)
