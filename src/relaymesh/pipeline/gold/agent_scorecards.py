"""How each agent does, as sender and as receiver."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from relaymesh.pipeline.gold.cost import once
from relaymesh.pipeline.gold.formulas import share
from relaymesh.pipeline.schema.gold import AGENT_SCORECARDS

__all__ = ["agent_scorecards"]

_ADDRESS = ["partition", "address"]
_COUNTS = (
    "received",
    "acked",
    "dead",
    "dropped",
    "pending",
    "first_time",
    "attempts",
    "failures",
    "silences",
)


def agent_scorecards(messages: DataFrame, attempts: DataFrame, agents: DataFrame) -> DataFrame:
    """One row per address the journal knows. Rates are null where there is nothing to divide by."""
    known = agents.select(*_ADDRESS, "namespace", "kind", "sent", "last_sent_at", "last_received_at")
    cards = (
        known.join(_received(messages), _ADDRESS, "left")
        .join(_handled(attempts), _ADDRESS, "left")
        .join(_spent(messages), _ADDRESS, "left")
        .na.fill(0, list(_COUNTS))
    )
    settled = f.col("acked") + f.col("dead") + f.col("dropped")
    return (
        cards.withColumn("success_share", share(f.col("acked"), settled))
        .withColumn("failure_share", share(f.col("failures"), f.col("attempts")))
        .withColumn("first_time_share", share(f.col("first_time"), f.col("acked")))
        .withColumn("last_seen_at", f.greatest("last_sent_at", "last_received_at"))
        .to(AGENT_SCORECARDS)
    )


def _received(messages: DataFrame) -> DataFrame:
    states = ("acked", "dead", "dropped", "pending")
    first_time = (f.col("final_state") == "acked") & (f.col("attempts") == 1)
    return messages.groupBy("partition", f.col("mailbox").alias("address")).agg(
        f.count("*").alias("received"),
        *[f.count_if(f.col("final_state") == state).alias(state) for state in states],
        f.count_if(first_time).alias("first_time"),
    )


def _handled(attempts: DataFrame) -> DataFrame:
    done = f.when(f.col("outcome") == "acked", f.col("held_ms"))
    return (
        attempts.filter(f.col("burned") & (f.col("outcome") != "leased"))
        .groupBy("partition", f.col("mailbox").alias("address"))
        .agg(
            f.count("*").alias("attempts"),
            f.count_if(f.col("failed")).alias("failures"),
            f.count_if(f.col("outcome").isin("lease_expired", "reclaimed")).alias("silences"),
            f.percentile_approx(done, 0.5).alias("handling_p50_ms"),
            f.percentile_approx(done, 0.95).alias("handling_p95_ms"),
        )
    )


def _spent(messages: DataFrame) -> DataFrame:
    return (
        once(messages)
        .groupBy("partition", f.col("sender").alias("address"))
        .agg(f.sum("cost_usd").alias("cost_usd"))
    )
