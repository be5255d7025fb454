"""Many small files of the tables into few, as a new run.

Rows stay as they are, and readers switch in one rename. For bronze see bronze/compaction.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from relaymesh.pipeline.tables.formats import NO_DAY
from relaymesh.pipeline.tables.manifest import PublishedTable, files_for
from relaymesh.pipeline.tables.store import Draft

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["compact_tables"]


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
    return [part.day or "" for part in table.parts if len(part.files) > files_for(part.rows)]
