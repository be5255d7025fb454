"""How long messages take, by receiver and priority."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from relaymesh.pipeline.gold.formulas import ms_between
from relaymesh.pipeline.schema.gold import LATENCY

__all__ = ["latency"]

_TIMES = ("wait", "latency")
_PERCENTS = (50, 95, 99)
_ACCURACY = 10_000
"""percentile_approx is off by at most 1 in so many ranks."""


def latency(messages: DataFrame) -> DataFrame:
    """Percentiles of the wait (due to first delivered) and of the latency (due to acked).

    A delayed message's delay does not count: it is due when it was meant to come.
    """
    timed = messages.withColumn("wait", ms_between("due_at", "first_delivered_at")).withColumn(
        "latency", f.when(f.col("final_state") == "acked", ms_between("due_at", "settled_at"))
    )
    summed = timed.groupBy(
        "partition", "namespace", "mailbox", "priority", f.col("accepted_date").alias("day")
    ).agg(
        f.count("latency").alias("acked"),
        f.count("wait").alias("delivered"),
        # one sketch tells all percentiles of a column
        *[f.percentile_approx(name, [p / 100 for p in _PERCENTS], _ACCURACY).alias(name) for name in _TIMES],
        f.max("latency").alias("latency_max_ms"),
    )
    each = {
        f"{name}_p{percent}_ms": f.col(name)[index].cast("double")
        for name in _TIMES
        for index, percent in enumerate(_PERCENTS)
    }
    return summed.withColumns(each).to(LATENCY)
