"""The warehouse on disk: formats, manifests, the lock, what is swept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from relaymesh.errors import DirectoryInUse, FormatTooNew, InvalidSettings, JournalDamaged, NotFound
from relaymesh.pipeline.tables.durable import swap_file
from relaymesh.pipeline.tables.formats import NO_DAY, Delta, Iceberg, Parquet
from relaymesh.pipeline.tables.lock import holder, is_locked, warehouse_lock
from relaymesh.pipeline.tables.manifest import PublishedTable
from relaymesh.pipeline.tables.store import MANIFEST, TableStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Recorder:
    """Stands in for a DataFrame, its writer and its session: keeps what is called, answers itself."""

    def __init__(self, answers: dict[str, Any] | None = None) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self._answers = answers or {}

    def __getattr__(self, name: str) -> Any:
        if name in ("write", "read", "sparkSession"):
            return self

        def call(*given: Any) -> Any:
            self.calls.append((name, given))
            return self._answers.get(name, self)

        return call


def test_delta_replaces_the_named_days_also_when_one_of_them_is_empty_now(tmp_path: Path) -> None:
    """No Delta jar is here: what Spark would be asked is checked, not what Delta does with it."""
    spark = Recorder({"collect": [(7,)], "count": 3})
    written = Delta(tmp_path).write(spark, "messages", "r1", "day", ["2026-03-01", "2026-03-02"])  # type: ignore[arg-type]
    replace = "day IN ('2026-03-01', '2026-03-02') OR day IS NULL"
    assert ("format", ("delta",)) in spark.calls
    assert ("mode", ("overwrite",)) in spark.calls
    assert ("partitionBy", ("day",)) in spark.calls
    assert ("option", ("replaceWhere", replace)) in spark.calls
    assert ("save", (str(tmp_path / "tables" / "messages"),)) in spark.calls
    assert (written.snapshot, written.rows) == ("7", 3)
    assert ("option", ("versionAsOf", "7")) in spark.calls, "readers see the version the manifest names"
    assert Delta.options("day", None) == {"overwriteSchema": "true"}


def test_iceberg_overwrites_by_day_and_readers_read_a_snapshot(tmp_path: Path, spark: SparkSession) -> None:
    fake = Recorder({"collect": [(42,)], "count": 3})
    iceberg = Iceberg(tmp_path)
    whole = iceberg.write(fake, "messages", "r1", "day", None)  # type: ignore[arg-type]
    assert ("writeTo", ("spark_catalog.relaymesh.messages",)) in fake.calls
    assert ("createOrReplace", ()) in fake.calls
    assert whole.snapshot == "42"
    iceberg.write(fake, "messages", "r2", "day", ["2026-03-01"])  # type: ignore[arg-type]
    [(_, (condition,))] = [call for call in fake.calls if call[0] == "overwrite"]
    assert "2026-03-01" in str(condition)
    table = PublishedTable(
        name="messages", layer="silver", version=1, rows=3, day_column="day", schema={}, snapshot="42",
        location="spark_catalog.relaymesh.messages",
    )  # fmt: skip
    iceberg.read(fake, table)  # type: ignore[arg-type]
    assert fake.calls[-2:] == [
        ("option", ("snapshot-id", "42")),
        ("table", ("spark_catalog.relaymesh.messages",)),
    ]


@pytest.mark.parametrize(
    ("name", "package"), [("delta", "io.delta:delta-spark"), ("iceberg", "org.apache.iceberg")]
)
def test_without_its_jar_a_format_is_refused_by_the_name_of_the_package(
    name: str, package: str, tmp_path: Path, spark: SparkSession
) -> None:
    with pytest.raises(InvalidSettings, match=package) as refused:
        TableStore.open(tmp_path, name).format.require(spark)
    assert "--format parquet" in refused.value.hint


def test_days_are_written_one_by_one_and_a_day_that_lost_its_rows_is_empty(
    tmp_path: Path, spark: SparkSession
) -> None:
    store = TableStore.open(tmp_path)
    days = "SELECT * FROM VALUES (1, '2026-03-01'), (2, '2026-03-02'), (3, NULL) AS t(id, day)"
    draft = store.draft("r1")
    draft.write("t", spark.sql(days), layer="silver", day_column="day")
    draft.publish()
    first = store.manifest()
    assert first is not None
    assert [part.day for part in first.tables["t"].parts] == ["2026-03-01", "2026-03-02", NO_DAY]

    draft = store.draft("r2")
    only = spark.sql("SELECT * FROM VALUES (2, '2026-03-02'), (4, '2026-03-03') AS t(id, day)")
    draft.write("t", only, layer="silver", day_column="day", days=["2026-03-01", "2026-03-03"])
    assert store.manifest() == first, "a draft is not seen"
    draft.publish()
    assert sorted(row.id for row in store.current(spark, "t").collect()) == [2, 4]
    files = [str(path) for path in store.files("t")]
    query = f"SELECT id, day FROM read_parquet({files}, hive_partitioning=false) ORDER BY id"
    assert duckdb.execute(query).fetchall() == [(2, "2026-03-02"), (4, "2026-03-03")]

    with pytest.raises(ValueError, match="must be written whole"):
        store.draft("r3").write("t", only, version=2, day_column="day", days=["2026-03-03"])
    with pytest.raises(NotFound, match="no table 'u'"):
        store.current(spark, "u")


def test_a_manifest_of_a_newer_version_or_a_damaged_one_is_not_guessed_at(tmp_path: Path) -> None:
    store = TableStore.open(tmp_path)
    assert store.manifest() is None
    with pytest.raises(NotFound, match="nothing is published"):
        store.files("messages")
    swap_file(tmp_path / MANIFEST, b'{"manifest_format": 2}')
    with pytest.raises(FormatTooNew):
        store.manifest()
    for damaged in (b"", b"{", b"[]", b'{"manifest_format": 1}', b'{"manifest_format": "x"}'):
        swap_file(tmp_path / MANIFEST, damaged)
        with pytest.raises(JournalDamaged, match="no manifest"):
            store.manifest()


def test_an_object_store_is_no_warehouse_and_an_unknown_format_is_none() -> None:
    with pytest.raises(InvalidSettings, match="is a URL"):
        TableStore.open("s3://bucket/tables")
    with pytest.raises(InvalidSettings, match="no table format 'csv'"):
        TableStore.open("tables", "csv")
    assert isinstance(TableStore.open("tables").format, Parquet)


def test_a_warehouse_is_held_by_one_process_and_freed_by_its_death(tmp_path: Path) -> None:
    hold = (
        "import sys, time, pathlib; from relaymesh.pipeline.tables.lock import warehouse_lock\n"
        "with warehouse_lock(pathlib.Path(sys.argv[1]), 'run r1'):\n"
        "    print('held', flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(tmp_path)], stdout=subprocess.PIPE, env=dict(os.environ)
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(DirectoryInUse, match=f"pid {process.pid}.*run r1"), warehouse_lock(tmp_path, "x"):
            raise AssertionError("the lock was given twice")
        assert is_locked(tmp_path)
        process.kill()
    assert not is_locked(tmp_path)
    assert "run r1" in (holder(tmp_path) or ""), "the file is left behind, and holds nobody up"
    with warehouse_lock(tmp_path, "run r2"):
        assert is_locked(tmp_path)
