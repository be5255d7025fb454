"""All rules together."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from relaymesh.pipeline.audit.balance_rules import balance_violations
from relaymesh.pipeline.audit.entry_rules import entry_violations
from relaymesh.pipeline.audit.lane_rules import lane_violations
from relaymesh.pipeline.audit.letter_rules import letter_violations
from relaymesh.pipeline.audit.result_rules import result_violations
from relaymesh.pipeline.audit.rules import RULES
from relaymesh.pipeline.audit.stream_rules import STREAM_RULES, stream_violations
from relaymesh.pipeline.audit.task_rules import task_violations
from relaymesh.pipeline.audit.timeline import timeline
from relaymesh.pipeline.schema.audit import AUDIT_SUMMARY, AUDIT_VIOLATIONS

UNREADABLE = "UNREADABLE_"
"""Operations of records that were set aside begin so."""

__all__ = ["audit_summary", "audit_violations"]


def audit_violations(bronze: DataFrame, messages: DataFrame, steps: DataFrame) -> DataFrame:
    """Finds where the journal breaks the promises; `messages` and `steps` must be made from all of
    `bronze`."""
    every = (
        entry_violations(timeline(bronze)),
        stream_violations(bronze),
        lane_violations(bronze, messages),
        letter_violations(bronze),
        balance_violations(bronze, messages),
        task_violations(bronze, steps),
        result_violations(bronze, steps),
    )
    found = reduce(DataFrame.unionByName, every)
    return _without_gaps(found, bronze).to(AUDIT_VIOLATIONS)


def _without_gaps(found: DataFrame, bronze: DataFrame) -> DataFrame:
    """Drop findings about a mailbox from which a record was set aside: they are only that record's gap.

    A record that names no mailbox may have been about any.
    """
    aside = (
        bronze.where(f.startswith("operation", f.lit(UNREADABLE)))
        .select(f.col("partition").alias("aside_partition"), f.col("mailbox").alias("aside_mailbox"))
        .distinct()
    )
    concerned = (
        (f.col("partition") == f.col("aside_partition"))
        & ~f.col("rule").isin(*STREAM_RULES)
        & (
            f.col("aside_mailbox").isNull()
            | f.col("mailbox").isNull()
            | (f.col("mailbox") == f.col("aside_mailbox"))
        )
    )
    return found.join(f.broadcast(aside), concerned, "left_anti")


def audit_summary(bronze: DataFrame, audit_violations: DataFrame) -> DataFrame:
    """One row per rule, broken or not: how many events it checked, and what it found."""
    listed = f.array(
        *[
            f.struct(
                f.lit(rule.name).alias("rule"),
                f.lit(rule.promise).alias("promise"),
                f.array(*[f.lit(name) for name in rule.operations]).cast("array<string>").alias("operations"),
            )
            for rule in RULES
        ]
    )
    rules = bronze.sparkSession.range(1).select(f.inline(listed))
    counts = bronze.groupBy("operation").agg(f.count("*").alias("events"))
    looks_at = (f.size("operations") == 0) | f.array_contains("operations", f.col("operation"))
    checked = (
        rules.join(f.broadcast(counts), looks_at, "left")
        .groupBy("rule", "promise")
        .agg(f.coalesce(f.sum("events"), f.lit(0)).alias("checked"))
    )
    found = audit_violations.groupBy("rule").agg(
        f.count("*").alias("violations"), f.min("sequence").alias("first_sequence")
    )
    return (
        checked.join(found, "rule", "left")
        .withColumn("violations", f.coalesce("violations", f.lit(0)))
        .withColumn("passed", f.col("violations") == 0)
        .to(AUDIT_SUMMARY)
    )
