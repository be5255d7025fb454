"""The sample: the same days for the same seed, and something of everything in them."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from relaymesh.pipeline.report.sample import sample_days, sample_start
from relaymesh.testing import ManualClock, ManualMesh


def lived(seed: int) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """One day in memory: what the mesh counted, and who died of what."""
    with ManualMesh(seed=seed) as mesh:
        sample_days(mesh, mesh.advance, days=1, seed=seed, burst=0)
        letters = [(letter.receiver, letter.code) for letter in mesh.dead_letters()]
        return msgspec.to_builtins(mesh.stats().mailboxes), letters


@pytest.fixture(autouse=True)
def _failures_are_meant(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="relaymesh")


def test_a_seed_gives_the_same_days_and_another_gives_others() -> None:
    assert lived(3) == lived(3)
    assert lived(3) != lived(4)


def test_a_day_has_something_of_everything() -> None:
    boxes, letters = lived(0)
    coder, tester, archive = (boxes[f"default/{name}"] for name in ("coder", "tester", "archive"))
    assert min(coder["acked"], coder["retried"], tester["acked"], archive["expired"]) > 0
    assert coder["pending"] == 3  # delayed, for tomorrow
    assert boxes["default/order.*:billing"]["acked"] > boxes["default/order.paid:ledger"]["acked"] > 0
    assert boxes["default/scraper"]["retried"] > 0  # a lease ran out
    assert ("default/importer", "invalid") in letters


def test_three_days_have_workflows_that_end_in_different_ways() -> None:
    with ManualMesh() as mesh:
        sample_days(mesh, mesh.advance, days=3, burst=0)
        ends = {(task.workflow, task.status) for task in mesh.tasks()}
    assert ends >= {("release", "SUCCESS"), ("backup", "DEAD_LETTER"), ("hotfix", "CANCELLED")}


@pytest.mark.parametrize("days", [1, 3])
@pytest.mark.parametrize("time", ["00:00", "00:39", "01:30", "23:59"])
def test_a_sample_ends_by_now_and_less_than_a_day_ago(days: int, time: str) -> None:
    now = datetime.fromisoformat(f"2026-03-05T{time}:00+00:00")
    clock = ManualClock(sample_start(days, now))
    with ManualMesh(clock=clock) as mesh:
        sample_days(mesh, mesh.advance, days=days, burst=100)
    ended = datetime.fromtimestamp(clock.wall_ms() / 1_000, UTC)
    assert timedelta(0) <= now - ended < timedelta(days=1)
