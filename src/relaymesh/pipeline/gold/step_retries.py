"""How often attempts at steps fail or are abandoned, by agent and day."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from relaymesh.pipeline.gold.formulas import share
from relaymesh.pipeline.schema.gold import STEP_RETRIES
from relaymesh.pipeline.silver.steps import ABANDONING

__all__ = ["step_retries"]


def step_retries(step_attempts: DataFrame) -> DataFrame:
    """By the day of the grant. A lease that is still out is no attempt yet."""
    outcome, over = f.col("outcome"), f.col("ended_at").isNotNull()
    lost = outcome.isin("nack", "dead", *ABANDONING)
    return (
        step_attempts.groupBy(
            "partition", f.col("mailbox").alias("agent"), f.col("granted_date").alias("day")
        )
        .agg(
            f.count_distinct("task_id", "step").alias("steps"),
            f.count_if(over & f.col("burned")).alias("attempts"),
            f.count_if(outcome == "nack").alias("failed"),
            f.count_if(outcome.isin(*ABANDONING)).alias("abandoned"),
            f.count_if(outcome == "dead").alias("dead"),
            f.count_if(~f.col("burned")).alias("given_back"),
            f.coalesce(f.sum("held_ms"), f.lit(0)).alias("held_ms"),
            f.coalesce(f.sum(f.when(lost, f.col("held_ms"))), f.lit(0)).alias("lost_ms"),
        )
        .withColumn("namespace", f.substring_index("agent", "/", 1))
        .withColumn("failed_share", share(f.col("failed"), f.col("attempts")))
        .withColumn("abandoned_share", share(f.col("abandoned"), f.col("attempts")))
        .to(STEP_RETRIES)
    )
