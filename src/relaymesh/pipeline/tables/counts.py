"""Counts of the files of a table: rows, nulls, and different keys.

Rows and nulls stand in the footers of Parquet files. Keys have to be read; where that is not too much for one
process it is done here, in a fraction of the time that a job of Spark takes to start.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Counts", "count_files", "count_rows"]

ROWS_MAX = 10_000_000
"""Keys of so many rows are compared here: about a gigabyte."""


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    rows: int
    nulls: dict[str, int]
    """By column."""
    keys: int | None
    """Different ones; None where no keys were asked for."""


def count_files(files: Sequence[Path], columns: Sequence[str], keys: Sequence[str]) -> Counts | None:
    """Rows, nulls of `columns`, and different `keys`; None if this cannot be counted here."""
    import pyarrow.parquet as pq  # type: ignore[import-untyped] # noqa: PLC0415 - `pipeline status` needs neither

    nulls = dict.fromkeys(columns, 0)
    rows = 0
    for path in files:
        footer = pq.read_metadata(path)
        rows += footer.num_rows
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            for index in range(group.num_columns):
                column = group.column(index)
                if column.path_in_schema not in nulls:
                    continue
                if column.statistics is None or not column.statistics.has_null_count:
                    return None
                nulls[column.path_in_schema] += column.statistics.null_count
    if not keys:
        return Counts(rows=rows, nulls=nulls, keys=None)
    if rows > ROWS_MAX:
        return None
    return Counts(rows=rows, nulls=nulls, keys=_different(files, keys) if rows else 0)


def _different(files: Sequence[Path], keys: Sequence[str]) -> int:
    import pyarrow.parquet as pq  # noqa: PLC0415

    read = pq.ParquetDataset(list(files), partitioning=None).read(list(keys))
    different: int = read.group_by(list(keys)).aggregate([]).num_rows
    return different


def count_rows(df: DataFrame, columns: Sequence[str], keys: Sequence[str]) -> Counts:
    """The same by Spark, of any DataFrame."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    counts = [f.count("*").alias("rows")]
    counts += [f.count_if(f.col(name).isNull()).alias(f"null_{name}") for name in columns]
    if keys:
        counts.append(f.count_distinct(f.struct(*keys)).alias("keys"))
    [seen] = df.agg(*counts).collect()
    nulls = {name: seen[f"null_{name}"] for name in columns}
    return Counts(rows=seen["rows"], nulls=nulls, keys=seen["keys"] if keys else None)
