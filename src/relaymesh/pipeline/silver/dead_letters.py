"""One row per dead letter, and what became of it."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from relaymesh.pipeline.schema.silver import DEAD_LETTERS
from relaymesh.pipeline.silver.operations import KEY, is_one, namespace

__all__ = ["dead_letters"]

_LETTER = ["partition", "mailbox", "dead_sequence"]
_OF_THE_MESSAGE = ("accepted_at", "message_id", "sender", "type", "topic", "attempts")


def dead_letters(bronze: DataFrame, messages: DataFrame) -> DataFrame:
    """Every letter `bronze` buries. A redriven one stays redriven when it is purged later."""
    buried = bronze.filter(is_one("DEAD_LETTER")).select(
        *KEY,
        namespace().alias("namespace"),
        f.col("sequence").alias("dead_sequence"),
        f.col("event_date").alias("dead_date"),
        f.col("timestamp").alias("dead_at"),
        "reason",
        f.coalesce("code", "reason").alias("code"),
        "error",
        "alert",
    )
    redriven = bronze.filter(is_one("REDRIVE")).select(
        "partition",
        f.col("source_mailbox").alias("mailbox"),
        "dead_sequence",
        f.col("timestamp").alias("redriven_at"),
        f.col("mailbox").alias("redriven_to"),
        f.col("sequence").alias("redriven_sequence"),
    )
    purged = bronze.filter(is_one("PURGE")).groupBy(*_LETTER).agg(f.min("timestamp").alias("purged_at"))
    status = f.when(f.col("redriven_at").isNotNull(), "redriven").when(
        f.col("purged_at").isNotNull(), "purged"
    )
    return (
        buried.join(messages.select(*KEY, *_OF_THE_MESSAGE), [*KEY], "left")
        .join(redriven.dropDuplicates(_LETTER), _LETTER, "left")
        .join(purged, _LETTER, "left")
        .withColumn("status", status.otherwise("pending"))
        .withColumn("resolved_at", f.coalesce("redriven_at", "purged_at"))
        .to(DEAD_LETTERS)
    )
