"""`keep_days`: whole days go, on purpose and for good; nothing that goes on loses its beginning."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from msgspec import structs

from relaymesh.errors import Conflict, InvalidSettings, NotFound
from relaymesh.pipeline.bronze.retention import days_to_forget
from relaymesh.pipeline.bronze.snapshot import BronzeSnapshot, Generation
from relaymesh.pipeline.bronze.spans import Forgotten, Stretch
from relaymesh.pipeline.runs.expectations import failures, of_bronze
from relaymesh.pipeline.runs.gaps import mend_gaps
from relaymesh.pipeline.runs.idle import is_idle
from relaymesh.pipeline.runs.settings import PipelineSettings
from relaymesh.pipeline.runs.stages import Stage, unobserved
from relaymesh.pipeline.runs.verify import verify_warehouse
from relaymesh.pipeline.tables.inspection import WarehouseDamaged
from relaymesh.pipeline.tables.manifest import File, Manifest, Part, PublishedTable
from relaymesh.testing.clock import ManualClock
from relaymesh.testing.mesh import ManualMesh
from tests.pipeline.runs.filled import EVENTS, filled_in
from tests.pipeline.runs.test_gaps import Gapped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from relaymesh.pipeline.runs.pipeline import Pipeline

DAY_S = 86_400
SOURCE = "/data"


# -- which days may go


def snapshot(*stretches: tuple[str, int, int], **more: Any) -> BronzeSnapshot:
    """Days with their first and last sequence, of one journal."""
    made = [Stretch(SOURCE, 0, day, first, last, last - first + 1) for day, first, last in stretches]
    return BronzeSnapshot(Generation(through_batch=0, stretches=made, **more), [])


def published(root: Path, now: BronzeSnapshot, states: dict[str, list[str]]) -> Manifest:
    """A manifest whose `messages` have these states, by day."""
    table = by_day(root, "messages", "settled_at", states)
    return Manifest(run_id="r", through_batch=0, inputs=now.inputs(), tables={"messages": table})


def by_day(root: Path, name: str, over: str, states: dict[str, list[str]]) -> PublishedTable:
    """A table whose rows have these states; `over` is the column that is null while one is pending."""
    parts = []
    for day, own in states.items():
        ends = [None if state == "pending" else 1 for state in own]
        pq.write_table(pa.table({over: pa.array(ends, pa.int64())}), root / f"{name}-{day}.parquet")
        parts.append(Part(day, "r", [File(f"{name}-{day}.parquet", len(own), 1)]))
    return PublishedTable(
        name=name, layer="silver", version=1, rows=0, day_column="day", schema={}, parts=parts
    )


FIVE = snapshot(
    ("2026-03-01", 1, 10),
    ("2026-03-02", 11, 20),
    ("2026-03-03", 21, 30),
    ("2026-03-04", 31, 40),
    ("2026-03-05", 41, 50),
)
DONE = {f"2026-03-0{n}": ["acked", "dead", "dropped"] for n in range(1, 6)}


def forgets(root: Path, now: BronzeSnapshot, states: dict[str, list[str]], first: date) -> list[int]:
    return [int(day[-2:]) for day in days_to_forget(root, now, published(root, now, states), first)]


def test_days_go_from_the_oldest_up_to_the_first_that_is_kept(tmp_path: Path) -> None:
    assert forgets(tmp_path, FIVE, DONE, date(2026, 3, 4)) == [1, 2, 3]
    assert forgets(tmp_path, FIVE, DONE, date(2026, 3, 1)) == []
    assert forgets(tmp_path, FIVE, DONE, date(2030, 1, 1)) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(("waits", "gone"), [(1, []), (2, [1]), (3, [1, 2]), (4, [1, 2, 3])])
def test_a_message_that_waits_keeps_its_day_and_those_behind_it(
    tmp_path: Path, waits: int, gone: list[int]
) -> None:
    states = DONE | {f"2026-03-0{waits}": ["acked", "pending"]}
    assert forgets(tmp_path, FIVE, states, date(2026, 3, 4)) == gone


def test_a_task_that_has_not_ended_keeps_its_day_too(tmp_path: Path) -> None:
    """It may wait for a dead letter or a signal, and have no message that waits."""
    tasks = by_day(tmp_path, "tasks", "ended_at", DONE | {"2026-03-02": ["done", "pending"]})
    manifest = published(tmp_path, FIVE, DONE)
    assert days_to_forget(tmp_path, FIVE, manifest, date(2026, 3, 4)) == [f"2026-03-0{n}" for n in (1, 2, 3)]
    manifest.tables["tasks"] = tasks
    assert days_to_forget(tmp_path, FIVE, manifest, date(2026, 3, 4)) == ["2026-03-01"]


def test_a_day_without_messages_goes_with_the_others(tmp_path: Path) -> None:
    states = {day: own for day, own in DONE.items() if day != "2026-03-02"}
    assert forgets(tmp_path, FIVE, states, date(2026, 3, 4)) == [1, 2, 3]


def test_days_that_are_no_beginning_of_their_journal_stay(tmp_path: Path) -> None:
    mixed = snapshot(("2026-03-01", 1, 10), ("2026-03-02", 11, 35), ("2026-03-03", 21, 30))
    assert forgets(tmp_path, mixed, DONE, date(2026, 3, 3)) == [1]


def test_nothing_goes_while_the_tables_were_made_from_other_events(tmp_path: Path) -> None:
    manifest = published(tmp_path, FIVE, DONE)
    more = snapshot(*((each.day, each.first, each.last) for each in FIVE.stretches), ("2026-03-06", 51, 60))
    assert days_to_forget(tmp_path, more, manifest, date(2026, 3, 4)) == []
    assert days_to_forget(tmp_path, FIVE, structs.replace(manifest, tables={}), date(2026, 3, 4)) == []


def test_what_was_forgotten_is_neither_missing_nor_behind() -> None:
    now = snapshot(("2026-03-03", 21, 30), forgotten=[Forgotten(SOURCE, 0, 1, 20, "2026-03-02")])
    [taken] = now.inputs()
    assert (taken.first_sequence, taken.through_sequence, taken.events) == (1, 30, 10)
    assert failures(of_bronze(now, None, datetime.now(UTC), 60.0)) == []
    hole = snapshot(("2026-03-03", 22, 30), forgotten=[Forgotten(SOURCE, 0, 1, 20, "2026-03-02")])
    assert [each.metric for each in failures(of_bronze(hole, None, datetime.now(UTC), 60.0))] == ["rows_off"]


def test_bronze_whose_beginning_was_forgotten_is_whole_and_one_that_lost_it_is_not(tmp_path: Path) -> None:
    filled = filled_in(tmp_path)
    now = filled.bronze.snapshot()
    [_, *left] = now.batches
    shorter = Generation(
        generation=1,
        through_batch=2,
        run_id="f",
        pieces=[piece for each in left for piece in each.pieces],
        stretches=[own for each in left for own in each.stretches],
    )
    filled.bronze.switch(shorter)
    assert "it lacks events 1 to 36" in filled.refused(through=EVENTS)
    filled.bronze.switch(
        structs.replace(shorter, forgotten=[Forgotten(filled.source.id, 0, 1, 36, "2026-01-01")])
    )
    filled.require(through=EVENTS)
    assert verify_warehouse(filled.root).found == []


def test_a_gap_in_a_forgotten_day_is_not_read_again(tmp_path: Path) -> None:
    from relaymesh.pipeline.bronze.retention import forgotten_without

    gapped = Gapped(tmp_path, 1)
    now = gapped.filled.bronze.snapshot()
    days = sorted({each.day for each in now.stretches})
    left = forgotten_without(now, days)
    assert left.gaps == []
    gapped.filled.bronze.switch(structs.replace(left, generation=1, through_batch=2, run_id="f"))
    gapped.restore()
    assert mend_gaps(gapped.filled.bronze, "r9") == 0
    gapped.filled.require(through=EVENTS)


def test_settings_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    for more in ({"keep_days": 0}, {"keep_days": 3, "format": "delta"}):
        with pytest.raises(InvalidSettings, match="keep_days"):
            PipelineSettings(directories=(tmp_path / "d",), warehouse=tmp_path / "t", **more)


# -- a run that forgets


class Office:
    """A mesh whose messages are settled on the day after they were sent, to mailboxes opened long ago."""

    def __init__(self, path: Path) -> None:
        today = datetime.now(UTC).replace(hour=6, minute=0, second=0, microsecond=0)
        self.path = path
        self.mesh = ManualMesh(path, clock=ManualClock(today - timedelta(days=5)))
        self.planner, self.coder = self.mesh.agent("planner"), self.mesh.agent("coder", max_retries=0)
        self.news = self.mesh.subscribe("news.*", "reader")
        self._days = 0

    def day(self) -> None:
        """Settle what yesterday left, send for tomorrow, and let a day pass."""
        for number, delivery in enumerate(self.coder.receive_many(10, timeout=0)):
            if number == 0:
                delivery.nack(ValueError("not that way"), code="invalid", retryable=False)
            else:
                delivery.ack()
        for delivery in self.news.receive_many(10, timeout=0):
            delivery.ack()
        if self._days > 2:
            self.mesh.redrive(self.mesh.dead_letters()[:1])
        for number in range(3):
            self.planner.send("coder", {"number": number}, ttl=0, key="one lane")
        self.mesh.publish("news.today", "it rains", ttl=0)
        self._days += 1
        self.mesh.advance(DAY_S)

    def pipeline(self, spark: SparkSession, root: Path, observer: Any = None, **more: Any) -> Pipeline:
        from relaymesh.pipeline.catalog import TABLES
        from relaymesh.pipeline.runs.pipeline import Pipeline

        tables = [table for table in TABLES if table.layer in ("silver", "audit")]
        settings = PipelineSettings(directories=(self.path,), warehouse=root, keep_runs=1, **more)
        return Pipeline(spark, settings, tables=tables, observer=unobserved if observer is None else observer)


class PulledPlug(Exception):
    """The run ends here."""


def plug(at: Stage) -> Any:
    def observe(stage: Stage, *_: object) -> None:
        if stage is at:
            raise PulledPlug(stage)

    return observe


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    office = Office(tmp_path / "data")
    for _ in range(5):
        office.day()
    yield office
    office.mesh.close()


@pytest.mark.slow
def test_old_days_go_whole_and_a_run_that_was_killed_on_the_way_is_completed(
    office: Office, spark: SparkSession, tmp_path: Path
) -> None:
    root = tmp_path / "tables"
    whole = office.pipeline(spark, root)
    assert whole.run().status == "published"
    days = whole.bronze.snapshot().days
    first = days[-3]
    before = _messages(whole, spark, first)
    keep = (datetime.now(UTC).date() - date.fromisoformat(first)).days + 1

    for at in (Stage.FORGOTTEN, Stage.FORGOT, Stage.TABLE_WRITTEN, Stage.SYNCED):
        with pytest.raises(PulledPlug):
            office.pipeline(spark, root, plug(at), keep_days=keep).run()
        assert verify_warehouse(root).found == [], f"killed at {at}: nothing is missing"
        if at is Stage.FORGOT:
            with pytest.raises(Conflict, match="did not get to its end"):
                whole.compact()
    record = whole.run()
    assert record.status == "published", "also a run without the setting completes what was begun"
    manifest = whole.store.published()
    assert whole.bronze.snapshot().days == days[-3:]
    assert _messages(whole, spark, first) == before, "lives that are kept are kept whole, also on topics"
    assert whole.store.current(spark, "messages").count() == len(before)
    assert manifest.tables["audit_violations"].rows == 0
    sums = manifest.reconciliation
    assert (sums["judged"], sums["balanced"], sums["counts_from"]) == (True, True, first)
    assert (sums["accepted"], sums["missing"]) == (len(before), [])
    opened = {row.address: row.opened_at for row in whole.store.current(spark, "agents").collect()}
    assert opened["default/coder"].date() < date.fromisoformat(first), "its mailbox is known"

    on_disk = {path.name for path in root.glob("bronze/batch=*/event_date=*") if "batch=k-" not in str(path)}
    assert on_disk == {f"event_date={day}" for day in days[-3:]}
    assert is_idle(
        whole.store,
        PipelineSettings(directories=(office.path,), warehouse=root, keep_days=keep),
        whole._inspection,
        {},
    )
    with pytest.raises(NotFound):
        whole.backfill(date.fromisoformat(days[0]), date.fromisoformat(days[0]))

    office.day()
    taken = office.pipeline(spark, root, keep_days=keep, batch_events=5).run()
    assert taken.status == "published"
    assert whole.bronze.snapshot().days[0] == first
    assert whole.store.published().tables["audit_violations"].rows == 0
    assert whole.compact().status == "published"
    assert verify_warehouse(root).found == []
    kept = next(root.glob("bronze/batch=k-*/*/*.parquet"))
    kept.unlink()
    with pytest.raises(WarehouseDamaged, match=kept.name):
        whole.run()


def _messages(pipeline: Pipeline, spark: SparkSession, first: str) -> list[tuple[Any, ...]]:
    rows = pipeline.store.current(spark, "messages").where(f"accepted_date >= '{first}'").collect()
    return sorted(((row.message_sequence, row.mailbox, row) for row in rows), key=lambda each: each[:2])
