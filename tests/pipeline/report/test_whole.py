"""One command from nothing to a report: made-up days, Spark, and the page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from relaymesh.cli.failure import Exit
from relaymesh.cli.main import main
from relaymesh.pipeline.tables.store import TableStore
from tests.cli.running import Ran
from tests.pipeline.report.browsing import WIDTHS, faults, opened
from tests.pipeline.report.reading import Reader
from tests.pipeline.runs.test_cli import Shared

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from pyspark.sql import SparkSession


@pytest.mark.slow
def test_a_sample_becomes_a_full_report_and_a_second_build_finds_nothing_new(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    from relaymesh.pipeline import spark as session
    from relaymesh.pipeline.catalog import TABLES

    monkeypatch.setattr(session, "spark_session", lambda **given: Shared(spark))
    data, out = tmp_path / "data", tmp_path / "report.html"

    def build(*words: str) -> Ran:
        capsys.readouterr()
        code = main(["report", "build", "--dir", str(data), "--out", str(out), "--json", *words])
        return Ran(code, *capsys.readouterr())

    first = build("--sample", "--days", "1")
    assert first.code == Exit.OK, first.err
    assert (first.row["pipeline_ran"], first.row["balanced"]) == (True, True)
    manifest = TableStore.open(data / "tables").manifest()
    assert manifest is not None
    assert set(manifest.tables) == {table.name for table in TABLES} | {"pipeline_metrics", "quarantine"}
    html = out.read_text(encoding="utf-8")
    figures = Reader(html).figures
    no_rows = {name for name, card in figures.items() if len(card.rows) < 2}
    assert no_rows == {"quarantine", "expectations"}, "a sample passes its own checks"
    assert "✓ It adds up." in html
    assert "✓ passed" in html
    assert "★ Sample." in html
    assert "bump-dependencies" not in html  # content of messages is in no report

    again = build()
    assert again.code == Exit.OK, again.err
    assert (again.row["pipeline_ran"], again.row["run_id"]) == (False, first.row["run_id"])

    browser: Browser = request.getfixturevalue("browser")  # here: what is above needs none
    for width in WIDTHS:
        page = opened(browser, out, width)
        assert faults(page) == []
        page.close()
