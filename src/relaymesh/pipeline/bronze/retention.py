"""`keep_days`: forgetting whole days of bronze, the oldest first.

A day is forgotten when it is older than that, is published, every message that began on it or before is
settled, and every task has ended: an unfinished message or task keeps its day, and the days after it. So
tables lose only messages and tasks with all their events, and sums still agree. Events about mailboxes,
subscriptions and agents are kept, with frame_offset -1: later messages are routed and judged by them.

The order of writing: the file of events to keep; then bronze/generation.json, which no longer names the days
and says up to which event each journal was forgotten. From then on no reader uses them. The tables are then
rebuilt and published; if a run is killed before that, the next run does it. The files are removed when no
kept publish names them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from relaymesh.pipeline.bronze.folder import Bronze
from relaymesh.pipeline.bronze.snapshot import BronzeSnapshot, Generation
from relaymesh.pipeline.bronze.spans import Forgotten
from relaymesh.pipeline.tables.manifest import Manifest, Piece

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["KEPT", "days_to_forget", "first_day", "forget_days", "forgotten_without"]

KEPT = ("START", "OPEN_MAILBOX", "SUBSCRIBE", "UNSUBSCRIBE", "SUSPEND", "RESUME", "REGISTER")
"""Operations that later messages are routed and judged by."""
MESSAGES = "messages"
UNFINISHED = {MESSAGES: "settled_at", "tasks": "ended_at"}
"""Tables by the day on which something began, and the column that is null while it is not finished."""


def days_to_forget(root: Path, snapshot: BronzeSnapshot, manifest: Manifest, first: date) -> list[str]:
    """The oldest days of bronze that may be removed, of those before `first`. Needs no Spark.

    None while a batch is not published, or the tables were made from other events: their messages' states
    are not known.
    """
    if MESSAGES not in manifest.tables or snapshot.inputs() != manifest.inputs:
        return []
    found: list[str] = []
    for day in sorted({each.day for each in snapshot.stretches}):
        if day >= str(first) or any(_waits(root, manifest, name, day) for name in UNFINISHED):
            break
        found.append(day)
    while found and not _is_beginning(snapshot, found):
        found.pop()
    return found


def _waits(root: Path, manifest: Manifest, name: str, day: str) -> bool:
    """Whether a row of this day, in this table, is of something that is not finished."""
    import pyarrow.parquet as pq  # type: ignore[import-untyped] # noqa: PLC0415 - most runs forget nothing

    parts = manifest.tables[name].parts if name in manifest.tables else []
    files = [file.path for part in parts if part.day == day for file in part.files]
    column = UNFINISHED[name]
    return any(pq.ParquetFile(root / path).read([column]).column(0).null_count for path in files)


def _is_beginning(snapshot: BronzeSnapshot, days: Sequence[str]) -> bool:
    """Whether the events of these days come before all others; one with a damaged time may not."""
    ends = {(each.source, each.partition): each.last for each in _forgotten(snapshot, days)}
    return all(
        each.first > ends.get((each.source, each.partition), -1)
        for each in snapshot.stretches
        if each.day not in days
    )


def _forgotten(snapshot: BronzeSnapshot, days: Sequence[str]) -> list[Forgotten]:
    """Up to where each journal is forgotten without these days, including what was forgotten before."""
    found = {(each.source, each.partition): each for each in snapshot.forgotten}
    for each in snapshot.stretches:
        if each.day in days:
            key = (each.source, each.partition)
            before = found.get(key)
            first = each.first if before is None else min(before.first, each.first)
            last = each.last if before is None else max(before.last, each.last)
            day = each.day if before is None else max(before.day, each.day)
            found[key] = Forgotten(*key, first, last, day)
    return [found[key] for key in sorted(found)]


def forget_days(
    spark: SparkSession, bronze: Bronze, snapshot: BronzeSnapshot, days: Sequence[str], run_id: str
) -> Generation:
    """Bronze without these days. `Bronze.switch` makes it count."""
    old = [piece for piece in snapshot.of_events if piece.day in days]
    kept = _kept(spark, bronze, [*snapshot.generation.kept, *old], run_id)
    return structs.replace(forgotten_without(snapshot, days), run_id=run_id, kept=kept)


def forgotten_without(snapshot: BronzeSnapshot, days: Sequence[str]) -> Generation:
    """The next generation, but for the run and the events it keeps. Gaps before its beginning go too."""
    forgotten = _forgotten(snapshot, days)
    ends = {(each.source, each.partition): each.last for each in forgotten}
    return Generation(
        generation=snapshot.generation.generation + 1,
        through_batch=snapshot.through_batch,
        pieces=[piece for piece in snapshot.of_events if piece.day not in days],
        stretches=[each for each in snapshot.stretches if each.day not in days],
        gaps=[gap for gap in snapshot.gaps if gap.last > ends.get((gap.source, gap.partition), -1)],
        content=snapshot.content,
        forgotten=forgotten,
        segments=snapshot.segments,
    )


def _kept(spark: SparkSession, bronze: Bronze, pieces: Sequence[Piece], run_id: str) -> list[Piece]:
    from pyspark.sql import functions as f  # noqa: PLC0415 - `days_to_forget` must not need pyspark

    rows = bronze.read(spark, pieces).where(f.col("operation").isin(*KEPT))
    rows = rows.withColumn("frame_offset", f.lit(-1).cast("long")).repartition("event_date")
    return bronze.pieces(bronze.write(rows.sortWithinPartitions("partition", "sequence"), f"k-{run_id}"))


def first_day(today: date, keep_days: int) -> date:
    """The first day of the last `keep_days`, today included."""
    return today - timedelta(days=keep_days - 1)
