"""What went through each mailbox, minute by minute."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from relaymesh.pipeline.schema.gold import THROUGHPUT

__all__ = ["throughput"]

_MAILBOX = ["partition", "namespace", "mailbox"]
_SUMS = ("accepted", "accepted_bytes", "delivered", "acked", "retried", "dropped", "dead")


def throughput(messages: DataFrame, attempts: DataFrame) -> DataFrame:
    """Counts per mailbox and minute in which each thing happened; minutes without any have no row."""
    accepted = _counted(messages, "accepted_at", accepted=f.count("*"), accepted_bytes=f.sum("content_bytes"))
    settled = _counted(
        messages.filter(f.col("settled_at").isNotNull()),
        "settled_at",
        **{state: f.count_if(f.col("final_state") == state) for state in ("acked", "dropped", "dead")},
    )
    delivered = _counted(attempts, "granted_at", delivered=f.count("*"))
    again = attempts.filter(f.col("outcome").isin("nack", "lease_expired", "reclaimed"))
    retried = _counted(again, "ended_at", retried=f.count("*"))
    every = reduce(
        lambda left, right: left.unionByName(right, allowMissingColumns=True),
        (accepted, settled, delivered, retried),
    )
    return (
        every.groupBy(*_MAILBOX, "minute")
        .agg(*[f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in _SUMS])
        .withColumn("day", f.to_date("minute"))
        .to(THROUGHPUT)
    )


def _counted(rows: DataFrame, time: str, **counts: Column) -> DataFrame:
    minute = f.date_trunc("minute", time).alias("minute")
    return rows.groupBy(*_MAILBOX, minute).agg(*[count.alias(name) for name, count in counts.items()])
