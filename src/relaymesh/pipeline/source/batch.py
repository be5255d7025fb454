"""Reading once: everything between the options' bounds that is synced when the query is planned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from relaymesh.pipeline.source.options import SourceOptions
from relaymesh.pipeline.source.plan import Piece, plan, whole_range
from relaymesh.pipeline.source.reading import read_piece

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

__all__ = ["BatchReader"]


class BatchReader(DataSourceReader):
    """`partitions` runs on the driver, `read` on executors.

    There is no filter pushdown: Spark shares a reader between the queries of one `load()`, so a pushed-down
    filter of one query would apply to all. Use the options instead.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        options = self._options
        ranges = [(each, *whole_range(each, options)) for each in options.directories]
        if options.tasks is not None:
            limit = options.through + 1
            events = sum(max(0, min(end.sequence, limit) - start.sequence) for _, start, end in ranges)
            options = replace(options, rows=max(1, -(-events // options.tasks)))
        return [piece for each, start, end in ranges for piece in plan(each, options, start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Piece):  # else nothing was planned, and Spark makes up an empty one
            yield from read_piece(partition, self._options)
