"""The order of lanes: entries of one ordering key (or task, or ordered mailbox) in one mailbox.

A lane's order is (due, sequence). When an entry is granted, every earlier due entry of its lane must be
settled, or have been granted just before in the same grant: leases given to one holder at one moment. Of a
grant only the first entry is reported.

Not judged: entries with a correlation id, because an expected answer goes to its receiver out of line, and
the journal does not record expectations; and mailboxes whose `ordered` setting changed.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from relaymesh.pipeline.silver.mailbox_settings import settings_over_time
from relaymesh.pipeline.silver.operations import KEY, is_one
from relaymesh.pipeline.silver.routes import END

__all__ = ["lane_violations"]

_LANE = ["lane", "mailbox", "partition"]
_GRANT = ["holder", "granted_at", "grant"]


def lane_violations(bronze: DataFrame, messages: DataFrame) -> DataFrame:
    """Grants that overtook an earlier entry of their lane.

    Most grants are cleared because all entries before them are settled, the members of a grant by the one
    before them. Only the rest is compared with its lane, entry by entry.
    """
    placed = _lanes(bronze, messages)
    grants = bronze.filter(is_one("GRANT")).select(
        *KEY,
        f.col("sequence").alias("granted"),
        f.col("timestamp").alias("granted_at"),
        "holder",
        (f.col("lease_token") - f.col("sequence")).alias("grant"),
    )
    ahead = (
        grants.join(placed, [*KEY])
        .filter(f.col("granted") > f.col("message_sequence"))
        .filter(f.col("last_settled") > f.col("granted"))
    )
    member = grants.select(
        "partition", "mailbox", "message_sequence", *_GRANT, f.col("granted").alias("first")
    )
    suspects = ahead.alias("e").join(member.alias("m"), _in_the_grant("e.previous"), "left_anti").alias("e")
    others = placed.select(*_LANE, "message_sequence", "place", "until", "forced_sequence").alias("f")
    overtaken = suspects.join(others, _overtakes()).join(
        member.alias("m"), _in_the_grant("f.message_sequence"), "left_anti"
    )
    return (
        overtaken.groupBy(
            f.col("e.partition"), f.col("e.mailbox"), f.col("e.message_sequence"), f.col("e.message_id"),
            f.col("e.granted").alias("sequence"), f.col("e.granted_at").alias("timestamp"),
        )
        .agg(f.min("f.message_sequence").alias("other"))
        .withColumn("rule", f.lit("lane_order"))
        .withColumn("detail", f.format_string("granted before message %d of its lane was settled", "other"))
        .drop("other")
    )  # fmt: skip


def _lanes(bronze: DataFrame, messages: DataFrame) -> DataFrame:
    """Entries of a lane, with the last settle of all before them and the entry before."""
    ordered = (
        settings_over_time(bronze)
        .groupBy("partition", "mailbox")
        .agg(f.max("ordered").alias("ordered"), (f.max("ordered") != f.min("ordered")).alias("changed"))
    )
    lane = f.when(f.coalesce("ordered", f.lit(False)), f.lit("")).otherwise(
        f.coalesce(f.concat(f.lit("k"), "ordering_key"), f.concat(f.lit("t"), "task_id"))
    )
    place = f.struct("due_at", "message_sequence")
    order = Window.partitionBy(*_LANE).orderBy("due_at", "message_sequence")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    return (
        messages.filter(f.col("correlation_id").isNull())
        .join(f.broadcast(ordered), ["partition", "mailbox"], "left")
        .filter(~f.coalesce("changed", f.lit(False)))
        .withColumn("lane", lane)
        .filter(f.col("lane").isNotNull())
        .withColumn("until", f.coalesce("settled_sequence", f.lit(END)))
        .select(
            *_LANE,
            "message_sequence",
            "message_id",
            "until",
            "forced_sequence",
            place.alias("place"),
            f.max("until").over(before).alias("last_settled"),
            f.lag("message_sequence").over(order).alias("previous"),
        )
    )


def _overtakes() -> Column:
    """`f` is before `e` in its lane, and was there, due and not settled when `e` was granted."""
    lane = f.lit(True)
    for name in _LANE:
        lane &= f.col(f"e.{name}") == f.col(f"f.{name}")
    there = (f.col("f.message_sequence") < f.col("e.granted")) & (
        f.col("f.place.due_at") <= f.col("e.granted_at")
    )
    joined = f.coalesce(f.col("f.forced_sequence") < f.col("e.granted"), f.lit(True))
    before = (f.col("f.place") < f.col("e.place")) & (f.col("f.until") > f.col("e.granted"))
    return lane & before & there & joined


def _in_the_grant(message: str) -> Column:
    """That message of the mailbox was granted earlier in the grant of `e`."""
    same = (
        (f.col("m.partition") == f.col("e.partition"))
        & (f.col("m.mailbox") == f.col("e.mailbox"))
        & (f.col("m.message_sequence") == f.col(message))
        & (f.col("m.first") < f.col("e.granted"))
    )
    for name in _GRANT:
        same &= f.col(f"m.{name}").eqNullSafe(f.col(f"e.{name}"))
    return same
