"""Bronze with or without content: a canary in a message is in no file of the warehouse or of a report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from relaymesh.cli.main import main
from relaymesh.errors import InvalidSettings, JournalDamaged
from relaymesh.pipeline.bronze.content import keeps_content, settle_content
from relaymesh.pipeline.runs.settings import PipelineSettings
from relaymesh.pipeline.runs.status import status_of
from relaymesh.testing.clock import ManualClock
from relaymesh.testing.mesh import ManualMesh
from tests.pipeline.runs.filled import filled_in
from tests.pipeline.runs.traffic import Traffic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.runs.conftest import Opening

CANARY = "canary-5e1f"


def speak(path: Path) -> None:
    """A mesh in which a canary is in everything that senders and handlers write, but for texts of errors."""
    with ManualMesh(path, clock=ManualClock(datetime(2026, 3, 1, 9, tzinfo=UTC))) as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder", max_retries=0)
        usage = {"inputTokens": 11, "costUsd": 0.25, "who": CANARY}
        mesh.subscribe("news.*", "reader")
        planner.send("coder", {"text": CANARY}, extra={"usage": usage, "note": CANARY})
        planner.send("coder", CANARY, ttl=5)
        planner.send("coder", CANARY.encode(), key="lane")
        mesh.publish("news.today", {"text": CANARY})
        [first, second] = coder.receive_many(2, timeout=1)
        first.ack()
        second.nack(_raised(), code="invalid", retryable=False)
        [letter] = mesh.dead_letters()
        mesh.redrive([letter])
        mesh.advance(60)


def _raised() -> Exception:
    """An error whose stack trace quotes what a handler had in hand, and whose text does not."""
    try:
        try:
            raise ValueError(CANARY)
        except ValueError as cause:
            raise RuntimeError("it could not be done") from cause
    except RuntimeError as error:
        return error


def places_of(root: Path, text: str) -> set[str]:
    """Where it stands: `file` for bytes of a file, `file:column` for a value in a Parquet file."""
    found: set[str] = set()
    for path in (each for each in sorted(root.rglob("*")) if each.is_file()):
        name = path.relative_to(root).parts[0]
        if text.encode() in path.read_bytes():
            found.add(name)
        if path.suffix == ".parquet":
            for column, values in _values(path):
                if text in str(values):
                    found.add(f"{name}:{column}")
    return found


def _values(path: Path) -> Iterator[tuple[str, list[Any]]]:
    table: pa.Table = pq.ParquetFile(path).read()
    for name in table.column_names:
        yield name, table.column(name).to_pylist()


@pytest.mark.slow
def test_a_canary_is_in_no_file_of_a_new_warehouse_and_not_on_the_page(
    spark: SparkSession, tmp_path: Path
) -> None:
    from relaymesh.pipeline.runs.pipeline import Pipeline

    speak(tmp_path / "data")
    settings = PipelineSettings(directories=(tmp_path / "data",), warehouse=tmp_path / "tables")
    pipeline = Pipeline(spark, settings)
    assert pipeline.run().status == "published"
    assert places_of(tmp_path / "tables", CANARY) == set()
    rows = pipeline.store.current(spark, "messages").where("cost_usd is not null").collect()
    assert [(row.input_tokens, row.cost_usd) for row in rows] == [(11, 0.25)], "usage is told all the same"
    assert places_of(tmp_path / "tables", "it could not be done") >= {"bronze:error", "tables:error"}
    (tmp_path / "out").mkdir()
    page, notebook = tmp_path / "out" / "report.html", tmp_path / "out" / "report.ipynb"
    places = ["--dir", str(tmp_path / "data"), "--warehouse", str(tmp_path / "tables")]
    assert (
        main(["report", "build", "--no-run", *places, "--out", str(page), "--notebook", str(notebook)]) == 0
    )
    assert places_of(tmp_path / "out", CANARY) == set()
    assert "it could not be done" in page.read_text(), "texts of errors are on the page, as reports.md says"


def test_with_content_it_is_in_bronze_alone_and_a_compaction_without_removes_it(
    pipeline: Opening, traffic: Traffic, tmp_path: Path
) -> None:
    traffic.mesh.agent("planner").send(
        "coder", {"text": CANARY}, extra={"usage": {"costUsd": 1}, "note": CANARY}
    )
    root = tmp_path / "tables"
    kept = pipeline(content="keep", batch_events=40)
    assert kept.run().status == "published"
    assert places_of(root, CANARY) - {"bronze"} == {"bronze:content", "bronze:extra"}
    assert kept.compact().status == "published"
    assert places_of(root, CANARY) - {"bronze"} == {"bronze:content", "bronze:extra"}, (
        "compaction alone removes nothing"
    )
    before = kept.store.manifest()
    assert before is not None

    opened = pipeline(content="drop", keep_runs=1)
    assert opened.run().status == "nothing new"
    assert status_of(root).content == "drop"
    assert places_of(root, CANARY), "it counts for the events that come"
    assert opened.compact().status == "published"
    assert places_of(root, CANARY) == set()
    after = opened.store.manifest()
    assert after is not None
    assert (after.inputs, after.tables["entries"].rows) == (before.inputs, before.tables["entries"].rows)
    [extra] = [each for each in _bronze(root, "extra") if each]
    assert json.loads(extra) == {"usage": {"costUsd": 1.0}}
    assert pipeline().compact().status == "nothing to do", "it is removed once"

    traffic.mesh.agent("planner").send("coder", {"text": CANARY})
    assert pipeline().run().status == "published"
    assert places_of(root, CANARY) == set(), "the warehouse remembers"


def _bronze(root: Path, column: str) -> list[Any]:
    return [
        value
        for path in root.glob("bronze/batch=*/*/*.parquet")
        for value in pq.ParquetFile(path).read([column]).column(column).to_pylist()
    ]


def test_a_new_warehouse_drops_content_and_one_from_before_keeps_it(tmp_path: Path) -> None:
    new = tmp_path / "new"
    new.mkdir()
    assert not keeps_content(new)
    settle_content(new, None)
    assert not keeps_content(new)
    settle_content(new, "keep")
    assert keeps_content(new)
    settle_content(new, None)
    assert keeps_content(new), "without a word it stays as it was"

    old = filled_in(tmp_path).root
    for entry in old.glob("bronze/log/*.json"):
        told = json.loads(entry.read_text())
        entry.write_text(json.dumps({name: told[name] for name in told.keys() - {"content", "checksum"}}))
    (old / "content.json").unlink(missing_ok=True)
    assert keeps_content(old)
    settle_content(old, None)
    assert keeps_content(old)


def test_a_change_says_what_becomes_of_what_is_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old = filled_in(tmp_path).root
    settle_content(old, "drop")
    assert "relaymesh pipeline compact removes it from 108 before" in caplog.text
    caplog.clear()
    settle_content(old, "drop")
    assert caplog.text == ""
    settle_content(old, "keep")
    assert "with content from now on; the 108 before stay" in caplog.text


def test_what_cannot_be_meant_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="content is keep or drop"):
        PipelineSettings(directories=(tmp_path / "d",), warehouse=tmp_path / "t", content="maybe")  # type: ignore[arg-type]
    (tmp_path / "content.json").write_text("{")
    with pytest.raises(JournalDamaged) as refused:
        keeps_content(tmp_path)
    assert "--content keep" in str(refused.value.hint)
