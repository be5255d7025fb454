"""Every adapter goes through the suite, and the suite catches adapters that are broken."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from relaymesh.testing.adapters import ours
from relaymesh.testing.adapters.cases import CASES, cases
from relaymesh.testing.adapters.suite import Factory, Verdict, verdict_of
from tests.agents import broken

SHORT = 64 << 20
"""Bytes that the talkative cases write here; the command writes 1 GiB."""


def verdict(make: Factory, name: str, **changed: Any) -> Verdict:
    (case,) = (case for case in cases(SHORT) if case.name == name)
    return verdict_of(make, msgspec.structs.replace(case, **changed))


# Each case starts a process and waits for its limits: together they take about 12 seconds for an adapter.
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("make", [ours.script, ours.worker, ours.workers, ours.function])
def test_our_adapters_keep_every_promise(make: Factory, name: str) -> None:
    got = verdict(make, name)
    assert got.verdict != "failed", got.faults


@pytest.mark.parametrize(
    ("make", "name", "fault"),
    [
        (broken.SwallowsFailures, "failure", "the agent failed, and the outcome is Done"),
        (broken.TriesForEver, "failure for good", "final is False"),
        (broken.Raises, "failure for good", "run raised RuntimeError"),
        (broken.CallsKillsFailures, "kill", "abandoned is False"),
        (broken.Mangles, "unicode", "the result is"),
        (broken.TakesAnything, "garbage", "the outcome is Done"),
        (broken.TakesAnything, "half a line", "the outcome is Done"),
        (broken.ForgetsLimits, "timeout", "run did not end within 4 s"),
        (broken.ForgetsLimits, "silence", "run did not end within 4 s"),
        (broken.TakesTimeForSilence, "long and not silent", "the outcome is Failure"),
        (broken.SwallowsCancellation, "cancellation", "run was cancelled, and returned Failure"),
        (broken.SaysNothing, "progress", "no Progress event"),
        (broken.SaysTooMuchAtOnce, "success", "a Text event of 32768 characters"),
        (broken.BoundsNothing, "fork bomb", "the agent had 500 processes: nothing bounds them"),
        (broken.LeavesATask, "success", "tasks that still run: 1"),
        (broken.LeavesAFile, "success", "files that stay open: 1"),
        (broken.Naive, "children that stay", "run did not end within 4 s"),
        (broken.Naive, "ignores SIGTERM", "processes of the agent still run"),
        (broken.Naive, "too much output", "the memory of this process grew by"),
        (broken.Naive, "talkative", "the memory of this process grew by"),
        (broken.OnlyAsks, "ignores SIGTERM", "run did not end within 4 s"),
        (broken.PassesContentAsArgument, "input like an option", "stands in the command line"),
    ],
)
def test_a_broken_adapter_is_caught_by_the_case_meant_for_it(make: Factory, name: str, fault: str) -> None:
    slow = name in {"fork bomb", "long and not silent", "too much output", "talkative"}
    got = verdict(make, name, within_s=30.0 if slow else 4.0)
    assert got.verdict == "failed"
    assert any(fault in each for each in got.faults), got.faults


def test_a_refusal_with_its_reason_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relaymesh.agents.pids_cgroup.pids_cgroup_places", list)
    got = verdict(ours.script, "fork bomb")
    assert got.verdict == "refused"
    assert "processes_max needs a pids cgroup" in got.reason


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "relaymesh.testing.adapters", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_command_prints_a_line_for_each_case_and_answers_9_if_one_fails() -> None:
    good = command("relaymesh.testing.adapters.ours:script", "--only", "success", "--only", "failure")
    assert good.returncode == 0
    assert [line.split()[0] for line in good.stdout.splitlines()] == ["ok", "ok", "2"]
    bad = command("tests.agents.broken:SwallowsFailures", "--only", "failure", "--json")
    assert bad.returncode == 9
    answer = json.loads(bad.stdout)
    assert answer["ok"] is False
    assert answer["cases"][0]["verdict"] == "failed"


@pytest.mark.parametrize(
    "arguments", [("no-colon",), ("no.such:thing",), ("json:dumps", "--only", "nothing")]
)
def test_the_command_says_what_is_wrong_with_its_arguments(arguments: tuple[str, ...]) -> None:
    got = command(*arguments)
    assert got.returncode == 2
    assert got.stderr.strip()
    assert "Traceback" not in got.stderr
