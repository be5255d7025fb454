"""Where failures were treated otherwise than the default failure contract says.

A mailbox may have a contract of its own, and the mesh applies it. This table compares what happened with the
default, because a contract that retries what no retry can cure should be reviewed.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from relaymesh.kernel.contract import DEFAULT_CONTRACT
from relaymesh.pipeline.schema.gold import CONTRACT_VIOLATIONS
from relaymesh.pipeline.silver.mailbox_settings import default_retries
from relaymesh.pipeline.silver.operations import KEY

__all__ = ["contract_violations"]

_MAILBOX = ["partition", "namespace", "mailbox"]
_RETRIED = ("nack", "lease_expired", "reclaimed")


def contract_violations(messages: DataFrame, attempts: DataFrame) -> DataFrame:
    """One row per mailbox, class of error and kind of violation."""
    found = reduce(DataFrame.unionByName, (*_retried(messages, attempts), *_ended(messages)))
    return (
        found.groupBy(*_MAILBOX, "code", "violation")
        .agg(
            f.count_distinct("message_sequence").alias("messages"),
            f.sum("excess").alias("attempts"),
            f.min("seen_at").alias("first_seen"),
            f.max("seen_at").alias("last_seen"),
            f.min("message_sequence").alias("example_sequence"),
        )
        .withColumn("reasoning", _reasoning())
        .to(CONTRACT_VIOLATIONS)
    )


def _retried(messages: DataFrame, attempts: DataFrame) -> tuple[DataFrame, DataFrame]:
    limit = default_retries(f.col("code"))
    again = attempts.filter(f.col("outcome").isin(*_RETRIED)).withColumn("limit", limit)
    wishes = messages.filter(f.col("max_retries").isNotNull()).select(*KEY)
    row: list[str | Column] = [
        *_MAILBOX,
        "message_sequence",
        "code",
        f.col("ended_at").alias("seen_at"),
        f.lit(1).alias("excess"),
    ]
    final = again.filter("limit = 0").select(*row, f.lit("retried_final").alias("violation"))
    # A sender that asks for its own number of retries gets it: that is no violation.
    often = again.filter("limit > 0 and attempt > limit").join(wishes, [*KEY], "left_anti")
    return final, often.select(*row, f.lit("retried_too_often").alias("violation"))


def _ended(messages: DataFrame) -> tuple[DataFrame, DataFrame]:
    dead = messages.filter((f.col("final_state") == "dead") & f.col("code").isNotNull()).withColumn(
        "limit", default_retries(f.col("code"))
    )
    row: list[str | Column] = [*_MAILBOX, "message_sequence", "code", f.col("settled_at").alias("seen_at")]
    early = dead.filter("reason = 'retries_exhausted' and attempts <= limit and max_retries is null")
    woken = sorted(code for code, rule in DEFAULT_CONTRACT.items() if rule.alert)
    silent = dead.filter(f.lower("code").isin(*woken) & ~f.coalesce("alert", f.lit(False)))
    missing = (f.col("limit") + 1 - f.col("attempts")).alias("excess")
    return (
        early.select(*row, missing, f.lit("gave_up_early").alias("violation")),
        silent.select(*row, f.lit(0).alias("excess"), f.lit("left_without_alert").alias("violation")),
    )


def _reasoning() -> Column:
    said = f.format_string("the default contract gives %s %d retries", "code", default_retries(f.col("code")))
    happened = {
        "retried_final": "no retry can cure it, and yet it was tried again",
        "retried_too_often": "it was tried more often",
        "gave_up_early": "it was given up before",
        "left_without_alert": "it also asks for an alert when one dies, and none was asked for",
    }
    words = f.create_map(*[f.lit(part) for pair in happened.items() for part in pair])
    return f.concat(said, f.lit("; "), words[f.col("violation")])
