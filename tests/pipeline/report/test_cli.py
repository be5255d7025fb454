"""`relaymesh report` as a person or a script runs it."""

from __future__ import annotations

import json
import shutil
import webbrowser
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from relaymesh.cli.failure import Exit
from relaymesh.pipeline.tables.manifest import Piece
from tests.pipeline.report.conftest import Running
from tests.pipeline.report.warehouse import RUN, SUMS, publish
from tests.pipeline.runs.test_cli import relaymesh


def test_what_is_published_becomes_a_page_and_a_notebook_without_spark(
    report: Running, tmp_path: Path
) -> None:
    ran = report("build", "--no-run", "--json", "--out", "here/page.html", "--notebook", "here/page.ipynb")
    assert ran.code == Exit.OK, ran.err
    page = tmp_path / "here" / "page.html"
    told = ran.row
    assert (told["report"], told["bytes"]) == (str(page), page.stat().st_size)
    assert (told["run_id"], told["pipeline_ran"], told["balanced"]) == (RUN, False, True)
    assert json.loads((tmp_path / "here" / "page.ipynb").read_text())["nbformat"] == 4


def test_sums_that_do_not_add_up_are_an_exit_code_and_the_page_is_there(
    report: Running, warehouse: Path, tmp_path: Path
) -> None:
    publish(warehouse, {}, reconciliation={**SUMS, "dead": 1, "balanced": True, "judged": True})
    ran = report("build", "--no-run")
    assert ran.code == Exit.CHECK_FAILED
    assert "the sums do not add up" in ran.err
    assert "✗ It does not add up" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_sql_answers_in_a_table_and_in_json(report: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = report("sql", "SELECT final_state, count(*) AS n FROM messages GROUP BY ALL ORDER BY n DESC, 1")
    assert [line.split() for line in ran.out.splitlines()] == [
        ["FINAL_STATE", "N"], ["acked", "6"], ["dead", "2"], ["dropped", "1"], ["pending", "1"],
    ]  # fmt: skip
    few = report("sql", "SELECT minute, accepted FROM throughput ORDER BY ALL", "--limit", "1", "--json")
    assert few.row == {"minute": "2026-03-01T12:00:00Z", "accepted": 5}
    assert "and 3 more rows: --limit 4 prints all" in few.err
    odd = "SELECT 2::HUGEINT ** 70 AS big, 'x'::BLOB AS raw, [1] AS list, 'nan'::DOUBLE AS nan, 1.5 AS price"
    assert report("sql", odd, "--json").code == Exit.OK
    none = report("sql", "SELECT 1 WHERE false")
    assert (none.out, "no rows" in none.err) == ("", True)


def test_sql_that_is_none_or_asks_for_files_is_one_line(report: Running) -> None:
    for query in ("SELEC 1", "SELECT * FROM read_text('/etc/hostname')", "DROP VIEW messages"):
        ran = report("sql", query)
        assert (ran.code, ran.out) == (Exit.USAGE, "")
        [line] = ran.err.splitlines()
        assert line.startswith("error: INVALID_SETTINGS: ")


def test_tables_and_their_columns_are_described(report: Running) -> None:
    rows = {row["table"]: row for row in report("tables", "--json").rows}
    assert rows["message_traces"]["rows"] == 60
    assert rows["throughput"]["description"] == "What went through each mailbox, minute by minute."
    assert all(row["description"] for row in rows.values())
    columns = {row["column"]: row for row in report("tables", "sizing", "--json").rows}
    assert columns["workers_required"]["comment"].startswith("W = ceil(lambda_p95 / mu_worker_p50)")
    assert "WORKERS" not in report("tables").out
    assert report("tables", "nowhere").code == Exit.NOT_FOUND


def test_open_shows_the_newest_report_or_says_where_it_is(
    report: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def browser(url: str) -> bool:
        opened.append(url)
        return len(opened) == 1

    monkeypatch.setattr(webbrowser, "open", browser)
    assert report("open").code == Exit.NOT_FOUND
    report("build", "--no-run", "--out", "somewhere.html")
    page = tmp_path / "somewhere.html"
    assert report("open", "--json").row == {"report": str(page), "opened": True}
    assert opened == [page.as_uri()]
    assert report("open", "--json").row["opened"] is False  # no display: the path is what helps


def test_words_that_make_no_sense_are_refused(report: Running, tmp_path: Path) -> None:
    assert report("build", "--sample", "--no-run").code == Exit.USAGE
    (tmp_path / "mine" / "journal").mkdir(parents=True)
    refused = report("build", "--sample", "--dir", str(tmp_path / "mine"))
    assert (refused.code, "has a mesh" in refused.err) == (Exit.CONFLICT, True)
    nowhere = report("build", "--dir", str(tmp_path / "nowhere"))
    assert (nowhere.code, "there is no mesh in" in nowhere.err) == (Exit.NOT_FOUND, True)


def test_what_is_missing_is_one_line_that_says_how_to_install_it(warehouse: Path) -> None:
    missing = "import sys; sys.modules['duckdb'] = None\n"
    ran = relaymesh("report", "sql", "SELECT 1", "--warehouse", str(warehouse), before=missing)
    assert (ran.code, ran.out) == (Exit.USAGE, "")
    [line] = ran.err.splitlines()
    assert "needs duckdb, which is not installed" in line
    assert "pip install 'relaymesh[pipeline]'" in line


def test_the_seconds_are_those_of_the_whole_command(report: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    from relaymesh.cli import report as command

    now = [100.0]

    def look(*_: object) -> bool:
        now[0] += 81
        return False

    monkeypatch.setattr(command, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(command, "_is_behind", look)
    assert report("build", "--json").row["seconds"] == 81


@pytest.fixture
def failed(warehouse: Path) -> Path:
    """Two events in bronze, of two days, and a run whose audit failed."""
    from relaymesh.pipeline.runs.record import RunRecord
    from relaymesh.pipeline.schema.audit import AUDIT_VIOLATIONS
    from relaymesh.pipeline.schema.bronze import EVENTS

    pieces = [Piece(f"bronze/batch=0000000{day}-x", f"2026-03-0{day}", 1, 1) for day in (1, 2)]
    for number, piece in enumerate(pieces):
        folder = warehouse / piece.folder / f"event_date={piece.day}"
        rows_in(folder, EVENTS, {"sequence": number, "run_id": "x", "operation": "ACK"}, leave="event_date")
    found = {"rule": "lost", "sequence": 1}
    rows_in(warehouse / "failed" / "run_id=z" / "audit_violations", AUDIT_VIOLATIONS, found)
    RunRecord(run_id="z", kind="run").end(warehouse, "failed", "AuditFailed: lost")
    publish(warehouse, {}, bronze=pieces)
    return warehouse


def rows_in(folder: Path, schema: StructType, row: dict[str, object], leave: str = "") -> None:
    folder.mkdir(parents=True)
    fields = [field for field in to_arrow_schema(schema, timezone="UTC") if field.name != leave]
    plain = pa.schema([field.with_nullable(True) for field in fields])
    pq.write_table(pa.Table.from_pylist([row], schema=plain), folder / "part-0.parquet")


@pytest.mark.usefixtures("failed")
def test_sql_sees_the_events_and_the_runs_that_failed(report: Running) -> None:
    asked = report(
        "sql", "SELECT sequence, run_id, CAST(event_date AS VARCHAR) d FROM bronze ORDER BY 1", "--json"
    )
    assert asked.rows == [
        {"sequence": 0, "run_id": "x", "d": "2026-03-01"},
        {"sequence": 1, "run_id": "x", "d": "2026-03-02"},
    ]
    asked = report(
        "sql", "SELECT r.error, v.rule FROM pipeline_runs r JOIN failed_violations v USING (run_id)", "--json"
    )
    assert asked.rows == [{"error": "AuditFailed: lost", "rule": "lost"}]
    listed = {row["table"]: row["rows"] for row in report("tables", "--json").rows}
    assert (listed["bronze"], listed["pipeline_runs"], listed["failed_violations"]) == (2, 1, 1)
    assert "run_id" in [row["column"] for row in report("tables", "failed_violations", "--json").rows]


def test_sql_answers_when_the_first_run_failed_and_nothing_is_published(
    report: Running, failed: Path
) -> None:
    (failed / "manifest.json").unlink()
    asked = report("sql", "SELECT status FROM pipeline_runs", "--json")
    assert (asked.code, asked.rows) == (Exit.OK, [{"status": "failed"}])
    assert report("build", "--no-run").code == Exit.NOT_FOUND
    shutil.rmtree(failed / "runs")
    assert report("sql", "SELECT 1").code == Exit.NOT_FOUND
