"""How long messages take, by receiver and priority."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from relaymesh.pipeline.gold.formulas import ms_between
from relaymesh.pipeline.schema.gold import LATENCY

__all__ = ["latency"]

_ACCURACY = 10_000
"""percentile_approx is off by at most 1 in so many ranks."""


def latency(messages: DataFrame) -> DataFrame:
    """Percentiles of the wait (due to first delivered) and of the latency (due to acked).

    A delayed message's delay does not count: it is due when it was meant to come.
    """
    timed = messages.withColumn("wait", ms_between("due_at", "first_delivered_at")).withColumn(
        "latency", f.when(f.col("final_state") == "acked", ms_between("due_at", "settled_at"))
    )
    return (
        timed.groupBy("partition", "namespace", "mailbox", "priority", f.col("accepted_date").alias("day"))
        .agg(
            f.count("latency").alias("acked"),
            f.count("wait").alias("delivered"),
            *[_percentile("wait", p) for p in (50, 95, 99)],
            *[_percentile("latency", p) for p in (50, 95, 99)],
            f.max("latency").alias("latency_max_ms"),
        )
        .to(LATENCY)
    )


def _percentile(column: str, percent: int) -> Column:
    return (
        f.percentile_approx(column, percent / 100, _ACCURACY).cast("double").alias(f"{column}_p{percent}_ms")
    )
