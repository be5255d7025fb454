"""The daily report on dead letters, by cause."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from relaymesh.pipeline.schema.gold import DEAD_LETTERS_DAILY

__all__ = ["dead_letters_daily"]


def dead_letters_daily(dead_letters: DataFrame) -> DataFrame:
    """One row per mailbox, day, reason and class of error, with the first letter as the example."""
    first = f.min(f.struct("dead_sequence", "message_id", "error"))
    return (
        dead_letters.groupBy(
            "partition", "namespace", "mailbox", f.col("dead_date").alias("day"), "reason", "code"
        )
        .agg(
            f.count("*").alias("letters"),
            *[f.count_if(f.col("status") == name).alias(name) for name in ("pending", "redriven", "purged")],
            f.count_if(f.coalesce("alert", f.lit(False))).alias("alerts"),
            f.min("dead_at").alias("first_seen"),
            f.max("dead_at").alias("last_seen"),
            first.alias("first"),
        )
        .withColumn("example_id", f.col("first.message_id"))
        .withColumn("example_sequence", f.col("first.dead_sequence"))
        .withColumn("example_error", f.col("first.error"))
        .to(DEAD_LETTERS_DAILY)
    )
