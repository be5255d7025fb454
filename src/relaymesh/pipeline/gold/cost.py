"""What outcomes cost, where messages say what they used."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from relaymesh.pipeline.schema.gold import COST

__all__ = ["cost", "once"]

_BEST_FIRST = ("acked", "pending", "dead", "dropped")


def cost(messages: DataFrame) -> DataFrame:
    """Tokens and money by sender, day, type and outcome.

    The envelope's unknown fields are kept as `extra`: `usage` there, or `metadata.usage`, is
    {"inputTokens": 1200, "outputTokens": 80, "costUsd": 0.0042}.
    """
    return (
        once(messages)
        .groupBy(
            "partition",
            f.col("sender").alias("agent"),
            f.col("accepted_date").alias("day"),
            "type",
            "outcome",
        )
        .agg(
            f.count("*").alias("messages"),
            f.sum("input_tokens").alias("input_tokens"),
            f.sum("output_tokens").alias("output_tokens"),
            f.sum("cost_usd").alias("cost_usd"),
        )
        .withColumn("namespace", f.substring_index("agent", "/", 1))
        .withColumn("cost_per_message_usd", f.col("cost_usd") / f.col("messages"))
        .to(COST)
    )


def once(messages: DataFrame) -> DataFrame:
    """Messages with a usage, each once: of the copies of a published message the best outcome counts.

    A redriven message was produced and paid once: it counts as the original.
    """
    used = messages.filter(
        f.coalesce("input_tokens", "output_tokens", "cost_usd").isNotNull() & f.col("redriven_from").isNull()
    )
    ranks = f.array(*[f.lit(state) for state in _BEST_FIRST])
    row = ["partition", "message_sequence", "sender", "type", "accepted_date"]
    return (
        used.groupBy(*row, "input_tokens", "output_tokens", "cost_usd")
        .agg(f.min(f.array_position(ranks, f.col("final_state"))).alias("rank"))
        .withColumn("outcome", f.element_at(ranks, f.col("rank").cast("int")))
    )
