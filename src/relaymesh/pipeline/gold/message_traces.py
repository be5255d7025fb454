"""One row per trace: how long a conversation took, through how many hands, and how it ended."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from relaymesh.pipeline.gold.formulas import ms_between
from relaymesh.pipeline.schema.gold import MESSAGE_TRACES

__all__ = ["message_traces"]


def message_traces(traces: DataFrame) -> DataFrame:
    """By mailbox first, then by trace: the mailboxes are counted without a second shuffle."""
    state = f.col("final_state")
    trace = ["partition", "trace_id"]
    in_mailboxes = (
        traces.repartition(*trace)
        .groupBy(*trace, "mailbox")
        .agg(
            f.min("accepted_at").alias("started_at"),
            f.max("settled_at").alias("ended_at"),
            f.count("*").alias("messages"),
            f.sum("attempts").alias("attempts"),
            f.count_if(state == "dead").alias("dead"),
            f.count_if(state == "pending").alias("pending"),
            f.sum("cost_usd").alias("cost_usd"),
        )
    )
    return (
        in_mailboxes.groupBy(*trace)
        .agg(
            f.min("started_at").alias("started_at"),
            f.when(f.sum("pending") == 0, f.max("ended_at")).alias("ended_at"),
            f.count("mailbox").alias("mailboxes"),
            *[f.sum(name).alias(name) for name in ("messages", "attempts", "dead", "pending", "cost_usd")],
        )
        .withColumn("day", f.to_date("started_at"))
        .withColumn("duration_ms", ms_between("started_at", "ended_at"))
        .to(MESSAGE_TRACES)
    )
