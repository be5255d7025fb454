"""The state of a message just before each of its events, for messages that may break a rule."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from relaymesh.pipeline.silver.mailbox_settings import contract_default, contract_retries, settings_over_time
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
from relaymesh.pipeline.silver.routes import known_from, routed
from relaymesh.pipeline.silver.step_messages import step_messages

__all__ = ["timeline"]

_COLUMNS = (
    *KEY, "sequence", "timestamp", "operation", "message_id", "code", "reason", "attempt", "ttl_ms",
    "max_retries", "ready", "due",
)  # fmt: skip


def timeline(bronze: DataFrame) -> DataFrame:
    """Every event of every message whose life is unusual, with the state before it.

    One sort by message serves all rules, and only a few messages need it: see `_unusual`.

    accepted, leased, completed, is_step: whether; settled: how often; counted: attempts counted so far;
    ready_at: when it may next be delivered; first_due, ttl: what its expiry is counted from;
    limit: retries its failure may have at most, limit_least: and at least; null when the mailbox's settings
    are not known. They differ where a contract names fewer than `max_retries`, which counted alone once.
    """
    rows = _unusual(_events(bronze)).join(_of_steps(bronze), [*KEY], "left")
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
            "is_step": f.coalesce("of_step", f.lit(False)),
            "wish": last(f.when(is_one(*ACCEPTS), f.col("max_retries"))),
        }
    )
    rule = f.col("rule_retries")
    limit = f.when(rule == 0, 0).otherwise(f.coalesce("wish", "mailbox_retries", rule))
    least = f.when(f.col("rule_default"), limit).otherwise(f.least(limit, rule))
    bounded = rule.isNotNull() & ~f.col("is_step")  # a step counts failures and abandonments apart
    limits = {"limit": f.when(bounded, limit), "limit_least": f.when(bounded, least)}
    return told.withColumns(limits).join(f.broadcast(known_from(bronze)), "partition")


def _events(bronze: DataFrame) -> DataFrame:
    """Acceptances and all events that name them, with the times they set: when it is due, and ready again.

    Both come from one read of bronze, so that a message's events, near each other there, meet in one task.
    """
    direct = bronze.filter(is_one("APPEND", "REDRIVE", *NAMING))
    due = f.when(is_one(*ACCEPTS), first_due()).when(is_one("FORCE_DELIVER"), f.col("timestamp"))
    ready = f.coalesce(f.col("due"), f.when(is_one(*RETURNS), f.col("due_at")))
    every = direct.unionByName(routed(bronze))
    told = every.withColumn("due", due).withColumn("ready", ready)
    return told.select(*_COLUMNS)


def _of_steps(bronze: DataFrame) -> DataFrame:
    """Messages that belong to a step, or are its question. Only records say so: no sender can claim it."""
    asked = bronze.filter(is_one("STEP_WAITS") & f.col("message_sequence").isNotNull()).select(*KEY)
    both = step_messages(bronze).select(*KEY).unionByName(asked)
    return both.distinct().withColumn("of_step", f.lit(True))


def _unusual(events: DataFrame) -> DataFrame:
    """The events of messages whose history is more than: accepted, granted when due, and acked. A plain
    history, or the beginning of one, cannot break a rule of `entry_rules`. Most histories are plain. Numbers
    that aggregate by hashing find them, so only the others are sorted.
    """

    def first(column: str, *operations: str) -> Column:
        return f.min(f.when(is_one(*operations), f.col(column)))

    lives = events.groupBy(*KEY).agg(
        f.count("*").alias("events"),
        first("sequence", *ACCEPTS).alias("accepted"),
        first("due", *ACCEPTS).alias("due"),
        first("sequence", "GRANT").alias("granted"),
        first("timestamp", "GRANT").alias("granted_at"),
        first("sequence", "ACK").alias("acked"),
    )
    granted, acked = f.col("granted"), f.col("acked")
    # as many events as there are kinds of them: each is there once, and nothing else
    each_once = f.col("events") == 1 + granted.isNotNull().cast("int") + acked.isNotNull().cast("int")
    in_order = (f.col("accepted") == f.col("message_sequence")) & (
        f.when(granted.isNull(), acked.isNull()).otherwise(
            (granted > f.col("accepted"))
            & (f.col("granted_at") >= f.col("due"))
            & (acked.isNull() | (acked > granted))
        )
    )
    plain = f.coalesce(each_once & in_order, f.lit(False))
    odd = lives.filter(~plain).select(*KEY).alias("o")
    same = (
        (f.col("e.message_sequence") == f.col("o.message_sequence"))
        & f.col("e.mailbox").eqNullSafe(f.col("o.mailbox"))  # whatever names no mailbox is judged too
        & (f.col("e.partition") == f.col("o.partition"))
    )
    return events.alias("e").join(odd, same, "left_semi")


def _with_retries(rows: DataFrame, bronze: DataFrame) -> DataFrame:
    """The row of the mailbox's contract for each failure, at the time of the failure."""
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
        .withColumn("rule_default", contract_default(f.col("contract"), f.col("code")))
        .select(*_COLUMNS, "of_step", "rule_retries", "rule_default", "mailbox_retries")
    )
