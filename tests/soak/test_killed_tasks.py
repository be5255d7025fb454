"""The short forms of `python -m tests.soak.killed_tasks`, and its checker against journals that are wrong."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.soak.killed_tasks import soak
from tests.soak.killed_tasks_checker import check

Rows = list[dict[str, Any]]


def test_every_task_ends_with_one_outcome_for_each_step_under_kills() -> None:
    counted = soak(tasks=20, steps=10, kills=3, seed=5, seconds=50)
    assert counted["kills"] == 3
    assert counted["steps"] == 20 * 10


def test_workers_that_live_on_finish_every_task_of_a_server_that_is_killed() -> None:
    counted = soak(tasks=20, steps=10, kills=3, seed=5, seconds=90, remote=True)
    assert counted["kills"] == 3
    assert counted["steps"] == 20 * 10


def _hash(output: str) -> str:
    return hashlib.sha256(json.dumps(output).encode()).hexdigest()


def _row(sequence: int, operation: str, **fields: Any) -> dict[str, Any]:
    return {"sequence": sequence, "operation": operation, "message_sequence": None} | fields


def _good(notes: Path) -> Rows:
    """A task of two steps, as the journal and a handler saw it."""
    runs = [{"task": "t", "step": f"s{n}", "token": f"0.1.{n}", "output": f"made {n}"} for n in (0, 1)]
    (notes / "ledger-1.jsonl").write_text("".join(json.dumps(run) + "\n" for run in runs) + '{"torn')
    rows = [_row(0, "SUBMIT", task="t")]
    for n in (0, 1):
        at = 10 * n
        ended = {"status": "SUCCESS", "token": f"0.1.{n}", "result_hash": _hash(f"made {n}")}
        rows += [
            _row(at + 2, "STEP_SENT", task="t", step=n, message_sequence=at + 1),
            _row(at + 3, "GRANT", message_sequence=at + 1),
            _row(at + 4, "STEP_ENDED", task="t", step=n, **ended),
        ]
    return [*rows, _row(30, "TASK_ENDED", task="t", status="SUCCESS")]


def _of(rows: Rows, operation: str, n: int = 0) -> dict[str, Any]:
    return [row for row in rows if row["operation"] == operation][n]


WRONG: dict[str, Callable[[Rows], object]] = {
    "a task that did not end": lambda rows: rows.pop(),
    "a task that failed": lambda rows: rows[-1].update(status="FAILED"),
    "a task that ran twice": lambda rows: rows.append(_row(31, "SUBMIT", task="u")),
    "a step without an outcome": lambda rows: rows.remove(_of(rows, "STEP_ENDED")),
    "a step with two outcomes": lambda rows: rows.append(_of(rows, "STEP_ENDED")),
    "a step that failed": lambda rows: _of(rows, "STEP_ENDED").update(status="FAILED"),
    "an outcome that no handler made": lambda rows: _of(rows, "STEP_ENDED").update(token="0.1.9"),
    "an outcome of another step": lambda rows: _of(rows, "STEP_ENDED").update(token="0.1.1"),
    "another result": lambda rows: _of(rows, "STEP_ENDED").update(result_hash=_hash("forged")),
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
