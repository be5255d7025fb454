"""One row per address: agents, subscriptions, and senders without a mailbox."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from relaymesh.kernel.envelope import CONTROL_TYPES
from relaymesh.pipeline.schema.silver import AGENTS
from relaymesh.pipeline.silver.mailbox_settings import settings_over_time
from relaymesh.pipeline.silver.operations import is_one
from relaymesh.pipeline.silver.routes import END

__all__ = ["agents"]

_ADDRESS = ["partition", "address"]


def agents(bronze: DataFrame) -> DataFrame:
    """When each address was opened, sent and was delivered to, and its mailbox's settings as last set."""
    seen = _opened(bronze).join(_senders(bronze), _ADDRESS, "full").join(_receivers(bronze), _ADDRESS, "full")
    kind = f.when(f.col("pattern").isNotNull() | f.col("address").contains(":"), "subscription").when(
        f.coalesce("opened_at", "registered_at", "first_received_at").isNotNull(), "agent"
    )
    return (
        seen.join(_settings(bronze), _ADDRESS, "left")
        .withColumn("namespace", f.substring_index("address", "/", 1))
        .withColumn("kind", kind.otherwise("sender"))
        .withColumn("sent", f.coalesce("sent", f.lit(0)))
        .withColumn("deliveries", f.coalesce("deliveries", f.lit(0)))
        .to(AGENTS)
    )


def _opened(bronze: DataFrame) -> DataFrame:
    """Mailboxes. Registration of an agent is a record of a later version: it counts when bronze names it."""
    opens = is_one("OPEN_MAILBOX", "SUBSCRIBE")

    def last(*operations: str) -> Column:
        return f.max(f.when(is_one(*operations), f.col("sequence")))

    closed = last("UNSUBSCRIBE") > f.coalesce(last("OPEN_MAILBOX", "SUBSCRIBE"), f.lit(-1))
    return (
        bronze.filter(is_one("OPEN_MAILBOX", "SUBSCRIBE", "UNSUBSCRIBE", "AGENT_REGISTERED"))
        .filter(f.col("mailbox").isNotNull())
        .groupBy("partition", f.col("mailbox").alias("address"))
        .agg(
            f.max_by("pattern", f.when(f.col("pattern").isNotNull(), f.col("sequence"))).alias("pattern"),
            f.min(f.when(opens, f.col("timestamp"))).alias("opened_at"),
            f.when(closed, f.max(f.when(is_one("UNSUBSCRIBE"), f.col("timestamp")))).alias("closed_at"),
            f.min(f.when(is_one("AGENT_REGISTERED"), f.col("timestamp"))).alias("registered_at"),
        )
    )


def _senders(bronze: DataFrame) -> DataFrame:
    """Who sent. The mesh's own notices (`ack`, `nack`) name the receiver as sender and do not count."""
    return (
        bronze.filter(is_one("APPEND", "PUBLISH") & ~f.col("type").isin(*sorted(CONTROL_TYPES)))
        .groupBy("partition", f.col("sender").alias("address"))
        .agg(
            f.min("timestamp").alias("first_sent_at"),
            f.max("timestamp").alias("last_sent_at"),
            f.count("*").alias("sent"),
        )
    )


def _receivers(bronze: DataFrame) -> DataFrame:
    return (
        bronze.filter(is_one("GRANT"))
        .groupBy("partition", f.col("mailbox").alias("address"))
        .agg(
            f.min("timestamp").alias("first_received_at"),
            f.max("timestamp").alias("last_received_at"),
            f.count("*").alias("deliveries"),
        )
    )


def _settings(bronze: DataFrame) -> DataFrame:
    """The last settings of each mailbox that is still open."""
    return (
        settings_over_time(bronze)
        .filter(f.col("until") == END)
        .select("partition", f.col("mailbox").alias("address"), "capacity", "capacity_bytes", "settings")
    )
