"""`--quarantine rows`: what does not read back is a known gap, told with its range, and read again later."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from relaymesh.pipeline.bronze.snapshot import Generation
from relaymesh.pipeline.bronze.spans import Gap
from relaymesh.pipeline.runs.expectations import failures, of_bronze
from relaymesh.pipeline.runs.gaps import mend_gaps
from relaymesh.pipeline.runs.verify import verify_warehouse
from tests.pipeline.runs.filled import EVENTS, Filled
from tests.pipeline.runs.traffic import Traffic
from tests.pipeline.runs.whole import assert_bronze_is_the_journal, journal_sequences
from tests.pipeline.source.journals import segments, traffic, write_frames

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.runs.conftest import Opening


def harmed(segment: Path, place: float = 0.5) -> bytes:
    """Turn a byte of it; answers what it was."""
    kept = segment.read_bytes()
    data = bytearray(kept)
    data[int(len(data) * place)] ^= 0xFF
    segment.write_bytes(data)
    return kept


class Gapped:
    """Bronze that took in a journal with a segment that does not read back whole."""

    def __init__(self, path: Path, number: int) -> None:
        write_frames(path / "data", traffic(12))
        self.segment = segments(path / "data")[number]
        self.kept = harmed(self.segment)
        self.filled = Filled(path / "data", path / "tables")
        for first in (1, 37, 73):
            self.filled.take(first, first + 35, quarantine="rows")
        [self.gap] = self.filled.bronze.snapshot().gaps

    def restore(self) -> None:
        self.segment.write_bytes(self.kept)


def test_a_known_gap_is_a_warning_with_its_range_and_no_hole(tmp_path: Path) -> None:
    gapped = Gapped(tmp_path, 1)
    snapshot, gap = gapped.filled.bronze.snapshot(), gapped.gap
    assert snapshot.rows == EVENTS - gap.events
    assert gap.why
    gapped.filled.require(through=EVENTS)
    assert verify_warehouse(gapped.filled.root).found == []
    measured = of_bronze(snapshot, None, datetime.now(UTC), 60.0)
    assert failures(measured) == []
    [warning] = [each for each in measured if not each.passed]
    assert (warning.metric, warning.value, warning.severity) == ("events_missing", gap.events, "warning")
    assert f"{gap.first} to {gap.last}" in str(warning)


def test_a_gap_at_the_end_of_the_journal_is_behind_nothing(tmp_path: Path) -> None:
    write_frames(tmp_path / "data", traffic(12))
    harmed(segments(tmp_path / "data")[-2])
    filled = Filled(tmp_path / "data", tmp_path / "tables")
    [gap] = _gaps_through(filled, EVENTS)
    filled = Filled(tmp_path / "data", tmp_path / "cut")
    assert [each.last for each in _gaps_through(filled, gap.last)] == [gap.last]
    [taken] = filled.bronze.snapshot().inputs()
    assert taken.through_sequence == gap.last
    assert taken.events == gap.first - 1
    filled.require(through=gap.last)


def _gaps_through(filled: Filled, last: int) -> list[Gap]:
    filled.take(1, last, quarantine="rows")
    return list(filled.bronze.snapshot().gaps)


def test_a_gap_that_is_no_known_one_is_still_a_hole(tmp_path: Path) -> None:
    gapped = Gapped(tmp_path, 1)
    gapped.filled.unseal()
    entry = next(each for each in gapped.filled.bronze.snapshot().batches if each.gaps)
    path = gapped.filled.root / "bronze" / "log" / f"{entry.batch:08}.json"
    path.write_text(
        path.read_text().replace(f'"first": {gapped.gap.first},', f'"first": {gapped.gap.first + 1},')
    )
    assert "bronze" in gapped.filled.refused()


@pytest.mark.parametrize("compacted", [False, True])
def test_what_was_missing_is_read_when_it_is_back_and_only_once(tmp_path: Path, compacted: bool) -> None:
    gapped = Gapped(tmp_path, 1)
    bronze = gapped.filled.bronze
    if compacted:
        now = bronze.snapshot()
        bronze.switch(
            Generation(
                generation=1,
                through_batch=2,
                run_id="c",
                pieces=now.pieces,
                stretches=now.stretches,
                gaps=now.gaps,
            )
        )
    before = bronze.snapshot()
    assert mend_gaps(bronze, "r8") == 0
    assert bronze.snapshot() == before, "still unreadable: nothing changes"

    gapped.restore()
    assert mend_gaps(bronze, "r9") == gapped.gap.events
    after = bronze.snapshot()
    assert (after.gaps, after.rows) == ([], EVENTS)
    assert after.inputs() != before.inputs(), "tables that were published without it are refreshed whole"
    gapped.filled.require(through=EVENTS)
    assert verify_warehouse(gapped.filled.root).found == []
    assert mend_gaps(bronze, "r10") == 0
    assert bronze.snapshot() == after


def test_a_gap_that_is_back_in_part_is_smaller(tmp_path: Path) -> None:
    gapped = Gapped(tmp_path, 1)
    gapped.segment.unlink()
    assert mend_gaps(gapped.filled.bronze, "r8") == 0, "a segment that is gone is no less a gap"
    gapped.restore()
    whole = gapped.gap
    harmed(gapped.segment, 0.9)
    mended = mend_gaps(gapped.filled.bronze, "r9")
    left = sum(each.events for each in gapped.filled.bronze.snapshot().gaps)
    assert mended + left == whole.events
    gapped.filled.require(through=EVENTS)


@pytest.mark.slow
def test_a_damaged_segment_is_published_around_with_a_warning_and_whole_when_it_is_restored(
    pipeline: Opening, traffic: Traffic, spark: SparkSession
) -> None:
    """The advice of the error, followed to the end: it once closed the pipeline for good."""
    from relaymesh.pipeline.catalog import TABLES
    from relaymesh.pipeline.runs.failures import IngestFailed

    audited = [table for table in TABLES if table.layer != "gold"]
    traffic.mesh.close()
    traffic.reopen()  # a second segment: the first is sealed
    segment = segments(traffic.path)[0]
    kept = harmed(segment, 0.02)
    with pytest.raises(IngestFailed):
        pipeline(tables=audited).run()
    opened = pipeline(tables=audited, quarantine="rows")
    record = opened.run()
    assert record.status == "published"
    [gap] = opened.bronze.snapshot().gaps
    assert [each["metric"] for each in record.expectations if each["table"] == "bronze"][:1] == [
        "events_missing"
    ]
    assert [each for each in record.expectations if each["severity"] == "error"] == []
    sums = opened.store.published().reconciliation
    assert (sums["judged"], sums["missing"][0]["first"], sums["missing"][0]["last"]) == (
        False,
        gap.first,
        gap.last,
    )
    assert opened.store.published().tables["quarantine"].rows == 1
    assert pipeline(tables=audited).run().status == "nothing new"

    segment.write_bytes(kept)
    whole = pipeline(tables=audited).run()
    assert (whole.status, whole.events) == ("published", gap.events)
    sums = opened.store.published().reconciliation
    assert (sums["judged"], sums["balanced"], sums["missing"]) == (True, True, [])
    assert_bronze_is_the_journal(opened.store, traffic.path)
    assert len(journal_sequences(traffic.path)) == opened.store.published().inputs[0].events
