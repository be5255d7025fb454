"""A run with nothing new: it starts no Spark, loads none, and still looks at every file."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from relaymesh.pipeline.runs.idle import reads_back, run_if_idle
from relaymesh.pipeline.runs.settings import PipelineSettings
from relaymesh.pipeline.runs.status import status_of
from relaymesh.pipeline.schema.shapes import SHAPES
from tests.cli.running import Ran
from tests.pipeline.runs.filled import Filled
from tests.pipeline.runs.test_cli import relaymesh
from tests.pipeline.runs.test_damage import doubled, edited, emptied, removed, renamed, truncated
from tests.pipeline.runs.test_gaps import Gapped
from tests.pipeline.runs.traffic import Traffic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.pipeline.runs.tiny import Tiny

SAY_WHAT_IS_LOADED = (
    "import atexit, sys\n"
    "loaded = lambda: {'pyspark', 'py4j', 'pandas'} & set(sys.modules)\n"
    "atexit.register(lambda: print('loaded:', *loaded(), file=sys.stderr))\n"
)
NO_JAVA = {"RELAYMESH_JAVA": "/nonexistent"}
"""A command that gets as far as Spark says so and ends."""


def shaped_catalog() -> list[Tiny]:
    """Tables with the names and shapes of the catalog; those that the sums read are the real ones."""
    from pyspark.sql import functions as f

    from relaymesh.pipeline.catalog import table
    from relaymesh.pipeline.runs.reconcile_tasks import READS
    from tests.pipeline.runs.tiny import Tiny, columns

    def days(name: str | None) -> Callable[..., DataFrame]:
        def build(bronze: DataFrame) -> DataFrame:
            return bronze.select(f.col("event_date").alias(name or "day")).distinct()

        return build

    def no_rule(bronze: DataFrame) -> DataFrame:
        return bronze.where("sequence < 0").select(f.lit("never").alias("rule"))

    real = {"messages", *READS}
    real |= {source for name in READS for source in table(name).inputs} & SHAPES.keys()
    made: list[Any] = []
    for name, (version, day) in SHAPES.items():
        if name in real:
            made.append(table(name))
            continue
        broken = name == "audit_violations"
        made.append(
            Tiny(
                name=name,
                layer=table(name).layer,
                schema=columns("rule string" if broken else f"{day or 'day'} date"),
                inputs=("bronze",),
                build=no_rule if broken else days(day),
                keys=(),
                partition_by=() if day is None else (day,),
                version=version,
            )
        )
    return made


class Published:
    """A mesh, a warehouse that holds all of it, and the command over both."""

    def __init__(self, data: Path, root: Path) -> None:
        self.data, self.root = data, root

    def run(self, *words: str) -> Ran:
        words = ("pipeline", "run", "--dir", str(self.data), "--warehouse", str(self.root), *words)
        return relaymesh(*words, "--json", before=SAY_WHAT_IS_LOADED, **NO_JAVA)

    def is_idle(self) -> bool:
        """Whether the command would end before Spark; the same call, without a process of its own."""
        settings = PipelineSettings(directories=(self.data,), warehouse=self.root)
        return run_if_idle(settings) is not None


@pytest.fixture(scope="module")
def once(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Traffic, Path]:
    from relaymesh.pipeline.runs.pipeline import Pipeline

    path = tmp_path_factory.mktemp("published")
    traffic = Traffic(path / "data")
    traffic.day()
    settings = PipelineSettings(directories=(traffic.path,), warehouse=path / "tables")
    assert Pipeline(spark, settings, tables=shaped_catalog()).run().status == "published"
    traffic.mesh.close()
    return traffic, path / "tables"


@pytest.fixture
def published(once: tuple[Traffic, Path], tmp_path: Path) -> Published:
    """A copy of it, so that a test may do harm."""
    traffic, root = once
    return Published(traffic.path, Path(shutil.copytree(root, tmp_path / "tables")))


def test_a_run_with_nothing_new_loads_no_pyspark_takes_no_time_and_is_recorded(published: Published) -> None:
    took = []
    for _ in range(3):
        began = time.monotonic()
        ran = published.run()
        took.append(time.monotonic() - began)
        assert (ran.code, ran.row["status"], ran.row["events"]) == (0, "nothing new", 0), ran.err
        assert ran.err.splitlines()[-1].split() == ["loaded:"]
        [newest, *_] = status_of(published.root).runs
        assert (newest.run_id, newest.status) == (ran.row["run_id"], "nothing new")
        assert newest.ended_at is not None
    assert min(took) < 2, "starting Java alone takes longer"


@pytest.mark.parametrize("harm", [removed, truncated, emptied, renamed, edited])
@pytest.mark.parametrize(
    "what",
    ["bronze/batch=*/*/*.parquet", "tables/messages/*/*/*.parquet", "bronze/log/*.json", "manifest.json"],
)
def test_harm_to_a_file_since_the_last_run_is_found(
    published: Published, what: str, harm: Callable[[Path], None]
) -> None:
    assert published.is_idle()
    harm(next(iter(sorted(published.root.glob(what)))))
    assert not published.is_idle()


def test_a_file_that_nobody_wrote_is_found(published: Published) -> None:
    doubled(next(published.root.glob("bronze/batch=*/*/*.parquet")))
    assert not published.is_idle()


def test_a_file_that_was_copied_in_its_place_is_read_and_good(published: Published) -> None:
    for path in published.root.glob("tables/messages/*/*/*.parquet"):
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content)
    assert published.is_idle()


@pytest.mark.parametrize(
    "change",
    [
        {"code_version": "0.0.1"},
        {"table_format": "delta"},
        {"through_batch": -1},
        {"inputs": []},
        {"sizing": {"version": 1}},
        {"latency": {"day_column": None}},
    ],
)
def test_tables_of_another_version_shape_or_bronze_are_made_anew(
    published: Published, change: dict[str, Any]
) -> None:
    for path in [published.root / "manifest.json", *published.root.glob("manifests/*.json")]:
        manifest = json.loads(path.read_text())
        for name, value in change.items():
            if name in manifest["tables"]:
                manifest["tables"][name] |= value
            else:
                manifest[name] = value
        path.write_text(json.dumps(manifest))
    assert not published.is_idle()


def test_new_events_and_a_new_directory_are_something_new(published: Published, tmp_path: Path) -> None:
    other = Traffic(tmp_path / "other")
    other.mesh.close()
    assert "is no home of Java" in published.run("--dir", str(other.path)).err, "it got as far as Spark"
    assert not published.is_idle(), "the warehouse knows it from now on"


def test_a_gap_that_reads_back_by_now_is_something_new(tmp_path: Path) -> None:
    gapped = Gapped(tmp_path, 1)
    filled: Filled = gapped.filled
    assert not reads_back(gapped.gap, tmp_path / "data")
    gapped.restore()
    assert reads_back(gapped.gap, tmp_path / "data")
    gapped.segment.unlink()
    assert not reads_back(gapped.gap, tmp_path / "data")
    assert filled.bronze.snapshot().gaps == [gapped.gap], "a look changes nothing"


def test_a_session_is_started_when_it_is_needed_and_not_before(
    once: tuple[Traffic, Path], published: Published
) -> None:
    from relaymesh.pipeline.runs.pipeline import Pipeline

    def started() -> SparkSession:
        raise AssertionError("a session was started")

    settings = PipelineSettings(directories=(published.data,), warehouse=published.root)
    assert Pipeline(started, settings, tables=shaped_catalog()).run().status == "nothing new"
    next(published.root.glob("bronze/batch=*/*/*.parquet")).unlink()
    with pytest.raises(AssertionError, match="a session was started"):
        Pipeline(started, settings, tables=shaped_catalog()).run()
