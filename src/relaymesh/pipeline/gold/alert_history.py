"""When the five alert rules would have fired."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from relaymesh.pipeline.gold.formulas import ms_between
from relaymesh.pipeline.schema.gold import ALERT_HISTORY

__all__ = ["alert_history"]

LATENCY_MS = 5_000.0
DEPTH = 1_000.0
LETTERS_PER_HOUR = 50.0
FAILURE_SHARE = 0.05
WRITE_MS = 100.0

_WINDOW = "5 minutes"
_PLACE = ["partition", "mailbox"]


def alert_history(
    messages: DataFrame, attempts: DataFrame, backlog: DataFrame, dead_letters: DataFrame
) -> DataFrame:
    """One row per stretch of time in which a rule held, and one for the rule that cannot be evaluated."""
    fired = reduce(
        DataFrame.unionByName,
        (
            _rule("latency_high", "warning", LATENCY_MS, "ms", _latency(messages), f"p99 of {_WINDOW}"),
            _rule("queue_deep", "critical", DEPTH, "messages", _depth(backlog), "largest second of a minute"),
            _rule(
                "dead_letters_growing",
                "warning",
                LETTERS_PER_HOUR,
                "letters",
                _letters(dead_letters),
                "letters of the hour that ends with each letter",
            ),
            _rule("failures_high", "critical", FAILURE_SHARE, "share", _failures(attempts), f"of {_WINDOW}"),
        ),
    )
    return _episodes(fired).unionByName(_not_evaluable(messages)).to(ALERT_HISTORY)


def _rule(name: str, severity: str, threshold: float, unit: str, values: DataFrame, note: str) -> DataFrame:
    """The windows (`begin`, `end`, `value`) in which the rule held."""
    return values.filter(f.col("value") > threshold).select(
        f.lit(name).alias("rule"),
        f.lit(severity).alias("severity"),
        *_PLACE,
        "begin",
        "end",
        f.col("value").cast("double").alias("value"),
        f.lit(threshold).alias("threshold"),
        f.lit(unit).alias("unit"),
        f.lit(note).alias("note"),
    )


def _latency(messages: DataFrame) -> DataFrame:
    acked = messages.filter(f.col("final_state") == "acked")
    worst = f.percentile(ms_between("due_at", "settled_at"), 0.99)
    return _windows(acked.groupBy(*_PLACE, f.window("settled_at", _WINDOW)).agg(worst.alias("value")))


def _failures(attempts: DataFrame) -> DataFrame:
    ended = attempts.filter(f.col("burned") & f.col("ended_at").isNotNull())
    failed = f.count_if(f.col("failed")) / f.count("*")
    return _windows(ended.groupBy(*_PLACE, f.window("ended_at", _WINDOW)).agg(failed.alias("value")))


def _windows(grouped: DataFrame) -> DataFrame:
    return grouped.select(
        *_PLACE, f.col("window.start").alias("begin"), f.col("window.end").alias("end"), "value"
    )


def _depth(backlog: DataFrame) -> DataFrame:
    """A minute without a row is as deep as the last second before it."""
    order = Window.partitionBy(*_PLACE).orderBy("minute")
    minute = f.col("minute") + f.expr("interval 1 minute")
    following = f.lead("minute").over(order)
    busy = backlog.select(
        *_PLACE, f.col("minute").alias("begin"), minute.alias("end"), f.col("backlog_peak").alias("value")
    )
    quiet = (
        backlog.withColumn("following", following)
        .filter(f.col("following") > minute)
        .select(
            *_PLACE, minute.alias("begin"), f.col("following").alias("end"), f.col("backlog").alias("value")
        )
    )
    return busy.unionByName(quiet)


def _letters(dead_letters: DataFrame) -> DataFrame:
    """New letters of the whole mesh in the hour before each letter, itself included."""
    timed = dead_letters.withColumn("second", f.unix_seconds("dead_at"))
    hour = Window.partitionBy("partition").orderBy("second").rangeBetween(-3599, 0)
    return timed.select(
        "partition",
        f.lit(None).cast("string").alias("mailbox"),
        f.col("dead_at").alias("begin"),
        f.col("dead_at").alias("end"),
        f.count("*").over(hour).alias("value"),
    )


def _episodes(fired: DataFrame) -> DataFrame:
    """Windows that touch, or letters less than an hour apart, are one stretch."""
    by = ["rule", "severity", *_PLACE, "threshold", "unit", "note"]
    order = Window.partitionBy("rule", *_PLACE).orderBy("begin")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    slack = f.when(f.col("rule") == "dead_letters_growing", f.expr("interval 1 hour")).otherwise(
        f.expr("interval 0 hour")
    )
    last = f.max("end").over(before)
    fresh = f.coalesce(f.col("begin") > last + slack, f.lit(True)).cast("int")
    return (
        fired.withColumn("fresh", fresh)
        .withColumn("episode", f.sum("fresh").over(order))
        .groupBy(*by, "episode")
        .agg(
            f.min("begin").alias("started_at"),
            f.max("end").alias("ended_at"),
            f.count("*").alias("windows"),
            f.max("value").alias("peak"),
        )
        .withColumn("evaluable", f.lit(True))
        .drop("episode")
    )


def _not_evaluable(messages: DataFrame) -> DataFrame:
    """How long a write took is known to the node that waited for it, and stands in no frame."""
    one = messages.sparkSession.range(1)
    nothing = {name: f.lit(None) for name in ("mailbox", "started_at", "ended_at", "peak")}
    kinds = {"mailbox": "string", "started_at": "timestamp", "ended_at": "timestamp", "peak": "double"}
    return one.select(
        f.lit("journal_slow").alias("rule"),
        f.lit("warning").alias("severity"),
        f.lit(None).cast("int").alias("partition"),
        *[value.cast(kinds[name]).alias(name) for name, value in nothing.items()],
        f.lit(0).cast("long").alias("windows"),
        f.lit(WRITE_MS).alias("threshold"),
        f.lit("ms").alias("unit"),
        f.lit(False).alias("evaluable"),
        f.lit("a frame does not say how long its write took: ask the node's metrics").alias("note"),
    )
