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
"""Codes of drops that are no failure: the receiver, or whoever closed the subscription, wanted it so."""


def attempts(bronze: DataFrame) -> DataFrame:
    """Every delivery `bronze` grants. Each ends with the next event that ends a lease there."""
    history = Window.partitionBy(*KEY).orderBy("sequence")
    before = history.rowsBetween(Window.unboundedPreceding, -1)
    ends = bronze.filter(is_one("GRANT", *RETURNS, *SETTLES)).select(
        *KEY, "sequence", "timestamp", "event_date", "operation", "holder", "lease_token", "lease_ms",
        "remote", "code", "error", f.col("due_at").alias("returned_until"),
    )  # fmt: skip
    end = f.struct("operation", "sequence", "timestamp", "code", "error", "returned_until")
    granted = (
        ends.withColumn("end", f.lead(end).over(history))
        .withColumn("granted_before", f.count_if(is_one("GRANT")).over(before))
        .withColumn("unburned_before", f.count_if(is_one(*UNBURNED)).over(before))
        .filter(is_one("GRANT"))
    )
    return _shaped(granted)


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
