"""How many messages waited in each mailbox, minute by minute."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from relaymesh.pipeline.gold.formulas import recurrence, share
from relaymesh.pipeline.schema.gold import BACKLOG

__all__ = ["backlog", "flows"]

_MAILBOX = ["partition", "namespace", "mailbox"]


def backlog(messages: DataFrame, agents: DataFrame) -> DataFrame:
    """B(t+1) = max(0, B(t) + I(t) - C(t)) second by second, told per minute.

    Every message in a mailbox counts, including delayed and leased ones, as it does for the capacity.
    """
    seconds = recurrence(flows(messages), _MAILBOX, "second")
    minutes = (
        seconds.groupBy(*_MAILBOX, f.date_trunc("minute", "second").alias("minute"))
        .agg(
            f.sum("arrivals").alias("arrivals"),
            f.sum("completions").alias("completions"),
            f.max_by("backlog", "second").alias("backlog"),
            f.max("backlog").alias("backlog_peak"),
        )
        .withColumn("day", f.to_date("minute"))
    )
    capacities = agents.select("partition", f.col("address").alias("mailbox"), "capacity")
    return (
        minutes.join(capacities, ["partition", "mailbox"], "left")
        .withColumn("used_share", share(f.col("backlog_peak"), f.col("capacity")))
        .to(BACKLOG)
    )


def flows(messages: DataFrame) -> DataFrame:
    """(mailbox, second, arrivals, completions) for every second in which something came or went."""
    came = messages.select(*_MAILBOX, _second("accepted_at"), f.lit(1).alias("i"), f.lit(0).alias("c"))
    went = messages.filter(f.col("settled_at").isNotNull()).select(
        *_MAILBOX, _second("settled_at"), f.lit(0).alias("i"), f.lit(1).alias("c")
    )
    return (
        came.union(went)
        .groupBy(*_MAILBOX, "second")
        .agg(f.sum("i").alias("arrivals"), f.sum("c").alias("completions"))
    )


def _second(time: str) -> Column:
    return f.date_trunc("second", time).alias("second")
