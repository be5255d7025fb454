"""Spark's settings on one machine, by the amount of work.

Few events: nearly all the time goes into starting, planning and compiling, so little is compiled and the work
is not distributed. Many events: compiling pays, and memory keeps sorts off the disk. A cluster has its own
settings, and uses none of these.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from relaymesh.node.disk import RealDisk
from relaymesh.pipeline.source.offsets import latest

__all__ = ["FEW", "events_in", "session_settings"]

FEW = 200_000
"""Up to this many events, compiling a query costs more than it saves."""
SOME = 5_000_000
"""Up to this many events, Java's second, better compiler costs more than it saves."""

_ONE_COMPILER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=160m"
"""One compiler has 48 MB for its code by default. The plans of all tables need more."""
_FEW = {
    "spark.driver.extraJavaOptions": f"{_ONE_COMPILER} -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.shuffle.compress": "false",
}
_MANY = {
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    # A join whose parts fit into memory needs no sort.
    "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold": "64m",
    # Files of bronze have row groups by operation: a filter with many names still skips the others.
    "spark.sql.parquet.pushdown.inFilterThreshold": "30",
    # Both sides of these joins have about the same size: a runtime filter would cost a scan and drop nothing.
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
    # Percentiles of more than 128 groups would be gathered by sorting all rows; a sketch has some kilobytes.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "4096",
}
_SOME = {
    **_MANY,
    "spark.driver.extraJavaOptions": f"{_ONE_COMPILER} -XX:+UseParallelGC",
    "spark.sql.shuffle.partitions": "4",
    "spark.shuffle.compress": "false",
}
_GIB = 1 << 30


def session_settings(events: int, master: str | None) -> dict[str, str]:
    """For a session on this machine; nothing for one elsewhere, or that spark-submit has started."""
    if "PYSPARK_GATEWAY_PORT" in os.environ or not (master or "local").startswith("local"):
        return {}
    if events <= FEW:
        return dict(_FEW)
    return {**(_SOME if events <= SOME else _MANY), "spark.driver.memory": f"{_heap_gib()}g"}


def events_in(directories: Iterable[Path]) -> int:
    """About how many events the journals have had, from their marks only."""
    return sum(latest(RealDisk(each)).sequence for each in directories)


def _heap_gib() -> int:
    """A quarter of the memory, from 1 to 8 GiB."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 1
    return max(1, min(8, memory // 4 // _GIB))
