"""All rules together."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from relaymesh.pipeline.audit.balance_rules import balance_violations
from relaymesh.pipeline.audit.entry_rules import entry_violations
from relaymesh.pipeline.audit.lane_rules import lane_violations
from relaymesh.pipeline.audit.letter_rules import letter_violations
from relaymesh.pipeline.audit.rules import RULES
from relaymesh.pipeline.audit.stream_rules import stream_violations
from relaymesh.pipeline.audit.timeline import timeline
from relaymesh.pipeline.schema.audit import AUDIT_SUMMARY, AUDIT_VIOLATIONS

__all__ = ["audit_summary", "audit_violations"]


def audit_violations(bronze: DataFrame, messages: DataFrame) -> DataFrame:
    """Where the journal contradicts the promises; `messages` must be of all of `bronze`."""
    every = (
        entry_violations(timeline(bronze)),
        stream_violations(bronze),
        lane_violations(bronze, messages),
        letter_violations(bronze),
        balance_violations(bronze, messages),
    )
    return reduce(DataFrame.unionByName, every).to(AUDIT_VIOLATIONS)


def audit_summary(bronze: DataFrame, audit_violations: DataFrame) -> DataFrame:
    """One row per rule, also for those that nothing broke: what was looked at, and what was found."""
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
