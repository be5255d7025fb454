"""What was true of each message just before each of its events."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from relaymesh.pipeline.silver.mailbox_settings import contract_retries, settings_over_time
from relaymesh.pipeline.silver.messages import entries
from relaymesh.pipeline.silver.operations import (
    ACCEPTS,
    BURNING,
    KEY,
    NAMING,
    RETURNS,
    SETTLES,
    UNBURNED,
    first_due,
    is_one,
)
from relaymesh.pipeline.silver.routes import known_from

__all__ = ["timeline"]

_COLUMNS = (
    *KEY, "sequence", "timestamp", "operation", "message_id", "code", "reason", "attempt", "ttl_ms",
    "max_retries", "ready", "due",
)  # fmt: skip


def timeline(bronze: DataFrame) -> DataFrame:
    """Every event of every message with the state it met: one sort by message serves all rules.

    accepted, leased, completed: whether; settled: how often; counted: attempts the mesh counts so far;
    ready_at: when it may next be delivered; first_due, ttl: what its expiry is counted from;
    limit: retries its failure may have, null when the mailbox's settings are not known.
    """
    arrived = entries(bronze).withColumn("due", first_due()).withColumn("ready", f.col("due"))
    forced = f.when(is_one("FORCE_DELIVER"), f.col("timestamp"))
    named = bronze.filter(is_one(*NAMING)).withColumns(
        {"due": forced, "ready": f.coalesce(forced, f.when(is_one(*RETURNS), f.col("due_at")))}
    )
    rows = arrived.select(*_COLUMNS).unionByName(named.select(*_COLUMNS))
    history = Window.partitionBy(*KEY).orderBy("sequence")
    before = history.rowsBetween(Window.unboundedPreceding, -1)

    real = f.col("sequence") >= f.col(
        "message_sequence"
    )  # what comes before its acceptance is not its history

    def count(*operations: str) -> Column:
        return f.count_if(real & is_one(*operations)).over(before)

    def last(value: Column) -> Column:
        return f.last(f.when(real, value), ignorenulls=True).over(before)

    told = _with_retries(rows, bronze).withColumns(
        {
            "id": f.max("message_id").over(history.rowsBetween(Window.unboundedPreceding, Window.currentRow)),
            "accepted": count(*ACCEPTS) > 0,
            "settled": count(*SETTLES),
            "counted": count("GRANT") - count(*UNBURNED),
            "completed": count("COMPLETE") > 0,
            "leased": f.coalesce(
                last(f.when(is_one("GRANT", *RETURNS, *SETTLES), is_one("GRANT"))), f.lit(False)
            ),
            "ready_at": last(f.col("ready")),
            "first_due": last(f.col("due")),
            "ttl": last(f.when(is_one(*ACCEPTS), f.col("ttl_ms"))),
            "wish": last(f.when(is_one(*ACCEPTS), f.col("max_retries"))),
        }
    )
    rule = f.col("rule_retries")
    limit = f.when(rule == 0, 0).otherwise(f.coalesce("wish", "mailbox_retries", rule))
    return told.withColumn("limit", f.when(rule.isNotNull(), limit)).join(
        f.broadcast(known_from(bronze)), "partition"
    )


def _with_retries(rows: DataFrame, bronze: DataFrame) -> DataFrame:
    """What the mailbox's contract said about each failure when it happened."""
    settings = settings_over_time(bronze).select(
        f.col("partition").alias("of_partition"),
        f.col("mailbox").alias("of_mailbox"),
        "since",
        "until",
        "mailbox_retries",
        "contract",
    )
    in_force = (
        (f.col("partition") == f.col("of_partition"))
        & (f.col("mailbox") == f.col("of_mailbox"))
        & (f.col("sequence") > f.col("since"))
        & (f.col("sequence") < f.col("until"))
        & is_one(*BURNING, "DEAD_LETTER")
    )
    retries = f.when(f.col("since").isNotNull(), contract_retries(f.col("contract"), f.col("code")))
    return (
        rows.join(f.broadcast(settings), in_force, "left")
        .withColumn("rule_retries", retries)
        .select(*_COLUMNS, "rule_retries", "mailbox_retries")
    )
