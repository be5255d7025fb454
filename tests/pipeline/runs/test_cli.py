"""`relaymesh pipeline` as a person or a script runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from relaymesh.cli.failure import Exit
from relaymesh.cli.main import main
from tests.cli.running import Ran, environment
from tests.pipeline.runs.traffic import Traffic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOT_INSTALLED = "import sys; sys.modules['pyspark'] = None; sys.modules['pyarrow'] = None\n"
COMMAND = "import sys; from relaymesh.cli.main import main; sys.exit(main(sys.argv[1:]))"


def relaymesh(*words: str, before: str = "", **changes: str) -> Ran:
    """The command in a process of its own, with all the time that Spark takes on a slow machine."""
    ran = subprocess.run(
        [sys.executable, "-c", before + COMMAND, *words],
        capture_output=True,
        text=True,
        env=environment(**changes),
        timeout=400,
        check=False,
    )
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def without_pyspark(*words: str) -> Ran:
    """The command where the extra was never installed."""
    return relaymesh(*words, before=NOT_INSTALLED)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    traffic = Traffic(tmp_path / "data")
    traffic.day()
    traffic.close()
    return traffic.path


def test_what_is_missing_is_one_line_that_says_how_to_install_it(data: Path) -> None:
    ran = without_pyspark("pipeline", "run", "--dir", str(data))
    assert ran.code == Exit.USAGE
    assert ran.out == ""
    [line] = ran.err.splitlines()
    assert "the pipeline needs pyspark, which is not installed" in line
    assert "pip install 'relaymesh[pipeline]'" in line


def test_words_that_make_no_sense_are_refused_before_spark_starts(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*words: str) -> tuple[int, str]:
        code = main(["pipeline", *words])
        [line] = capsys.readouterr().err.splitlines()
        return code, line

    monkeypatch.setenv("RELAYMESH_JAVA", str(data))  # if it got as far as Spark, it would say so
    code, line = refused("run", "--dir", str(tmp_path / "nowhere"))
    assert (code, "there is no mesh in" in line) == (Exit.NOT_FOUND, True)
    code, line = refused("backfill", "--from", "monday", "--to", "2026-03-02", "--dir", str(data))
    assert (code, "--from 'monday' is no day" in line) == (Exit.USAGE, True)
    code, line = refused("run", "--quarantine", "maybe", "--dir", str(data))
    assert (code, "quarantine is fail or rows" in line) == (Exit.USAGE, True)
    code, line = refused("run", "--dir", str(data))
    assert (code, "is no home of Java" in line) == (Exit.USAGE, True)


def test_status_needs_no_spark_and_says_when_nothing_has_run(data: Path) -> None:
    ran = without_pyspark("pipeline", "status", "--dir", str(data))
    assert ran.code == Exit.NOT_FOUND
    assert "no pipeline has run in" in ran.err
    assert "relaymesh pipeline run" in ran.err


class Shared:
    """The session of the tests, which a command may not stop."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def stop(self) -> None:
        """It is needed for the next test."""


def test_a_run_its_status_and_a_failed_check_from_the_command_line(
    data: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from relaymesh.pipeline import catalog
    from relaymesh.pipeline import spark as session
    from tests.pipeline.runs.tiny import tiny_catalog, violations

    def pipeline(*words: str) -> Ran:
        capsys.readouterr()
        code = main(["pipeline", *words, "--dir", str(data)])
        return Ran(code, *capsys.readouterr())

    monkeypatch.setattr(session, "spark_session", lambda **given: Shared(spark))
    monkeypatch.setattr(catalog, "TABLES", tiny_catalog())
    ran = pipeline("run", "--json")
    assert ran.code == Exit.OK, ran.err
    assert ran.row["status"] == "published"
    assert ran.row["reconciliation"]["balanced"]
    status = pipeline("status", "--json").row
    assert status["published"] == ran.row["run_id"]
    [lag] = status["lags"]
    assert (lag["not_in_bronze"], lag["not_published"], lag["seconds"]) == (0, 0, 0.0)
    assert [run["status"] for run in status["runs"]] == ["published"]

    open_to_others = [path for path in data.rglob("*") if path.lstat().st_mode & 0o077]
    assert os.name == "nt" or open_to_others == []

    monkeypatch.setattr(catalog, "TABLES", tiny_catalog(violations))
    failed = pipeline("backfill", "--from", "2026-03-01", "--to", "2026-03-01")
    assert failed.code == Exit.CHECK_FAILED
    assert "planted of audit_violations is 3" in failed.err
    told = pipeline("status")
    assert (told.code, "NOT_PUBLISHED" in told.out, "AuditFailed" in told.out) == (Exit.OK, True, True)
    assert "error: planted of audit_violations is 3" in told.err
    assert pipeline("status", "--json").row["published"] == ran.row["run_id"]
