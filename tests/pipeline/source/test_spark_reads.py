"""The format `relaymesh` inside Spark: found by its name, read in parallel, read on from where it stopped."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from relaymesh.pipeline.schema.bronze import EVENTS, QUARANTINE
from tests.pipeline.source.journals import mesh_of, one_of_each, segments, traffic, write_frames
from tests.pipeline.streaming import run_to_its_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def ingest(spark: SparkSession, journal: Path | str, root: Path, **options: object) -> int:
    """Everything there is now into Parquet, going on where the last call ended; how many batches it took."""
    stream = spark.readStream.format("relaymesh")
    for name, value in options.items():
        stream = stream.option(name, str(value))
    writing = (
        stream.load(str(journal))
        .writeStream.format("parquet")
        .option("checkpointLocation", str(root / "checkpoint"))
        .option("path", str(root / "rows"))
        .trigger(availableNow=True)
    )
    query = run_to_its_end(writing.start)
    return sum(1 for progress in query.recentProgress if progress.numInputRows)


def rows_of(spark: SparkSession, root: Path) -> DataFrame:
    return spark.read.parquet(str(root / "rows"))


def test_the_format_is_found_without_registering_it(spark: SparkSession, tmp_path: Path) -> None:
    write_frames(tmp_path, [one_of_each()])
    frame = spark.read.format("relaymesh").load(str(tmp_path))
    assert frame.schema == EVENTS
    rows = frame.orderBy("sequence").collect()
    events = sum([record.count for record in one_of_each()])
    assert [row.sequence for row in rows] == list(range(1, events + 1))
    assert rows[3].operation == "APPEND"
    assert rows[3].content == b'{"n":1}'
    assert rows[3].timestamp.isoformat() == "2026-01-01T00:00:00"


def test_many_tasks_read_each_event_once(spark: SparkSession, tmp_path: Path) -> None:
    write_frames(tmp_path, traffic(40))
    frame = spark.read.format("relaymesh").option("rowsPerPartition", 20).load(str(tmp_path))
    assert frame.rdd.getNumPartitions() > 10
    counts = {row["operation"]: row["count"] for row in frame.groupBy("operation").count().collect()}
    assert counts == {"APPEND": 120, "GRANT": 120, "ACK": 120}
    assert frame.select("sequence").distinct().count() == 360


def test_a_filter_of_one_query_does_not_touch_the_next(spark: SparkSession, tmp_path: Path) -> None:
    write_frames(tmp_path, traffic(4))
    frame = spark.read.format("relaymesh").load(str(tmp_path))
    assert frame.filter("operation = 'ACK'").count() == 12
    assert frame.count() == 36


def test_a_stream_goes_on_where_it_stopped(spark: SparkSession, tmp_path: Path) -> None:
    journal, out = tmp_path / "data", tmp_path / "out"
    write_frames(journal, traffic(20))
    assert ingest(spark, journal, out, maxRowsPerBatch=50) == 4
    assert rows_of(spark, out).count() == 180
    assert ingest(spark, journal, out) == 0
    write_frames(journal, traffic(5))
    ingest(spark, journal, out)
    rows = rows_of(spark, out)
    assert rows.count() == rows.select("sequence").distinct().count() == 225


def test_a_stream_goes_on_under_any_spelling_of_its_path_after_a_move_and_in_a_copy(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Each restart on one checkpoint reads the nine events that are new, and none again."""
    live, out = tmp_path / "live", tmp_path / "out"
    (tmp_path / "link").symlink_to("live")
    relative = os.path.relpath(live)
    spellings = [relative, f"./{relative}", str(live), str(tmp_path / "link")]
    for number, spelling in enumerate(spellings, start=1):
        write_frames(live, traffic(1))
        ingest(spark, spelling, out)
        assert sequences_in(spark, out) == list(range(1, 9 * number + 1)), spelling

    moved = live.rename(tmp_path / "moved")
    write_frames(moved, traffic(1))
    ingest(spark, moved, out)
    assert sequences_in(spark, out) == list(range(1, 46))

    shutil.copytree(moved, tmp_path / "copy")
    assert ingest(spark, tmp_path / "copy", out) == 0, "it holds what was read, and nothing else"
    write_frames(tmp_path / "copy", traffic(1))
    ingest(spark, tmp_path / "copy", out)
    assert sequences_in(spark, out) == list(range(1, 55))

    write_frames(moved, traffic(2))  # now each of the two has events of its own
    with pytest.raises(StreamingQueryException, match=r"moved is a copy of the mesh .* has diverged"):
        ingest(spark, moved, out)
    assert sequences_in(spark, out) == list(range(1, 55))


def sequences_in(spark: SparkSession, root: Path) -> list[int]:
    return sorted(row.sequence for row in rows_of(spark, root).select("sequence").collect())


def test_damage_stops_a_read_and_names_the_place(spark: SparkSession, tmp_path: Path) -> None:
    write_frames(tmp_path, traffic(20))
    victim = segments(tmp_path)[1]
    data = bytearray(victim.read_bytes())
    data[300] ^= 1
    victim.write_bytes(data)
    with pytest.raises(Exception, match=rf"{victim.name} is damaged at offset \d+") as caught:
        spark.read.format("relaymesh").load(str(tmp_path)).count()
    assert "quarantine=rows" in str(caught.value)

    def read(**options: str) -> DataFrame:
        return spark.read.format("relaymesh").options(**options).load(str(tmp_path))

    bad = read(table="quarantine")
    assert bad.schema == QUARANTINE
    (row,) = bad.collect()
    assert (row.source, row.segment) == (mesh_of(tmp_path), victim.name)
    assert "the checksum does not match; events" in row.reason
    whole = read(quarantine="rows")
    assert 150 < whole.count() < 180
