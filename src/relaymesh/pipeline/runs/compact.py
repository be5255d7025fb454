"""Many small files into few: bronze as a new generation, tables as a new run.

Rows stay as they are, and readers switch in one rename.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from relaymesh.errors import JournalDamaged
from relaymesh.pipeline.schema.bronze import EVENTS
from relaymesh.pipeline.schema.content import CONTENT, EXTRA
from relaymesh.pipeline.tables.bronze import Bronze, BronzeSnapshot, Generation, merged
from relaymesh.pipeline.tables.formats import NO_DAY
from relaymesh.pipeline.tables.manifest import ROWS_PER_FILE, Piece, PublishedTable
from relaymesh.pipeline.tables.store import Draft

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["compact_bronze", "compact_tables"]


def compact_bronze(
    spark: SparkSession, bronze: Bronze, through_batch: int, run_id: str, *, content: bool = True
) -> Generation | None:
    """Rewrite the days that are in many small files; None: there are none. `Bronze.switch` makes it count.

    Only published batches are compacted: the next refresh must still tell later batches apart. Without
    `content`, every day is rewritten if any row holds the content of a message.
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
    return {day for day in files if files[day] > _files_for(rows[day])}


def _files_for(rows: int) -> int:
    return max(1, -(-rows // ROWS_PER_FILE))


def compact_tables(spark: SparkSession, draft: Draft) -> list[str]:
    """Rewrite the days of tables that are in many small files. Returns the tables' names.

    Delta and Iceberg tables have their own commands for this, and are left alone.
    """
    done = []
    for table in list(draft.tables.values()):
        crowded = _crowded_days(table)
        if not crowded or table.location is not None:
            continue
        by_day = table.day_column is not None
        rows = draft.read(spark, table.name)
        if by_day:
            day = f.coalesce(f.col(str(table.day_column)).cast("string"), f.lit(NO_DAY))
            rows = rows.where(day.isin(crowded))
        draft.write(
            table.name,
            rows if by_day else rows.coalesce(1),
            layer=table.layer,
            version=table.version,
            day_column=table.day_column,
            days=crowded if by_day else None,
        )
        done.append(table.name)
    return done


def _crowded_days(table: PublishedTable) -> list[str]:
    return [part.day or "" for part in table.parts if len(part.files) > _files_for(part.rows)]
