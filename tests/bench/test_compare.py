"""The comparison finds a row that got slower, and only that: verdicts, never speeds."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from bench.compare.__main__ import BELOW, USAGE, one_block
from bench.compare.ratios import Block, Slice, Verdict, coverage, interval, interval_coverage
from bench.compare.rows import QUICK, Row, chosen, rows
from bench.compare.worker import Worker

ROOT = Path(__file__).resolve().parents[2]
ONE_ROW = "mesh/memory/100"

PLANTED = """
import time as _time

def _slowed(inner, wait):
    def ack_many(self, *arguments, **named):
        wait()
        return inner(self, *arguments, **named)
    return ack_many

def _spin():
    end = _time.perf_counter() + 0.02
    while _time.perf_counter() < end:
        pass

def _sleep():
    _time.sleep(0.02)

Mesh.ack_many = _slowed(Mesh.ack_many, {how})
"""


def compared(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench.compare", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def blocks_of(*pairs: tuple[float, float], rate: tuple[float, ...] = ()) -> list[Block]:
    """Blocks with the processor seconds of both revisions; `rate` are the second one's wall seconds."""
    walls = rate or (1.0,) * len(pairs)
    return [
        (Slice(amount=100, wall_s=1.0, cpu_s=before), Slice(amount=100, wall_s=wall, cpu_s=after))
        for (before, after), wall in zip(pairs, walls, strict=True)
    ]


# -- the whole


def test_a_revision_is_as_fast_as_itself() -> None:
    done = compared(".", "--quick", "--json", "--floor", "0.2")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [row["row"] for row in found["rows"]] == list(QUICK)
    for row in found["rows"]:
        assert not row["below"]
        for measure in ("rate", "cpu"):
            assert len(row[measure]["blocks"]) == found["rounds"] == 3
            assert row[measure]["low"] <= row[measure]["ratio"] <= row[measure]["high"]


@pytest.mark.parametrize("how", ["_spin", "_sleep"])
def test_a_planted_slowness_is_below_the_floor(how: str, tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=ignored)
    with (tmp_path / "src/relaymesh/sdk/mesh.py").open("a", encoding="utf-8") as module:
        module.write(PLANTED.format(how=how))
    done = compared(".", str(tmp_path), "--quick", "--rounds", "1", "--rows", ONE_ROW)
    assert done.returncode == BELOW, done.stderr
    assert f"below 0.97: {ONE_ROW}" in done.stdout
    assert done.stdout.count("BELOW") == 1


def test_a_git_revision_is_measured_with_its_own_source() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git repository")
    done = compared("HEAD", "HEAD", "--quick", "--rounds", "1", "--rows", ONE_ROW, "--floor", "0.2", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["before"] == found["after"]
    assert found["before"].startswith("HEAD (")


def test_a_name_that_is_no_revision_and_a_row_that_is_none_are_refused() -> None:
    unknown = compared("no-such-revision", "--quick")
    assert unknown.returncode == USAGE
    assert "'no-such-revision' is neither a revision" in unknown.stderr
    assert compared(".", "--rows", "no-such-row").returncode == USAGE


# -- blocks


class Drifting:
    """A worker on a machine that gets slower with every slice, for both revisions."""

    def __init__(self, slices: list[int], cost: float) -> None:
        self._slices = slices
        self._cost = cost

    def measure(self, work: str, params: dict[str, Any]) -> Slice:
        self._slices.append(1)
        return Slice(amount=100, wall_s=self._cost * len(self._slices), cpu_s=self._cost * len(self._slices))


@pytest.mark.parametrize("turn", [0, 1])
def test_a_machine_that_gets_slower_does_so_for_both(turn: int) -> None:
    slices: list[int] = []
    workers = cast("tuple[Worker, Worker]", (Drifting(slices, 1.0), Drifting(slices, 2.0)))
    before, after = one_block(Row(key="row", work="work"), turn, workers)
    assert after.cost("cpu") / before.cost("cpu") == 2


def test_the_order_is_swapped_from_block_to_block() -> None:
    row = Row(key="row", work="work")
    assert [row.turns_in(turn) for turn in range(3)] == ["ABBA", "BAAB", "ABBA"]


# -- verdicts


def test_the_median_decides_and_not_a_single_bad_block() -> None:
    row = Row(key="row", work="work")
    one_bad = Verdict.of(row, blocks_of((1, 1), (1, 2), (1, 1)), floor=0.97)
    two_bad = Verdict.of(row, blocks_of((1, 1.1), (1, 2), (1, 1)), floor=0.97)
    assert (one_bad.below, two_bad.below) == (False, True)


def test_a_rate_fails_a_row_only_if_noise_does_not_explain_it() -> None:
    row = Row(key="row", work="work")
    same = ((1.0, 1.0),) * 3
    noisy = Verdict.of(row, blocks_of(*same, rate=(1.5, 1.5, 0.9)), floor=0.97)
    slow = Verdict.of(row, blocks_of(*same, rate=(1.5, 1.5, 1.1)), floor=0.97)
    assert (noisy.below, noisy.doubtful) == (False, True)
    assert slow.below


def test_memory_is_compared_as_the_inverse_of_bytes() -> None:
    row = Row(key="row", work="work", judge="bytes")
    verdict = Verdict.of(row, [(Slice(amount=10, bytes=1000), Slice(amount=10, bytes=2000))], floor=0.97)
    assert [(ratio.measure, ratio.median) for ratio in verdict.ratios] == [("bytes", 0.5)]
    assert verdict.below


@pytest.mark.parametrize(("count", "low", "high"), [(1, 0, 0), (3, 0, 2), (7, 0, 6), (8, 1, 6), (13, 3, 9)])
def test_an_interval_is_the_narrowest_that_covers_the_median(count: int, low: int, high: int) -> None:
    assert interval(list(range(count))) == (low, high)


def test_the_coverage_of_an_interval_is_that_of_the_binomial() -> None:
    assert interval_coverage(7) == 1 - 2 / 2**7
    assert coverage(7, 1) == 1 - 2 * (1 + 7) / 2**7
    assert interval_coverage(1) == 0


# -- rows


def test_rows_have_names_of_their_own_and_are_picked_by_how_they_begin() -> None:
    every = rows(quick=False)
    assert len({row.key for row in every}) == len(every)
    assert [row.key for row in chosen(every, ["ws", "http"])] == ["ws/1", "ws/100", "http/post"]
    assert [row.key for row in rows(quick=True)] == list(QUICK)
