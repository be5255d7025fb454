"""Many small files of bronze into few: a new generation, which `Bronze.switch` makes count."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from relaymesh.errors import JournalDamaged
from relaymesh.pipeline.bronze.folder import Bronze
from relaymesh.pipeline.bronze.snapshot import BronzeSnapshot, Generation
from relaymesh.pipeline.bronze.spans import merged
from relaymesh.pipeline.schema.bronze import EVENTS
from relaymesh.pipeline.schema.content import CONTENT, EXTRA
from relaymesh.pipeline.tables.manifest import Piece, files_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["compact_bronze", "without_content"]


def compact_bronze(
    spark: SparkSession, bronze: Bronze, through_batch: int, run_id: str, *, content: bool = True
) -> Generation | None:
    """Write the days anew that are in many small files; None: there are none. `Bronze.switch` makes it count.

    Only published batches: the next refresh must still distinguish later ones. Without `content` every day is
    written anew if any row holds the content of a message.
    """
    snapshot = bronze.snapshot().through(through_batch)
    clears = snapshot.content and not content
    days = set(snapshot.days) if clears else _crowded(snapshot)
    if not days and len(snapshot.batches) < 2:
        return None
    kept = [piece for piece in snapshot.of_events if piece.day not in days]
    made: list[Piece] = []
    if days:
        old = [piece for piece in snapshot.of_events if piece.day in days]
        rows = bronze.read(spark, old).repartition("event_date")
        if clears:
            rows = without_content(rows)
        ordered = rows.sortWithinPartitions("event_date", "operation", "partition", "sequence")
        folder = bronze.write(ordered, f"c-{run_id}")  # by operation, as the ingest writes: see files.py
        made = bronze.pieces(folder)
        if bronze.measure(spark, made) != merged(each for each in snapshot.stretches if each.day in days):
            raise JournalDamaged(
                f"the compacted files in {folder} hold other events than the batches",
                hint="the batches are still in use; check the disk and compact again",
            )
    return Generation(
        generation=snapshot.generation.generation + 1,
        through_batch=snapshot.through_batch,
        run_id=run_id,
        pieces=sorted([*kept, *made], key=lambda piece: (piece.day, piece.folder)),
        stretches=snapshot.stretches,
        gaps=snapshot.gaps,
        segments=snapshot.segments,
        content=snapshot.content and not clears,
        kept=snapshot.generation.kept,
        forgotten=snapshot.forgotten,
    )


def without_content(rows: DataFrame) -> DataFrame:
    """Rows of bronze as the source gives them with includeContent=false."""
    usage = f.to_json(f.from_json("extra", EXTRA))
    kept = {"extra": f.when(usage != "{}", usage)}
    return rows.withColumns(kept | {name: f.lit(None).cast(EVENTS[name].dataType) for name in CONTENT})


def _crowded(snapshot: BronzeSnapshot) -> set[str]:
    """Days that are in more files than their rows need."""
    files: Counter[str] = Counter()
    rows: Counter[str] = Counter()
    for piece in snapshot.of_events:
        files[piece.day] += piece.files
    for stretch in snapshot.stretches:
        rows[stretch.day] += stretch.rows
    return {day for day in files if files[day] > files_for(rows[day])}
