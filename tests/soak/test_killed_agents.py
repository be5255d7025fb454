"""The short form of `python -m tests.soak.killed_agents`, and its checker against journals that are wrong."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.soak.killed_agents import soak
from tests.soak.killed_agents_checker import below, check, marked

Rows = list[dict[str, Any]]


@pytest.mark.slow
def test_every_task_of_a_team_ends_with_one_outcome_under_kills() -> None:
    """Half a minute: the team starts, is killed in parts six times, and must become quiet again."""
    counted = soak(tasks=10, steps=4, kills=6, seed=3, seconds=240)
    assert counted["kills"] == 6
    assert counted["tasks"] >= 10
    assert counted["steps"] == counted["tasks"] * 4


def _good(notes: Path) -> Rows:
    """A task of two steps, as the journal and two runs saw it."""
    runs = [{"task": "t", "step": f"s{n}", "run": f"r{n}"} for n in (0, 1)]
    (notes / "ledger-1.jsonl").write_text("".join(json.dumps(run) + "\n" for run in runs) + '{"torn')
    rows: Rows = []
    for n, run in enumerate(runs):
        at = 10 * n
        text = json.dumps(run, separators=(",", ":"))
        ended = {
            "status": "SUCCESS",
            "token": f"0.{n}",
            "result_hash": hashlib.sha256(text.encode()).hexdigest(),
        }
        rows += [
            _row(at + 2, "STEP_SENT", task="t", step=n, message_sequence=at + 1),
            _row(at + 3, "GRANT", message_sequence=at + 1),
            _row(at + 4, "STEP_ENDED", task="t", step=n, **ended),
        ]
    return [*rows, _row(30, "TASK_ENDED", task="t", status="SUCCESS")]


def _row(sequence: int, operation: str, **fields: Any) -> dict[str, Any]:
    return {"sequence": sequence, "operation": operation, "message_sequence": None} | fields


def _of(rows: Rows, operation: str, n: int = 0) -> dict[str, Any]:
    return [row for row in rows if row["operation"] == operation][n]


WRONG: dict[str, Callable[[Rows], object]] = {
    "a task that did not end": lambda rows: rows.pop(),
    "a task that failed": lambda rows: rows[-1].update(status="FAILED"),
    "a step without an outcome": lambda rows: rows.remove(_of(rows, "STEP_ENDED")),
    "a step with two outcomes": lambda rows: rows.append(_of(rows, "STEP_ENDED")),
    "an outcome that no run made": lambda rows: _of(rows, "STEP_ENDED").update(result_hash="0"),
    "an outcome of another step": lambda rows: _of(rows, "STEP_ENDED").update(
        result_hash=_of(rows, "STEP_ENDED", 1)["result_hash"]
    ),
    "a step that was sent twice": lambda rows: rows.append(
        _row(31, "STEP_SENT", task="t", step=1, message_sequence=32)
    ),
    "a grant after the end": lambda rows: rows.append(_row(31, "GRANT", message_sequence=1)),
}


def test_the_checker_is_content_with_a_good_journal(tmp_path: Path) -> None:
    assert check(_good(tmp_path), tmp_path, 1, 2) == {"tasks": 1, "steps": 2, "runs": 2}


@pytest.mark.parametrize("wrong", WRONG)
def test_the_checker_finds(wrong: str, tmp_path: Path) -> None:
    rows = _good(tmp_path)
    WRONG[wrong](rows)
    with pytest.raises(AssertionError):
        check(rows, tmp_path, 1, 2)


def test_the_checker_sees_marked_processes_children_and_zombies() -> None:
    program = (
        "import subprocess, time; child = subprocess.Popen(['/bin/sh', '-c', 'exit']);"
        " print('on', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], env={"RELAYMESH_RUN": "checker-7"}, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            assert process.pid in marked("checker-")
            end = time.monotonic() + 10
            while not [each for each in below(process.pid) if each.state == "Z"]:
                assert time.monotonic() < end, "the zombie is not seen"
                time.sleep(0.01)
        finally:
            process.kill()
