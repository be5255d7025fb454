"""One row per delivery: a lease granted, and how it ended."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from relaymesh.pipeline.schema.silver import ATTEMPTS
from relaymesh.pipeline.silver.operations import (
    BURNING,
    KEY,
    OUTCOMES,
    RETURNS,
    SETTLES,
    UNBURNED,
    is_one,
    named,
    namespace,
)

__all__ = ["attempts"]

_CHOSEN = ("dropped", "unsubscribed")
"""Codes of drops that are not failures: the receiver asked for it, or the subscription was closed."""


_GRANTED = ("sequence", "timestamp", "event_date", "holder", "lease_token", "lease_ms", "remote")


def attempts(bronze: DataFrame) -> DataFrame:
    """Every delivery `bronze` grants. Each ends with the next event that ends a lease there."""
    events = bronze.filter(is_one("GRANT", *RETURNS, *SETTLES)).select(
        *KEY, *_GRANTED, "operation", "code", "error", f.col("due_at").alias("returned_until")
    )
    lives = _lives(events)
    return _shaped(_plain(events, lives).unionByName(_ordered(events, lives)))


def _lives(events: DataFrame) -> DataFrame:
    """Whether each message was granted and acked, and no more: as numbers, which aggregate by hashing."""
    lives = events.groupBy(*KEY).agg(
        f.count("*").alias("events"),
        f.min(f.when(is_one("GRANT"), f.col("sequence"))).alias("granted"),
        f.min(f.when(is_one("ACK"), f.col("sequence"))).alias("acked"),
        f.min(f.when(is_one("ACK"), f.col("timestamp"))).alias("acked_at"),
    )
    plain = (f.col("events") == 2) & (f.col("granted") < f.col("acked")) & f.col("acked_at").isNotNull()
    return lives.withColumn("plain", f.coalesce(plain, f.lit(False)))


def _plain(events: DataFrame, lives: DataFrame) -> DataFrame:
    """Most deliveries: the only one of its message, acked. They need no sort, which is expensive."""
    end = f.struct(
        f.lit("ACK").alias("operation"),
        f.col("acked").alias("sequence"),
        f.col("acked_at").alias("timestamp"),
        *[f.lit(None).cast("string").alias(name) for name in ("code", "error")],
        f.lit(None).cast("timestamp").alias("returned_until"),
    )
    none = f.lit(0).cast("long")
    before = [none.alias(name) for name in ("granted_before", "unburned_before")]
    return (
        events.filter(is_one("GRANT"))
        .join(lives.filter("plain"), [*KEY])
        .select(*KEY, *_GRANTED, end.alias("end"), *before)
    )


def _ordered(events: DataFrame, lives: DataFrame) -> DataFrame:
    """All other deliveries, each with the event that follows it and what came before it."""
    history = Window.partitionBy(*KEY).orderBy("sequence")
    before = history.rowsBetween(Window.unboundedPreceding, -1)
    end = f.struct("operation", "sequence", "timestamp", "code", "error", "returned_until")
    return (
        events.join(lives.filter("not plain"), [*KEY], "left_semi")
        .withColumn("end", f.lead(end).over(history))
        .withColumn("granted_before", f.count_if(is_one("GRANT")).over(before))
        .withColumn("unburned_before", f.count_if(is_one(*UNBURNED)).over(before))
        .filter(is_one("GRANT"))
        .select(*KEY, *_GRANTED, "end", "granted_before", "unburned_before")
    )


def _shaped(granted: DataFrame) -> DataFrame:
    ended = f.col("end.operation").isNotNull() & (f.col("end.operation") != "GRANT")
    failed = f.col("end.operation").isin(*BURNING) | (
        f.col("end.operation").isin("DROP", "DEAD_LETTER")
        & f.col("end.code").isNotNull()
        & ~f.col("end.code").isin(*_CHOSEN)
    )
    held = f.unix_millis("end.timestamp") - f.unix_millis("timestamp")
    return granted.select(
        *KEY,
        namespace().alias("namespace"),
        "sequence",
        "lease_token",
        "holder",
        "remote",
        (f.col("granted_before") - f.col("unburned_before") + 1).alias("attempt"),
        (f.col("granted_before") + 1).alias("delivery"),
        f.col("event_date").alias("granted_date"),
        f.col("timestamp").alias("granted_at"),
        f.when(ended, f.col("end.timestamp")).alias("ended_at"),
        f.when(ended, f.col("end.sequence")).alias("ended_sequence"),
        f.coalesce(named(f.col("end.operation"), OUTCOMES), f.lit("leased")).alias("outcome"),
        f.coalesce(failed, f.lit(False)).alias("failed"),
        f.coalesce(~f.col("end.operation").isin(*UNBURNED), f.lit(True)).alias("burned"),
        f.when(ended, f.col("end.code")).alias("code"),
        f.when(ended, f.col("end.error")).alias("error"),
        f.when(f.col("end.operation").isin(*RETURNS), f.col("end.returned_until")).alias("next_due_at"),
        "lease_ms",
        f.when(ended, held).alias("held_ms"),
    ).to(ATTEMPTS)
