"""The format itself: what Spark finds under the name `relaymesh`."""

# ruff: noqa: N802 - Spark calls these methods by its own names

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from relaymesh.errors import InvalidSettings
from relaymesh.pipeline.source.batch import BatchReader
from relaymesh.pipeline.source.options import SourceOptions
from relaymesh.pipeline.source.reading import schema_of
from relaymesh.pipeline.source.stream import StreamReader

if TYPE_CHECKING:
    from relaymesh.pipeline.source.writer import BatchWriter, StreamWriter

__all__ = ["RelayMeshSource"]


class RelayMeshSource(DataSource):
    """`spark.read.format("relaymesh").load("<data directory>")`, `readStream`, `write` and `writeStream`."""

    @classmethod
    def name(cls) -> str:
        return "relaymesh"

    def schema(self) -> StructType:
        return schema_of(SourceOptions.parse(self.options))

    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(self._parsed(schema))

    def streamReader(self, schema: StructType) -> StreamReader:
        return StreamReader(self._parsed(schema))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        from relaymesh.pipeline.source.writer import BatchWriter, WriterOptions  # noqa: PLC0415 - as below

        return BatchWriter(WriterOptions.parse(self.options, schema, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        # Spark starts a process for each step of a read, so a reader does not import what only a writer needs
        from relaymesh.pipeline.source.writer import StreamWriter, WriterOptions  # noqa: PLC0415

        return StreamWriter(WriterOptions.parse(self.options, schema, overwrite=overwrite))

    def _parsed(self, schema: StructType) -> SourceOptions:
        options = SourceOptions.parse(self.options)
        if schema != schema_of(options):
            raise InvalidSettings(
                "the format relaymesh has its own schema", hint="leave out .schema(…), and select columns"
            )
        return options
