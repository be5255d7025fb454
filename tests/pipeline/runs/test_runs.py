"""Runs on three small tables: what is taken in, refreshed, published, and what is left alone."""

from __future__ import annotations

import json
import shutil
import threading
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from relaymesh.errors import DirectoryInUse, NotFound
from relaymesh.journal.layout import ARCHIVE
from relaymesh.pipeline.runs.status import status_of
from relaymesh.pipeline.tables.inspection import WarehouseDamaged
from tests.pipeline.runs.traffic import Traffic
from tests.pipeline.runs.whole import assert_bronze_is_the_journal, check_whole, watching
from tests.pipeline.source.journals import mesh_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from relaymesh.pipeline.runs.record import RunRecord
    from relaymesh.pipeline.runs.stages import Stage
    from tests.pipeline.runs.conftest import Opening


def rows(df: DataFrame) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in df.collect())


def test_a_second_run_finds_nothing_new_and_a_lost_commit_takes_nothing_twice(
    pipeline: Opening, traffic: Traffic, tmp_path: Path
) -> None:
    opened = pipeline(batch_events=40)
    first = opened.run()
    assert first.status == "published"
    assert len(first.batches) > 1, "admission control cuts the journal into batches"
    assert [told["batch"] for told in first.progress] == first.batches
    assert sum(told["rows"] for told in first.progress) == first.events
    assert_bronze_is_the_journal(opened.store, traffic.path)
    consumer = json.loads((traffic.path / "consumers" / "pipeline.json").read_text())
    assert consumer["sequence"] == first.events + 1

    published = check_whole(opened.store)
    assert opened.run().status == "nothing new"
    assert check_whole(opened.store) == published

    # The driver died after bronze had committed the batch and before Spark had: Spark runs it again.
    commits = tmp_path / "tables" / "checkpoints" / "bronze" / "commits"
    for path in (commits / str(first.batches[-1]), commits / f".{first.batches[-1]}.crc"):
        path.unlink(missing_ok=True)
    traffic.day()
    assert opened.run().status == "published"
    assert_bronze_is_the_journal(opened.store, traffic.path)


def test_days_are_refreshed_computed_anew_and_compacted_to_the_rows_of_a_full_build(
    pipeline: Opening, traffic: Traffic, spark: SparkSession
) -> None:
    from tests.pipeline.runs.tiny import entries

    opened = pipeline(batch_events=40)
    opened.run()
    for _ in range(2):
        traffic.day()
    second = opened.run()
    assert second.days == ["2026-03-01", "2026-03-02", "2026-03-03", "2026-03-04"]
    traffic.day()
    third = opened.run()
    assert "2026-03-01" not in third.days, "nothing that lives touched the first day"
    assert third.days[-1] == "2026-03-05"

    def published() -> list[tuple[object, ...]]:
        return rows(opened.store.current(spark, "entries"))

    snapshot = opened.bronze.snapshot()
    full = rows(entries(opened.bronze.read(spark, snapshot.pieces)))
    assert published() == full

    before = check_whole(opened.store)
    for _ in range(2):
        assert opened.backfill(date(2026, 3, 2), date(2026, 3, 2)).status == "published"
        after = check_whole(opened.store)
        assert published() == full
        assert before is not None
        assert after is not None
        kept = [part for part in before.tables["entries"].parts if part.day != "2026-03-02"]
        assert [part for part in after.tables["entries"].parts if part.day != "2026-03-02"] == kept

    files = sum(piece.files for piece in snapshot.pieces)
    compacted = opened.compact()
    assert compacted.status == "published"
    assert sum(piece.files for piece in opened.bronze.snapshot().pieces) < files
    assert_bronze_is_the_journal(opened.store, traffic.path)
    assert published() == full
    assert opened.compact().status == "nothing to do"

    traffic.day()
    assert opened.run().status == "published"
    assert_bronze_is_the_journal(opened.store, traffic.path)
    with pytest.raises(NotFound, match="no events from 2020-01-01"):
        opened.backfill(date(2020, 1, 1), date(2020, 1, 2))


def test_a_failed_audit_fails_the_run_publishes_nothing_and_keeps_what_it_found(
    pipeline: Opening, traffic: Traffic, spark: SparkSession, tmp_path: Path
) -> None:
    from relaymesh.pipeline.runs.failures import AuditFailed
    from tests.pipeline.runs.tiny import tiny_catalog, violations

    pipeline().run()
    before = check_whole(pipeline().store)
    traffic.day()
    with pytest.raises(AuditFailed, match="planted of audit_violations is 3") as failed:
        pipeline(tables=tiny_catalog(violations)).run()
    assert check_whole(pipeline().store) == before
    assert spark.read.parquet(str(failed.value.kept / "audit_violations")).count() == 3
    [told] = json.loads((failed.value.kept / "expectations.json").read_text())
    assert (told["metric"], told["value"], told["passed"]) == ("planted", 3, False)

    status = status_of(tmp_path / "tables")
    assert status.runs[0].status == "failed"
    assert status.failed_expectations[0]["metric"] == "planted"
    assert status.lags[0].not_in_bronze == 0
    assert status.lags[0].not_published > 0
    assert status.lags[0].seconds > 0

    mended = pipeline().run()  # what the failed run took in is still there, and is published now
    assert (mended.status, mended.events) == ("published", 0)
    assert_bronze_is_the_journal(pipeline().store, traffic.path)
    assert status_of(tmp_path / "tables").lags[0].not_published == 0


def test_late_events_open_their_day_again_and_archived_segments_are_read_where_they_went(
    pipeline: Opening, traffic: Traffic, spark: SparkSession, tmp_path: Path
) -> None:
    traffic.mesh.close()
    traffic.reopen()  # a second segment: the first is sealed
    traffic.day()
    archived: list[str] = []

    def archive(stage: Stage, detail: str, done: int, of: int) -> None:
        sealed = sorted((traffic.path / "journal").glob("*.rmj"))[:-1]
        for segment in sealed:
            (traffic.path / ARCHIVE).mkdir(exist_ok=True)
            segment.rename(traffic.path / ARCHIVE / segment.name)
            archived.append(segment.name)

    opened = pipeline(observer=archive, batch_events=40)
    assert opened.run().status == "published"
    assert archived
    assert_bronze_is_the_journal(opened.store, traffic.path)

    # A machine that was away brings a journal of the first day, when three more have been published.
    late = Traffic(tmp_path / "late", start=datetime(2026, 3, 1, 9, tzinfo=UTC))
    late.day()
    late.close()
    both = pipeline(directories=(traffic.path, late.path))
    record = both.run()
    assert record.days == ["2026-03-01"]
    counts = both.bronze.read(spark, both.bronze.snapshot().pieces).groupBy("source", "partition").count()
    assert {(row.source, row.partition) for row in counts.collect()} == {
        (mesh_of(traffic.path), 0),
        (mesh_of(late.path), 1),
    }
    assert pipeline().run().status == "nothing new", "a warehouse remembers its directories"


def test_follow_publishes_what_comes_and_stops_when_told(
    pipeline: Opening, traffic: Traffic, tmp_path: Path
) -> None:
    opened = pipeline(publish_every_s=0.5, trigger_s=0.2)
    stop, first, more = threading.Event(), threading.Event(), threading.Event()
    published: list[RunRecord] = []

    def seen(record: RunRecord) -> None:
        published.append(record)
        (more if first.is_set() else first).set()

    following = threading.Thread(target=lambda: opened.follow(stop, seen))
    with watching(opened.store):
        following.start()
        assert first.wait(120)
        with pytest.raises(DirectoryInUse, match="follow"):
            pipeline().run()
        traffic.day()
        assert more.wait(120)
        stop.set()
        following.join(120)
    assert not following.is_alive()
    assert_bronze_is_the_journal(opened.store, traffic.path)
    events = [record.events for record in published]
    assert all(events), "each publish tells how many events it added"
    assert sum(events) == status_of(tmp_path / "tables").bronze_events
    assert status_of(tmp_path / "tables").runs[-1].status == "stopped"
    assert status_of(tmp_path / "tables").running is None
    assert pipeline().run().status == "nothing new"


def test_bronze_without_its_checkpoint_is_refused_before_anything_is_skipped(
    pipeline: Opening, traffic: Traffic, tmp_path: Path
) -> None:
    opened = pipeline()
    opened.run()
    traffic.day()
    shutil.rmtree(tmp_path / "tables" / "checkpoints")
    with pytest.raises(WarehouseDamaged, match="one of them was removed") as refused:
        opened.run()
    assert "move" in refused.value.hint
