"""Rules about one message: what may happen to it, given what happened before."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from relaymesh.pipeline.silver.operations import (
    BURNING,
    CHANGES,
    NAMING,
    RETURNS,
    SETTLES,
    is_one,
    later,
)

__all__ = ["entry_violations"]

# A step of a task may end while no receiver holds it: by a late result, a cancel or a timeout.
_UNTRIED = ("ttl_expired", "mailbox_full")
_UNTRIED_DROPS = ("unsubscribed", "ttl_expired")
"""The latter for notices of the mesh itself that were not read in time."""
"""Reasons to bury a message that is not leased."""


def entry_violations(timeline: DataFrame) -> DataFrame:
    """Every broken rule of every event, in one pass over the timeline."""
    broken = [
        f.when(condition, f.struct(f.lit(rule).alias("rule"), detail.alias("detail")))
        for rule, condition, detail in _rules()
    ]
    found = f.explode(f.filter(f.array(*broken), lambda each: each.isNotNull()))
    return timeline.withColumn("found", found).select(
        "found.rule", "partition", "mailbox", "message_sequence", f.col("id").alias("message_id"), "sequence",
        "timestamp", "found.detail",
    )  # fmt: skip


def _rules() -> Iterator[tuple[str, Column, Column]]:
    """(rule, when it is broken, the text of the finding)."""
    accepted, leased, completed = f.col("accepted"), f.col("leased"), f.col("completed")
    open_ = accepted & (f.col("settled") == 0)
    yield (
        "unknown_message",
        is_one(*NAMING) & ~accepted & (f.col("message_sequence") >= f.col("known_from")),
        _say("%s names a message this mailbox never accepted", "operation"),
    )
    yield (
        "double_settle",
        accepted & is_one(*SETTLES) & (f.col("settled") > 0),
        _say("%s, and it was settled before", "operation"),
    )
    yield (
        "after_settle",
        accepted & is_one("GRANT", *RETURNS, *CHANGES) & (f.col("settled") > 0),
        _say("%s of a settled message", "operation"),
    )
    yield "granted_twice", open_ & is_one("GRANT") & leased, f.lit("granted while another lease is out")
    yield (
        "return_without_lease",
        open_ & is_one(*RETURNS) & ~leased,
        _say("%s while no lease is out", "operation"),
    )
    yield (
        "no_attempt",
        open_ & is_one("ACK") & ~leased & ~completed & ~f.col("is_step"),
        f.lit("acked while no receiver held it, and none had completed it"),
    )
    yield from _exits(open_, leased)
    yield from _bounds(open_, leased)
    yield (
        "early",
        open_ & is_one("GRANT") & (f.col("timestamp") < f.col("ready_at")),
        _say("granted at %s, due at %s", "timestamp", "ready_at"),
    )


def _exits(open_: Column, leased: Column) -> Iterator[tuple[str, Column, Column]]:
    dropped = is_one("DROP") & ~f.coalesce(f.col("code").isin(*_UNTRIED_DROPS), f.lit(False))
    buried = is_one("DEAD_LETTER") & ~f.coalesce(f.col("reason").isin(*_UNTRIED), f.lit(False))
    yield (
        "exit_without_attempt",
        open_ & ~leased & (dropped | buried) & ~f.col("is_step"),
        _say(
            "%s (%s) while no receiver held it", "operation", f.coalesce("reason", "code", f.lit("no reason"))
        ),
    )
    yield (
        "no_exit",
        open_ & is_one("DEAD_LETTER") & (f.coalesce("reason", f.lit("")) == ""),
        f.lit("a dead letter without a reason"),
    )
    ends = later(f.col("first_due"), f.col("ttl"))
    yield (
        "expired_early",
        open_
        & is_one("DEAD_LETTER")
        & f.col("reason").eqNullSafe("ttl_expired")
        & ((f.col("ttl") == 0) | (f.col("timestamp") < ends)),
        _say("expired at %s, due at %s with %s ms to live", "timestamp", "first_due", "ttl"),
    )


def _bounds(open_: Column, leased: Column) -> Iterator[tuple[str, Column, Column]]:
    known = open_ & leased & f.col("limit").isNotNull()
    yield (
        "attempts_unbounded",
        known & is_one(*BURNING) & (f.col("counted") > f.col("limit")),
        _say("attempt %s failed (%s) and is tried again; %s retries are allowed", "counted", "code", "limit"),
    )
    yield (
        "gave_up_early",
        known
        & is_one("DEAD_LETTER")
        & f.col("reason").eqNullSafe("retries_exhausted")
        & (f.col("counted") <= f.col("limit_least")),
        _say("buried after attempt %s; %s retries are allowed", "counted", "limit_least"),
    )
    yield (
        "attempt_count",
        open_
        & leased
        & is_one(*BURNING, "DEFER", "DEAD_LETTER")
        & f.col("attempt").isNotNull()
        & (f.col("attempt") != f.col("counted")),
        _say("the failure says attempt %s, and it was attempt %s", "attempt", "counted"),
    )


def _say(words: str, *values: str | Column) -> Column:
    shown = [f.col(value) if isinstance(value, str) else value for value in values]
    return f.format_string(words, *[f.coalesce(each.cast("string"), f.lit("?")) for each in shown])
