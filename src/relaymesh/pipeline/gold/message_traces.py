"""One row per trace: how long a conversation took, through how many hands, and how it ended."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from relaymesh.pipeline.gold.formulas import ms_between
from relaymesh.pipeline.schema.gold import MESSAGE_TRACES

__all__ = ["message_traces"]


def message_traces(traces: DataFrame) -> DataFrame:
    pending = f.count_if(f.col("final_state") == "pending")
    return (
        traces.groupBy("partition", "trace_id")
        .agg(
            f.min("accepted_at").alias("started_at"),
            f.when(pending == 0, f.max("settled_at")).alias("ended_at"),
            f.count("*").alias("messages"),
            f.count_distinct("mailbox").alias("mailboxes"),
            f.sum("attempts").alias("attempts"),
            f.count_if(f.col("final_state") == "dead").alias("dead"),
            pending.alias("pending"),
            f.sum("cost_usd").alias("cost_usd"),
        )
        .withColumn("day", f.to_date("started_at"))
        .withColumn("duration_ms", ms_between("started_at", "ended_at"))
        .to(MESSAGE_TRACES)
    )
