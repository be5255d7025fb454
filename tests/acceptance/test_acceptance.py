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
from acceptance.plan import MINUTES, Plan
from acceptance.verdict import Verdict
from relaymesh.kernel.settings import MailboxSettings

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
    code, whole = run_acceptance(place, "--minutes", "0.075", "--rate", "100")
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


def test_thirty_minutes_are_the_full_length_that_the_docs_name() -> None:
    plan = Plan(30)
    minutes = (plan.load_s / 60, plan.outage.outage_s / 60, plan.outage.recovery_s / 60)
    assert minutes == (30, 5, 10)
    built_in = MailboxSettings()
    assert plan.outage.breaker_open_ms == built_in.breaker_open_ms
    assert plan.outage.breaker_window_ms == built_in.breaker_window_ms


@pytest.mark.parametrize("minutes", [0.05, 0.5, MINUTES, 30])
def test_a_breaker_that_opened_in_the_outage_can_close_before_the_backlog_must_have_fallen(
    minutes: float,
) -> None:
    outage = Plan(minutes).outage
    longest_open_s = 8 * outage.breaker_open_ms / 1000
    assert longest_open_s < outage.recovery_s
    assert outage.before_s + outage.outage_s + outage.after_s == pytest.approx(minutes * 60)
    assert outage.after_s > outage.recovery_s


def test_without_a_length_all_of_it_takes_four_minutes() -> None:
    plan = Plan(MINUTES)
    assert (plan.load_s + plan.outage.whole_s) / 60 == 4
