"""Where published messages went.

PUBLISH holds the topic alone (docs/decisions/002-routes-are-derived.md): its targets are the subscriptions
open at that sequence whose pattern covers the topic.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from relaymesh.journal import FIRST_SEQUENCE
from relaymesh.pipeline.silver.operations import NAMING, is_one

__all__ = ["known_from", "pattern_regex", "routed", "routes", "subscriptions"]

END = (1 << 63) - 1
_PATTERN = "substring(mailbox, 1, length(mailbox) - length(substring_index(mailbox, ':', -1)) - 1)"
"""The pattern of a subscription, which its address begins with."""


def known_from(bronze: DataFrame) -> DataFrame:
    """Per partition the first sequence bronze has, and whether the past before it is missing.

    What was kept of days that were forgotten (frame_offset -1) is no such past: it has gaps.
    """
    firsts = bronze.where("frame_offset >= 0").groupBy("partition").agg(f.min("sequence").alias("known_from"))
    return firsts.withColumn("truncated", f.col("known_from") > FIRST_SEQUENCE)


def pattern_regex(pattern: Column) -> Column:
    """A regular expression for exactly the topics that `kernel.address.pattern_matches` says it covers.

    Quoted as a whole, but for `**` (last word: one or more words) and `*` (one word).
    """
    quoted = f.concat(f.lit("\\Q"), pattern, f.lit("\\E"))
    rest = f.replace(quoted, f.lit("**"), f.lit("\\E.+\\Q"))
    words = f.replace(rest, f.lit("*"), f.lit("\\E[^.]+\\Q"))
    return f.concat(f.lit("^"), words, f.lit("\\z"))


def subscriptions(bronze: DataFrame) -> DataFrame:
    """(partition, mailbox, pattern, since, until): open for events with since < sequence < until.

    A suspension ends it, and a resumption opens it again.
    Where the journal's past is missing, a subscription that is only seen at work was open from the first: its
    pattern is the first part of its address.
    """
    by_mailbox = Window.partitionBy("partition", "mailbox").orderBy("sequence")
    said = bronze.filter(is_one("SUBSCRIBE", "UNSUBSCRIBE", "SUSPEND", "RESUME")).select(
        "partition", "mailbox", "pattern", "operation", "sequence"
    )
    pattern = f.coalesce("pattern", f.expr(_PATTERN))
    stated = (
        said.withColumn("until", f.coalesce(f.lead("sequence").over(by_mailbox), f.lit(END)))
        .filter(is_one("SUBSCRIBE", "RESUME"))
        .select("partition", "mailbox", pattern.alias("pattern"), f.col("sequence").alias("since"), "until")
    )
    return stated.unionByName(_inherited(bronze, said))


def _inherited(bronze: DataFrame, said: DataFrame) -> DataFrame:
    """Subscriptions from before the first known event: seen at work before anything opened them.

    A purge is no work: dead letters outlive their mailbox.
    """
    first = said.groupBy("partition", "mailbox").agg(
        f.min("sequence").alias("until"),
        f.min(f.when(is_one("SUBSCRIBE"), f.col("sequence"))).alias("opened"),
        f.min(f.when(is_one("RESUME"), f.col("sequence"))).alias("resumed"),
    )
    seen = (
        bronze.filter(is_one(*NAMING, "UNSUBSCRIBE", "REDRIVE") & f.col("mailbox").contains(":"))
        .groupBy("partition", "mailbox")
        .agg(f.min("sequence").alias("seen"))
    )
    cut = known_from(bronze).filter("truncated").select("partition")
    return (
        seen.join(f.broadcast(cut), "partition")
        .join(first, ["partition", "mailbox"], "left")
        .filter(f.col("opened").isNull() | (f.col("seen") < f.col("opened")))
        .filter(f.col("resumed").isNull() | (f.col("resumed") > f.col("until")))
        .select(
            "partition",
            "mailbox",
            f.expr(_PATTERN).alias("pattern"),
            f.lit(-1).cast("long").alias("since"),
            f.coalesce("until", f.lit(END)).alias("until"),
        )
    )


def routes(bronze: DataFrame) -> DataFrame:
    """(partition, topic, mailbox, since, until): which mailboxes a topic's messages go to, and when.

    Topics are few where messages are many: patterns are matched against topics, never against messages.
    """
    topics = bronze.filter(is_one("PUBLISH")).select("partition", "topic").distinct()
    open_ = subscriptions(bronze).withColumn("regex", pattern_regex(f.col("pattern")))
    matched = (f.col("t.partition") == f.col("s.partition")) & f.expr("t.topic rlike s.regex")
    return (
        topics.alias("t")
        .join(f.broadcast(open_.alias("s")), matched)
        .select("t.partition", "t.topic", "s.mailbox", "s.since", "s.until")
    )


def routed(bronze: DataFrame, how: str = "inner") -> DataFrame:
    """PUBLISH rows, one for each mailbox they went to, with that mailbox."""
    published = bronze.filter(is_one("PUBLISH")).drop("mailbox").alias("p")
    open_then = (
        (f.col("p.partition") == f.col("r.partition"))
        & (f.col("p.topic") == f.col("r.topic"))
        & (f.col("p.sequence") > f.col("r.since"))
        & (f.col("p.sequence") < f.col("r.until"))
    )
    return published.join(f.broadcast(routes(bronze).alias("r")), open_then, how).select("p.*", "r.mailbox")
