"""Which mailboxes may need splitting."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from relaymesh.pipeline.gold.formulas import ms_between, share
from relaymesh.pipeline.schema.gold import SPLIT_ADVICE

__all__ = ["SLA_MS", "split_advice"]

SLA_MS = 5_000.0
"""The target for p99 by default: the latency alert's threshold."""
BACKLOG_SHARE = 0.6
BACKLOG_MINUTES = 10
TRAFFIC_SHARE = 0.4

_MAILBOX = ["partition", "namespace", "mailbox"]


def split_advice(messages: DataFrame, backlog: DataFrame, sla_ms: float = SLA_MS) -> DataFrame:
    """Two of: backlog above 60 % of capacity for 10 minutes, p99 above 2 × SLA, above 40 % of all traffic."""
    total = Window.partitionBy(f.lit(0))
    latency = f.when(f.col("final_state") == "acked", ms_between("due_at", "settled_at"))
    traffic = (
        messages.groupBy(*_MAILBOX)
        .agg(f.count("*").alias("count"), f.percentile(latency, 0.99).alias("latency_p99_ms"))
        .withColumn("traffic_share", share(f.col("count"), f.sum("count").over(total)))
    )
    judged = (
        traffic.join(_stretches(backlog), _MAILBOX, "left")
        .na.fill(0, ["backlog_minutes"])
        .withColumn("sla_ms", f.lit(sla_ms))
        .withColumn("backlog_long", f.col("backlog_minutes") >= BACKLOG_MINUTES)
        .withColumn("latency_over", f.coalesce(f.col("latency_p99_ms") > 2 * f.col("sla_ms"), f.lit(False)))
        .withColumn("traffic_over", f.col("traffic_share") > TRAFFIC_SHARE)
    )
    met = sum(
        [f.col(name).cast("int") for name in ("latency_over", "traffic_over")],
        f.col("backlog_long").cast("int"),
    )
    return (
        judged.withColumn("conditions", met)
        .withColumn("split", f.col("conditions") >= 2)
        .withColumn("reasoning", _reasoning())
        .to(SPLIT_ADVICE)
    )


def _stretches(backlog: DataFrame) -> DataFrame:
    """The longest time above the mark. A minute without a row equals the end of the one before."""
    by_mailbox = Window.partitionBy(*_MAILBOX).orderBy("minute")
    until = f.coalesce(f.lead("minute").over(by_mailbox), f.col("minute") + f.expr("interval 1 minute"))
    above = f.coalesce(f.col("backlog") > BACKLOG_SHARE * f.col("capacity"), f.lit(False))
    marked = backlog.withColumn("until", until).withColumn("above", above)
    changed = (f.col("above") != f.lag("above", 1, False).over(by_mailbox)).cast("int")
    stretches = marked.withColumn("stretch", f.sum(changed).over(by_mailbox)).filter("above")
    minutes = f.sum(f.unix_seconds("until") - f.unix_seconds("minute")) / 60
    return (
        stretches.groupBy(*_MAILBOX, "stretch")
        .agg(minutes.cast("long").alias("minutes"))
        .groupBy(*_MAILBOX)
        .agg(f.max("minutes").alias("backlog_minutes"))
    )


def _reasoning() -> Column:
    return f.format_string(
        "backlog above 60 %% of capacity for %d min (10 count); p99 %s ms (SLA %.0f ms); %.1f %% of traffic",
        f.col("backlog_minutes"),
        f.coalesce(f.round("latency_p99_ms").cast("long").cast("string"), f.lit("unknown")),
        f.col("sla_ms"),
        f.col("traffic_share") * 100,
    )
