"""The bench measures what it says, in small: shapes, sums and verdicts, never speeds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import child, report
from bench.figures import figures, judge
from bench.plan import jobs
from bench.quantile import median, percentile, spread

ROOT = Path(__file__).resolve().parents[2]


def measured(name: str, place: Path, **params: Any) -> dict[str, Any]:
    found = child.run(name, place / "run", params, timeout_s=60)
    assert "error" not in found, found
    return found


@pytest.mark.parametrize("api", ["mesh", "async"])
def test_a_top_rate_counts_what_was_acked(api: str, tmp_path: Path) -> None:
    found = measured("throughput", tmp_path, api=api, durability="synced", batch=100, size=200, seconds=0.2)
    assert found["messages"] > 0
    assert found["messages"] % 100 == 0
    assert found["rate"] >= found["rate_with_store"] > 0
    assert found["receivers"] >= 2


@pytest.mark.parametrize("api", ["mesh", "async"])
def test_a_latency_is_taken_at_the_rate_that_was_asked_for(api: str, tmp_path: Path) -> None:
    found = measured("latency", tmp_path, api=api, durability="batched", seconds=0.5, rate=2000)
    assert found["messages"] == 1000
    assert 0 < found["p50_ms"] <= found["p99_ms"] <= found["max_ms"]
    assert found["disk"]["syncs"] > 0


def test_one_by_one_every_way_has_a_rate(tmp_path: Path) -> None:
    found = measured("one_by_one", tmp_path, rounds=1, slice_s=0.05)
    assert {"disk", "send", "lock_step", "flowing", "same_thread", "durable_ack"} <= set(found["rates"])
    assert all(rate > 0 for rate in found["rates"].values())
    judged = {peer["name"]: peer["synced"] for peer in found["peers"] if peer["durable"]}
    assert all("synchronous=FULL" in how for how in judged.values())
    assert {"send", "lock_step", "same_thread", "durable_ack"} <= set(found["of_disk"])


@pytest.mark.parametrize("how", [{"checkpoint": True}, {"killed": True}], ids=str)
def test_what_was_live_comes_back(how: dict[str, bool], tmp_path: Path) -> None:
    found = measured("recovery", tmp_path, what="live", count=2000, **how)
    assert found["pending"] == 2000
    assert found["open_s"] > 0


def test_what_was_settled_stays_settled(tmp_path: Path) -> None:
    found = measured("recovery", tmp_path, what="settled", count=2000)
    assert found["pending"] == 0
    assert found["replayed"] >= 3 * 2000


def test_memory_grows_with_what_is_pending(tmp_path: Path) -> None:
    found = measured("memory", tmp_path, pending=5000)
    assert 0 < found["imported_bytes"] <= found["idle_bytes"] < found["rss_bytes"]


@pytest.mark.parametrize("of", ["pending", "mailboxes", "delayed"])
def test_growth_compares_with_the_smallest(of: str, tmp_path: Path) -> None:
    found = measured("growth", tmp_path, of=of, sizes=[1, 100], batches=6)
    assert [step["size"] for step in found["steps"]] == [1, 100]
    assert found["ratio"] >= 1


def test_a_message_takes_at_least_its_own_bytes_in_the_journal(tmp_path: Path) -> None:
    found = measured("journal_size", tmp_path, messages=200)
    assert all(size > 200 for size in found["bytes_per_message"].values())


def test_a_measurement_that_fails_is_a_result(tmp_path: Path) -> None:
    found = child.run("throughput", tmp_path / "run", {"api": "neither"}, timeout_s=30)
    assert "error" in found
    assert not (tmp_path / "run").exists()


# -- judging ----------------------------------------------------------------------------------


def test_every_figure_names_a_job_of_the_plan() -> None:
    for quick in (True, False):
        assert {figure.job for figure in figures()} <= {job.key for job in jobs(quick)}


def test_a_figure_is_met_missed_scaled_or_failed() -> None:
    job = "growth/pending"
    whole = {"of": "pending", "steps": [{"size": 1_000_000}]}
    verdicts = [
        judge({job: [result]})[0]["verdict"]
        for result in (
            {**whole, "ratio": 1.5},
            {**whole, "ratio": 1.6},
            {"of": "pending", "steps": [{"size": 20_000}], "ratio": 1.0},
            {"error": "it did not run"},
        )
    ]
    assert verdicts == ["met", "missed", "scaled", "failed"]


def test_what_cannot_be_true_is_noise() -> None:
    shares = {"of_disk": {"send": 2.9, "lock_step": 0.5, "same_thread": 0.5}}
    verdicts = {row["what"]: row["verdict"] for row in judge({"one_by_one": [shares]})}
    assert verdicts["one by one: sends, of the disk's sync rate"] == "noise"
    assert "met" in verdicts.values()


def test_repetitions_are_judged_by_their_median() -> None:
    whole = {"of": "pending", "steps": [{"size": 1_000_000}]}
    [row] = judge({"growth/pending": [{**whole, "ratio": ratio} for ratio in (1.0, 9.0, 1.2)]})
    assert (row["measured"], row["verdict"]) == (1.2, "met")


def test_percentiles_are_values_that_occurred() -> None:
    values = list(range(1, 101))
    assert (percentile(values, 0.5), percentile(values, 0.99), percentile(values, 1)) == (50, 99, 100)
    assert (median([3, 1, 2]), median([1, 2, 3, 4]), percentile([7], 0.01)) == (2, 2.5, 7)
    assert spread([90, 100, 120]) == 0.3


# -- the command ------------------------------------------------------------------------------


def test_the_command_prints_a_table_keeps_the_json_and_writes_the_page(tmp_path: Path) -> None:
    done = run_bench(tmp_path, "--quick", "--only", "journal_size")
    assert done.returncode == 0, done.stderr
    kept = json.loads((tmp_path / "bench/results/latest.json").read_text(encoding="utf-8"))
    assert [row["job"] for row in kept["figures"]] == ["journal_size"]
    assert kept["figures"][0]["what"] in done.stdout
    assert {"cores", "python", "system", "file_system", "sync"} <= kept["machine"].keys()
    assert not (tmp_path / "bench/results/tmp").exists()

    page = tmp_path / "docs/benchmarks.md"
    page.parent.mkdir()
    page.write_text((ROOT / "docs/benchmarks.md").read_text(encoding="utf-8"), encoding="utf-8")
    assert run_bench(tmp_path, "--write-docs").returncode == 0
    written = page.read_text(encoding="utf-8")
    assert "| journal bytes of a 200 B message" in written
    assert written.count(report.BEGIN.format("figures")) == written.count(report.END.format("missed")) == 1


def run_bench(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
