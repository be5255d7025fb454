"""Nothing is lost: routes, ended mailboxes, expired messages, and the sum of it all."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from relaymesh.pipeline.silver.operations import ASKED, KEY, SETTLES, is_one, later
from relaymesh.pipeline.silver.routes import known_from, routed

__all__ = ["balance_violations"]

OVERDUE_MS = 60_000
"""How long after its TTL a waiting message may still be there: expiry runs about once a second."""

_ROW = ["rule", "partition", "mailbox", "message_sequence", "message_id", "sequence", "timestamp", "detail"]


def balance_violations(bronze: DataFrame, messages: DataFrame) -> DataFrame:
    return (
        _routes(bronze)
        .unionByName(_gone_mailboxes(bronze, messages))
        .unionByName(_overdue(bronze, messages))
        .unionByName(_conservation(bronze, messages))
    )


def _routes(bronze: DataFrame) -> DataFrame:
    """PUBLISH holds the number of subscriptions it met. If the past is missing, some may be unknown.

    Counts distinct ones: another rule finds duplicate events.
    """
    counted = (
        routed(bronze, "left")
        .groupBy("partition", "sequence", "timestamp", "message_id", "targets")
        .agg(f.count_distinct("mailbox").alias("found"))
        .join(f.broadcast(known_from(bronze)), "partition")
    )
    wrong = (f.col("found") > f.col("targets")) | (~f.col("truncated") & (f.col("found") < f.col("targets")))
    return (
        counted.filter(wrong)
        .withColumn("rule", f.lit("route"))
        .withColumn("mailbox", f.lit(None).cast("string"))
        .withColumn("message_sequence", f.col("sequence"))
        .withColumn("detail", f.format_string("it says %d mailboxes, %d were subscribed", "targets", "found"))
        .select(*_ROW)
    )


def _gone_mailboxes(bronze: DataFrame, messages: DataFrame) -> DataFrame:
    """What an ended subscription held must have been dropped before."""
    ended = bronze.filter(is_one("UNSUBSCRIBE")).select("partition", "mailbox", "sequence", "timestamp")
    left = messages.filter(f.col("final_state") == "pending").select(*KEY, "message_id")
    held = left.join(f.broadcast(ended), ["partition", "mailbox"]).filter(
        f.col("sequence") > f.col("message_sequence")
    )
    return (
        held.groupBy(*KEY, "message_id")
        .agg(f.min("sequence").alias("sequence"), f.min("timestamp").alias("timestamp"))
        .withColumn("rule", f.lit("lost"))
        .withColumn("detail", f.lit("its mailbox is gone, and nothing says what became of it"))
        .select(*_ROW)
    )


def _overdue(bronze: DataFrame, messages: DataFrame) -> DataFrame:
    """Still waiting long after its TTL, not counting the waits that nacks asked for: it was forgotten."""
    ends = bronze.groupBy("partition").agg(
        f.max("sequence").alias("sequence"), f.max("timestamp").alias("timestamp")
    )
    limit = later(f.col("due_at"), f.col("ttl_ms") + OVERDUE_MS)
    waiting = messages.filter(
        (f.col("final_state") == "pending") & ~f.col("in_flight") & (f.col("ttl_ms") > 0)
    )
    late = waiting.join(f.broadcast(ends), "partition").filter(limit < f.col("timestamp"))
    put_off = f.unix_millis("due_at") - f.unix_millis("timestamp")
    waits = (
        bronze.filter(is_one(*ASKED))
        .groupBy(*KEY)
        .agg(f.sum(f.greatest(put_off, f.lit(0))).alias("waited_ms"))
    )
    waited = f.coalesce("waited_ms", f.lit(0))
    return (
        late.join(waits, list(KEY), "left")
        .filter(later(f.col("due_at"), f.col("ttl_ms") + OVERDUE_MS + waited) < f.col("timestamp"))
        .withColumn("rule", f.lit("lost"))
        .withColumn("detail", f.lit("its time to live is over, and it neither expired nor was delivered"))
        .select(*_ROW)
    )


def _conservation(bronze: DataFrame, messages: DataFrame) -> DataFrame:
    """Settles are counted in bronze, acceptances and pending messages in silver: both must agree."""
    held = messages.groupBy("partition", "mailbox").agg(
        f.count("*").alias("accepted"), f.count_if(f.col("final_state") == "pending").alias("pending")
    )
    settles = (
        bronze.filter(is_one(*SETTLES))
        .join(f.broadcast(known_from(bronze)), "partition")
        .filter(f.col("message_sequence") >= f.col("known_from"))
        .groupBy("partition", "mailbox")
        .agg(*[f.count_if(is_one(name)).alias(name) for name in SETTLES])
    )
    both = held.join(settles, ["partition", "mailbox"], "full").na.fill(0)
    out = f.col("ACK") + f.col("DROP") + f.col("DEAD_LETTER") + f.col("pending")
    told = f.format_string(
        "accepted %d, acked %d + dropped %d + dead %d + pending %d",
        "accepted", "ACK", "DROP", "DEAD_LETTER", "pending",
    )  # fmt: skip
    return both.filter(f.col("accepted") != out).select(
        f.lit("conservation").alias("rule"),
        "partition",
        "mailbox",
        f.lit(None).cast("long").alias("message_sequence"),
        f.lit(None).cast("string").alias("message_id"),
        f.lit(None).cast("long").alias("sequence"),
        f.lit(None).cast("timestamp").alias("timestamp"),
        told.alias("detail"),
    )
