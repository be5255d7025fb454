"""What tasks cost, by agent and day, where holders report their usage."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from relaymesh.pipeline.schema.gold import TASK_COST

__all__ = ["task_cost"]


def task_cost(step_attempts: DataFrame) -> DataFrame:
    """A report is the running total of its attempt: the last one counts, on the day on which it came."""
    return (
        step_attempts.filter(f.col("usage_at").isNotNull())
        .groupBy(
            "partition",
            "namespace",
            "workflow",
            "task_id",
            f.col("mailbox").alias("agent"),
            f.to_date("usage_at").alias("day"),
        )
        .agg(
            f.count("*").alias("attempts"),
            f.sum("cost_micros").alias("cost_micros"),
            f.sum("tokens").alias("tokens"),
        )
        .withColumn("cost_usd", f.col("cost_micros") / 1e6)
        .to(TASK_COST)
    )
