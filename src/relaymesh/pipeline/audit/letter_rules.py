"""A dead letter leaves once: it is redriven, or purged."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from relaymesh.pipeline.silver.operations import is_one
from relaymesh.pipeline.silver.routes import known_from

__all__ = ["letter_violations"]


def letter_violations(bronze: DataFrame) -> DataFrame:
    """Redrives of missing or already redriven letters, and purges of missing letters."""
    events = bronze.filter(is_one("DEAD_LETTER", "REDRIVE", "PURGE")).select(
        "partition",
        f.when(is_one("REDRIVE"), f.col("source_mailbox")).otherwise(f.col("mailbox")).alias("mailbox"),
        f.when(is_one("DEAD_LETTER"), f.col("sequence")).otherwise(f.col("dead_sequence")).alias("letter"),
        f.when(is_one("REDRIVE"), f.col("message_sequence")).alias("message_sequence"),
        "message_id",
        "sequence",
        "timestamp",
        "operation",
    )
    before = (
        Window.partitionBy("partition", "mailbox", "letter")
        .orderBy("sequence")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    died, redriven, purged = (
        f.count_if(is_one(name)).over(before) for name in ("DEAD_LETTER", "REDRIVE", "PURGE")
    )
    why = (
        f.when(f.col("died") == 0, "it never died there")
        .when(f.col("purged") > 0, "it was purged before")
        .when(is_one("REDRIVE") & (f.col("redriven") > 0), "it was redriven before")
    )
    return (
        events.withColumns({"died": died, "redriven": redriven, "purged": purged})
        .filter(is_one("REDRIVE", "PURGE"))
        .join(f.broadcast(known_from(bronze)), "partition")
        .filter(f.col("letter") >= f.col("known_from"))
        .withColumn("why", why)
        .filter(f.col("why").isNotNull())
        .withColumn("rule", f.lit("redrive"))
        .withColumn("detail", f.format_string("%s of dead letter %d: %s", "operation", "letter", "why"))
        .select(
            "rule",
            "partition",
            "mailbox",
            "message_sequence",
            "message_id",
            "sequence",
            "timestamp",
            "detail",
        )
    )
