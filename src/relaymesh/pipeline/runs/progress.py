"""The progress of a stream that Spark reports, kept for the run's record."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Progress", "listening"]

_KEPT = 100
_LAST_WORD_S = 5.0


class Progress(StreamingQueryListener):
    """The last batches of one stream, and whether it has ended. Spark calls it in a thread of its own."""

    def __init__(self) -> None:
        self.batches: list[dict[str, Any]] = []
        self.ended = threading.Event()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing to keep: the record has the start."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing to keep."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        told = event.progress
        self.batches.append(
            {
                "batch": told.batchId,
                "rows": told.numInputRows,
                "rows_per_s": round(told.processedRowsPerSecond, 1),
                "ms": dict(told.durationMs),
            }
        )
        del self.batches[:-_KEPT]

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: ARG002, N802
        """The stream has ended and sends no more events."""
        self.ended.set()


@contextmanager
def listening(spark: SparkSession) -> Iterator[Progress]:
    """Listen to the streams that are started inside; waits for the last event of one that has ended."""
    progress = Progress()
    spark.streams.addListener(progress)
    try:
        yield progress
        progress.ended.wait(_LAST_WORD_S)
    finally:
        spark.streams.removeListener(progress)
