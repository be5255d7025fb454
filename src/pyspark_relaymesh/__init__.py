"""Where Spark looks for the format `relaymesh`: packages called `pyspark_…` with a class `DefaultSource`."""

from relaymesh.pipeline.source.format import RelayMeshSource

__all__ = ["DefaultSource"]


class DefaultSource(RelayMeshSource):
    """`spark.read.format("relaymesh")`, without registering anything."""
