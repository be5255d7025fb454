"""`python -m bench.pipeline`: its tables, its comparison of engines, and the page it writes."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bench.pipeline import before_after, report
from bench.pipeline.engines import QUERIES, compared
from bench.pipeline.spent import Spent, spent_by, spent_by_command
from bench.report import put_between
from tests.project.tree import ROOT


def one_run(events: int, *, same: bool = True, polars: bool = True) -> dict[str, Any]:
    spent = Spent(wall_s=events / 100_000, cpu_s=events / 50_000).figures(events)
    engines = {"spark": 2.0, "duckdb": 0.1} | ({"polars": 0.2} if polars else {})
    told = {
        "rows": 7,
        "same": same,
        **{name: {"wall_s": wall, "cpu_s": wall} for name, wall in engines.items()},
    }
    missing = {} if polars else {"polars": "the package polars is not installed"}
    return {
        "events": events,
        **dict.fromkeys(("decode", "cold", "warm", "report"), spent),
        "idle": {"wall_s": 0.6, "cpu_s": 0.5},
        "engines": {"queries": dict.fromkeys(QUERIES, told), "missing": missing},
    }


def found(*runs: dict[str, Any]) -> dict[str, Any]:
    machine = {
        "at": "2026-11-16T00:00:00", "cores": 2, "processor": "a processor", "memory_bytes": 8e9,
        "system": "Linux", "file_system": "ext4", "python": "CPython", "load_average": [0.1],
        "packages": {"pyspark": "4.3.0", "polars": None},
    }  # fmt: skip
    return {
        "machine": machine,
        "cores": 2,
        "took_s": 9.0,
        "targets": {"events_per_cpu_s": 50_000, "report_s": 60},
        "sample": {"wall_s": 30.0, "cpu_s": 50.0},
        "runs": list(runs),
    }


def test_growth_is_the_cost_of_an_event_on_the_larger_journal_over_that_on_the_smaller() -> None:
    small, large = one_run(1_000_000), one_run(4_000_000)
    large["report"] = Spent(wall_s=20.0, cpu_s=40.0).figures(
        4_000_000
    )  # twice the time for four times as much
    _, rows = report.growth_table(found(large, small))
    assert [row[0] for row in rows] == ["journal → bronze", "bronze → report"]
    assert rows[0][1:] == ["1,000,000", "4,000,000", "1×", "1×"]
    assert rows[1][3:] == ["0.5×", "0.5×"]


def test_a_run_with_nothing_new_has_its_row_and_results_of_before_have_none() -> None:
    _, rows = report.report_table(found(one_run(2_000_000)))
    assert ["`relaymesh pipeline run`, nothing new", "2,000,000", "0.6", "0.5", "–", "2 s"] in rows
    older = one_run(2_000_000)
    del older["idle"]
    assert not any("nothing new" in row[0] for row in report.report_table(found(older))[1])


def test_two_revisions_are_compared_by_their_best_rounds(tmp_path: Path) -> None:
    before = [{"wall_s": 9.0, "cpu_s": 4.0}, {"wall_s": 6.0, "cpu_s": 8.0}]
    after = [{"wall_s": 0.5, "cpu_s": 0.5}, {"wall_s": 0.75, "cpu_s": 0.25}]
    told = {
        "machine": found()["machine"],
        "revisions": ["abc", "working tree"],
        "rounds": 2,
        "rows": {before_after.IDLE: [before, after]},
    }
    _, [row] = before_after.table(told)
    assert row == [before_after.IDLE, "6", "0.5", "12×", "4", "0.25", "16×"]
    page = tmp_path / "page.md"
    page.write_text((ROOT / "docs/benchmarks-pipeline.md").read_text(encoding="utf-8"), encoding="utf-8")
    put_between(page, before_after.BEGIN, before_after.END, before_after.markdown(told))
    assert "| 6 | 0.5 | 12× |" in page.read_text(encoding="utf-8")


def test_a_command_runs_on_the_source_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "relaymesh").mkdir()
    (tmp_path / "relaymesh" / "__init__.py").write_text("where = 'here'")
    spent_by_command(["-c", "import relaymesh; assert relaymesh.where"], tmp_path / "log", source=tmp_path)
    with pytest.raises(RuntimeError, match="where"):
        spent_by_command(["-c", "import relaymesh; assert relaymesh.where"], tmp_path / "log")


def test_engines_stand_beside_each_other_and_one_that_disagrees_or_is_missing_is_told() -> None:
    head, rows = report.engine_table(found(one_run(2_000_000)))
    assert [row[0] for row in rows] == list(QUERIES)
    assert dict(zip(head, rows[0], strict=True))["DuckDB is faster"] == "20×"
    assert dict(zip(head, rows[0], strict=True))["Polars is faster"] == "10×"
    _, rows = report.engine_table(found(one_run(2_000_000, same=False)))
    assert {row[3] for row in rows} == {"**no**"}
    assert "polars is not installed" in report.plain(found(one_run(2_000_000, polars=False)))


def test_answers_are_the_same_in_any_order_and_type_and_differ_when_a_value_does() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    ours: list[dict[str, Any]] = [{"n": 1, "x": 0.1 + 0.2, "at": at}, {"n": 2, "x": None, "at": at}]
    theirs: list[dict[str, Any]] = [
        {"at": at.replace(tzinfo=None), "x": None, "n": 2},
        {"at": at, "x": 0.3, "n": 1.0},
    ]
    assert compared(ours) == compared(theirs)
    assert compared(ours) != compared([{**ours[0], "n": 3}, ours[1]])
    assert compared(ours) != compared(ours[:1])


def test_the_page_keeps_its_words_and_gets_the_tables(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text((ROOT / "docs/benchmarks-pipeline.md").read_text(encoding="utf-8"), encoding="utf-8")
    for _ in range(2):
        report.write_docs(found(one_run(2_000_000), one_run(4_000_000)), page)
    written = page.read_text(encoding="utf-8")
    assert written.startswith("# The pipeline, measured")
    assert written.count(report.BEGIN) == written.count(report.END) == 1
    assert "| latency | 2,000,000 | 7 | yes |" in written
    page.write_text("nothing is marked here", encoding="utf-8")
    with pytest.raises(SystemExit, match="no place marked"):
        report.write_docs(found(one_run(2_000_000)), page)


@pytest.mark.skipif(sys.platform != "linux", reason="CPU time of other processes is read from /proc")
def test_cpu_time_counts_what_a_command_started_and_a_failure_says_why(tmp_path: Path) -> None:
    burn = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    _, spent = spent_by(lambda: exec(burn))
    assert spent.cpu_s >= 0.25
    child = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {burn!r}])"
    assert spent_by_command(["-c", child], tmp_path / "log").cpu_s >= 0.25
    with pytest.raises(RuntimeError, match="no such thing"):
        spent_by_command(["-c", "import sys; sys.exit('no such thing')"], tmp_path / "log")
