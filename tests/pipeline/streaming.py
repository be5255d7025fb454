"""Running a stream to its end on a machine that may be busy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

TRIES = 5


def run_to_its_end(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start and await; again from the checkpoint when Python took more than 10 s to come up.

    Spark gives the process of a streaming source so long to connect, and no setting changes that.
    """
    for left in reversed(range(TRIES)):
        query = start()
        try:
            assert query.awaitTermination(300)
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error) or not left:
                raise
        else:
            return query
    raise AssertionError("the last try raises or returns")
