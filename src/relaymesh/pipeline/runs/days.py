"""Which days a run must refresh, and how much of bronze it needs to read for them.

A row of silver is about a message, and a message lives longer than a day: accepted on Monday, dead on
Tuesday, redriven on Friday. With two rules a refresh by day gives the same result as a full one:

- A day is TOUCHED when a new event is about a message that did anything on it: came in, was delivered, died.
- To rebuild days, read every event of every message that did anything on them: all events about messages
  accepted from the oldest such message on (the FLOOR), and the few events that are about no message
  (mailboxes, subscriptions, starts), which are read from the beginning.

So a message that is settled after a month makes its run read back a month, and nothing is ever too late.

Rows about a task, its steps and their attempts are kept by the day of its submit. A new event about a task,
or about a message of its steps, touches that day. All events of a task come after its submit, so the floor of
that day is low enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from relaymesh.pipeline.bronze.folder import Bronze
from relaymesh.pipeline.bronze.snapshot import BronzeSnapshot
from relaymesh.pipeline.silver.operations import OF_TASKS
from relaymesh.pipeline.silver.step_messages import step_messages

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["late_window", "slice_for", "touched_days"]

CONTEXT = ("START", "OPEN_MAILBOX", "SUBSCRIBE", "UNSUBSCRIBE", "SUSPEND", "RESUME")
_STREAM = ("source", "partition")


def touched_days(
    spark: SparkSession, bronze: Bronze, snapshot: BronzeSnapshot, after_batch: int
) -> list[str]:
    """The days that the batches after this one touch."""
    new = [piece for batch in snapshot.after(after_batch) for piece in batch.pieces]
    if not new:
        return []
    everything = bronze.read(spark, snapshot.pieces)
    arrived = bronze.read(spark, new)
    about = _entries(arrived, everything)
    named = about.unionByName(_submits(arrived, about, everything)).distinct()
    lives = everything.select(
        *_STREAM, _entry().alias("entry"), f.col("event_date").cast("string").alias("day")
    )
    days = lives.join(named, [*_STREAM, "entry"]).select("day").distinct()
    return sorted(row.day for row in days.collect())


def late_window(days: Sequence[str], known: Iterable[str], late_days: int) -> list[str]:
    """The days, and those of the `late_days` before the newest of them that hold events."""
    if not days:
        return []
    newest = date.fromisoformat(max(days))
    window = {str(newest - timedelta(days=back)) for back in range(1, late_days + 1)}
    return sorted(set(days) | (window & set(known)))


def slice_for(
    spark: SparkSession, bronze: Bronze, snapshot: BronzeSnapshot, days: Sequence[str]
) -> DataFrame:
    """All events that the rows of these days are made from."""
    everything = bronze.read(spark, snapshot.pieces)
    if set(days) >= set(snapshot.days):
        return everything
    floors = _lowest(_entries(bronze.read(spark, snapshot.pieces, days), everything))
    while True:  # a redriven message brings the one it was made from along: until no floor sinks
        redrives = everything.where(f.col("operation") == "REDRIVE").where(_from(floors))
        sunk = _lowest(_entries(redrives, everything)) if floors else {}
        lower = {stream: min(floor, sunk.get(stream, floor)) for stream, floor in floors.items()}
        if lower == floors:
            break
        floors = lower
    return everything.where(_from(floors) | f.col("operation").isin(*CONTEXT))


def _entries(events: DataFrame, everything: DataFrame) -> DataFrame:
    """The accept sequences of the messages these events are about: source, partition, entry.

    REDRIVE and PURGE name a dead letter, and so the message that died.
    """
    own = events.select(*_STREAM, _entry().alias("entry"))
    letters = events.where(f.col("operation").isin("REDRIVE", "PURGE")).select(*_STREAM, "dead_sequence")
    died = everything.where(f.col("operation") == "DEAD_LETTER").select(
        *_STREAM, f.col("sequence").alias("dead_sequence"), f.col("message_sequence").alias("entry")
    )
    behind = letters.join(died, [*_STREAM, "dead_sequence"]).select(*_STREAM, "entry")
    return own.unionByName(behind)


def _submits(events: DataFrame, entries: DataFrame, everything: DataFrame) -> DataFrame:
    """The submits of the tasks that these events are about, or whose messages these entries are."""
    work = step_messages(everything).select("partition", f.col("message_sequence").alias("entry"), "task_id")
    said = events.where(f.col("operation").isin(*OF_TASKS)).select(*_STREAM, "task_id")
    behind = entries.join(work, ["partition", "entry"]).select(*_STREAM, "task_id")
    begun = everything.where(f.col("operation") == "SUBMIT").select(
        *_STREAM, "task_id", f.col("sequence").alias("entry")
    )
    return said.unionByName(behind).distinct().join(begun, [*_STREAM, "task_id"]).select(*_STREAM, "entry")


def _entry() -> Column:
    """Which message an event is about; an event about no message is its own group."""
    return f.coalesce("message_sequence", "sequence")


def _lowest(entries: DataFrame) -> dict[tuple[str, int], int]:
    rows = entries.groupBy(*_STREAM).agg(f.min("entry").alias("floor")).collect()
    return {(row.source, row.partition): row.floor for row in rows}


def _from(floors: dict[tuple[str, int], int]) -> Column:
    """Events about messages that were accepted at the floor of their stream or later."""
    entry = _entry()
    each = (
        (f.col("source") == source) & (f.col("partition") == partition) & (entry >= floor)
        for (source, partition), floor in floors.items()
    )
    return reduce(lambda one, other: one | other, each, f.lit(False))
