"""One row per message in a mailbox, from acceptance to its end."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from relaymesh.pipeline.schema.content import EXTRA
from relaymesh.pipeline.schema.silver import MESSAGES
from relaymesh.pipeline.silver.operations import (
    BURNING,
    FINAL_STATES,
    KEY,
    NAMING,
    RETURNS,
    SETTLES,
    UNBURNED,
    first_due,
    is_one,
    namespace,
)
from relaymesh.pipeline.silver.routes import routed

__all__ = ["entries", "messages"]


def messages(bronze: DataFrame) -> DataFrame:
    """Every message `bronze` accepts, as it stands after all of `bronze`."""
    later = bronze.filter(f.col("sequence") > f.col("message_sequence"))
    arrived = entries(bronze).withColumn("first_due", first_due())
    together = arrived.join(_lives(later), [*KEY], "left").join(_ends(later), [*KEY], "left")
    return _shaped(together)


def entries(bronze: DataFrame) -> DataFrame:
    """Every acceptance by a mailbox: the bronze row, a published one in each mailbox it went to."""
    direct = bronze.filter(is_one("APPEND", "REDRIVE"))
    return direct.unionByName(routed(bronze))


def _lives(events: DataFrame) -> DataFrame:
    """What happened to each message, as numbers only: they aggregate by hashing, texts would be sorted."""
    settles = f.array(*[f.lit(name) for name in SETTLES])
    place = f.array_position(settles, f.col("operation"))

    def count(*operations: str) -> Column:
        return f.count_if(is_one(*operations)).cast("int")

    def when(column: str, *operations: str) -> Column:
        return f.when(is_one(*operations), f.col(column))

    return (
        events.filter(is_one(*NAMING))
        .groupBy(*KEY)
        .agg(
            f.min(when("timestamp", "GRANT")).alias("first_delivered_at"),
            f.min(when("timestamp", *SETTLES)).alias("settled_at"),
            # the first settle and which it was, in one number
            f.min(f.when(is_one(*SETTLES), f.col("sequence") * 4 + place)).alias("settle"),
            count("GRANT").alias("deliveries"),
            count(*UNBURNED).alias("unburned"),
            count("DEFER").alias("deferrals"),
            count(*BURNING).alias("retries"),
            count(*RETURNS).alias("returns"),
            f.max(is_one("COMPLETE")).alias("completed"),
            f.min(when("sequence", "FORCE_DELIVER")).alias("forced_sequence"),
            f.min(when("timestamp", "FORCE_DELIVER")).alias("forced_at"),
            f.max(f.when(is_one("REPRIORITISE"), f.col("sequence") * 8 + f.col("priority"))).alias("moved"),
        )
    )


def _ends(events: DataFrame) -> DataFrame:
    """Why messages ended that were not done. They are few, so their texts cost little."""
    first = Window.partitionBy(*KEY).orderBy("sequence")
    return (
        events.filter(is_one("DROP", "DEAD_LETTER"))
        .select(
            *KEY,
            f.col("sequence").alias("end_sequence"),
            f.col("reason").alias("end_reason"),
            f.col("code").alias("end_code"),
            f.col("error").alias("end_error"),
            f.col("alert").alias("end_alert"),
            f.row_number().over(first).alias("nth"),
        )
        .filter("nth = 1")
    )


def _shaped(joined: DataFrame) -> DataFrame:
    settled_sequence = f.shiftright("settle", 2)
    state = f.element_at(
        f.array(*[f.lit(FINAL_STATES[name]) for name in SETTLES]), (f.col("settle") % 4).cast("int")
    )
    usage = f.from_json("extra", EXTRA)
    deliveries = f.coalesce("deliveries", f.lit(0))
    zero = {name: f.coalesce(name, f.lit(0)) for name in ("retries", "deferrals", "returns", "unburned")}
    mine = f.col("end_sequence") == settled_sequence
    shaped = joined.withColumn("used", usage).withColumns(
        {
            "namespace": namespace(),
            "sent_priority": f.col("priority"),
            "priority": f.coalesce((f.col("moved") % 8).cast("int"), "priority"),
            "accepted_date": f.col("event_date"),
            "accepted_at": f.col("timestamp"),
            "due_at": f.coalesce("forced_at", "first_due"),
            "settled_sequence": settled_sequence,
            "final_state": f.when(f.col("settle").isNull(), "pending").otherwise(state),
            "attempts": deliveries - zero["unburned"],
            "deliveries": deliveries,
            "retries": zero["retries"],
            "deferrals": zero["deferrals"],
            "in_flight": f.col("settle").isNull() & (deliveries > zero["returns"]),
            "completed": f.coalesce("completed", f.lit(False)),
            "redriven_from": f.when(is_one("REDRIVE"), f.col("dead_sequence")),
            "reason": f.when(mine, f.col("end_reason")),
            "code": f.when(mine, f.col("end_code")),
            "error": f.when(mine, f.col("end_error")),
            "alert": f.when(mine, f.col("end_alert")),
            **{
                name: f.coalesce(f"used.usage.{field}", f"used.metadata.usage.{field}")
                for name, field in (
                    ("input_tokens", "inputTokens"),
                    ("output_tokens", "outputTokens"),
                    ("cost_usd", "costUsd"),
                )
            },
        }
    )
    return shaped.to(MESSAGES)
