"""Rules about the stream of a partition: numbers, times and tokens.

A window over a whole partition would be one task. So neighbours are compared within stretches of the stream,
and then the ends of the stretches with each other.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.window import WindowSpec

from relaymesh.kernel.token import TOKEN_COUNTER_BITS
from relaymesh.pipeline.silver.operations import is_one

__all__ = ["STREAM_RULES", "stream_violations"]

STREAM_RULES = ("sequence_gap", "sequence_duplicate", "time_order", "token_order", "token_epoch")

_STRETCH_BITS = 12
"""Events of a stretch, as a power of two: as many as a Spark window holds as plain rows in memory."""


def stream_violations(bronze: DataFrame) -> DataFrame:
    """Gaps, duplicates, times that go back, and tokens that do not grow or come from the future."""
    rows = bronze.where("frame_offset >= 0").select(  # not what was kept of days that were forgotten
        "partition",
        "mailbox",
        "message_sequence",
        "sequence",
        # the time of a record that was set aside cannot be read: its rows have the frame's
        f.when(~f.startswith("operation", f.lit("UNREADABLE_")), f.col("timestamp")).alias("timestamp"),
        f.when(is_one("GRANT"), f.col("lease_token")).alias("token"),
        "epoch",
        f.shiftright("sequence", _STRETCH_BITS).alias("stretch"),
    )
    inside = Window.partitionBy("partition", "stretch").orderBy("sequence")
    told = rows.withColumns(_neighbours(inside))
    return _broken(told).unionByName(_broken(_seams(rows)))


def _neighbours(order: WindowSpec) -> dict[str, Column]:
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    return {
        "prior": f.lag("sequence").over(order),
        "prior_time": f.lag("timestamp").over(order),
        "prior_token": f.last("token", ignorenulls=True).over(before),
    }


def _seams(rows: DataFrame) -> DataFrame:
    """The first event, and the first grant, of each stretch with what came before the stretch."""
    order = Window.partitionBy("partition").orderBy("stretch")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    granted = f.when(f.col("token").isNotNull(), f.col("sequence"))
    ends = rows.groupBy("partition", "stretch").agg(
        f.min("sequence").alias("sequence"),
        f.max("sequence").alias("last_sequence"),
        f.min_by("timestamp", "sequence").alias("timestamp"),
        f.max_by("timestamp", "sequence").alias("last_time"),
        f.min_by("token", granted).alias("token"),
        f.max_by("token", granted).alias("last_token"),
    )
    return ends.select(
        "partition",
        f.lit(None).cast("string").alias("mailbox"),
        f.lit(None).cast("long").alias("message_sequence"),
        "sequence",
        "timestamp",
        "token",
        f.lit(None).cast("long").alias("epoch"),  # judged inside
        f.lag("last_sequence").over(order).alias("prior"),
        f.lag("last_time").over(order).alias("prior_time"),
        f.last("last_token", ignorenulls=True).over(before).alias("prior_token"),
    )


def _broken(told: DataFrame) -> DataFrame:
    rules = {
        "sequence_gap": (
            f.col("sequence") > f.col("prior") + 1,
            f.format_string("events %d to %d are missing", f.col("prior") + 1, f.col("sequence") - 1),
        ),
        "sequence_duplicate": (f.col("sequence") == f.col("prior"), f.lit("this event is there twice")),
        "time_order": (
            f.col("timestamp") < f.col("prior_time"),
            f.format_string(
                "%s after %s", f.col("timestamp").cast("string"), f.col("prior_time").cast("string")
            ),
        ),
        "token_order": (
            f.col("token") <= f.col("prior_token"),
            f.format_string("token %d after %d", "token", "prior_token"),
        ),
        "token_epoch": (
            # a frame that recovery wrote anew has the later epoch, its tokens their own
            f.shiftright("token", TOKEN_COUNTER_BITS) > f.col("epoch"),
            f.format_string(
                "token of epoch %d in a frame of epoch %d", f.shiftright("token", TOKEN_COUNTER_BITS), "epoch"
            ),
        ),
    }
    broken = [
        f.when(condition, f.struct(f.lit(rule).alias("rule"), detail.alias("detail")))
        for rule, (condition, detail) in rules.items()
    ]
    found = f.explode(f.filter(f.array(*broken), lambda each: each.isNotNull()))
    return told.withColumn("found", found).select(
        "found.rule", "partition", "mailbox", "message_sequence",
        f.lit(None).cast("string").alias("message_id"), "sequence", "timestamp", "found.detail",
    )  # fmt: skip
