"""The acceptance runs, shortened to seconds: what they find, and that they can fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from acceptance.outage import ISOLATED
from acceptance.verdict import Verdict

ROOT = Path(__file__).resolve().parents[2]


def run_acceptance(place: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "acceptance", "--json", "--path", str(place), *arguments],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """One short pass of all four, at a rate that a busy machine keeps up with."""
    place = tmp_path_factory.mktemp("acceptance")
    code, whole = run_acceptance(place, "--minutes", "0.12", "--rate", "100")
    assert (code == 0) == whole["passed"]
    assert list(place.iterdir()) == []
    return {run["name"]: run for run in whole["runs"]}


def broken(run: dict[str, Any]) -> list[str]:
    return [check["claim"] for check in run["checks"] if not check["holds"]]


@pytest.mark.parametrize("name", ["steady", "duplicates", "exit"])
def test_a_run_passes(name: str, found: dict[str, dict[str, Any]]) -> None:
    assert broken(found[name]) == []


def test_an_outage_of_one_subscriber_loses_nothing(found: dict[str, dict[str, Any]]) -> None:
    assert [claim for claim in broken(found["outage"]) if claim != ISOLATED] == []
    assert 0 < found["outage"]["numbers"]["retry_rate"] < 0.15


def test_an_outage_of_one_subscriber_does_not_delay_another(found: dict[str, dict[str, Any]]) -> None:
    assert ISOLATED not in broken(found["outage"])


def test_a_buffer_that_is_too_small_fails_the_steady_run(tmp_path: Path) -> None:
    code, whole = run_acceptance(tmp_path, "--minutes", "0.05", "--only", "steady", "--capacity", "2")
    assert (code, whole["passed"]) == (1, False)
    assert "every publish was accepted" in broken(whole["runs"][0])


def test_a_verdict_needs_every_check_to_hold() -> None:
    verdict = Verdict("example", "nothing")
    assert not verdict.passed
    verdict.check("one", True)
    assert verdict.passed
    verdict.check("two", False)
    assert not verdict.passed
    assert verdict.lines()[-1].split() == ["NOT", "two"]
