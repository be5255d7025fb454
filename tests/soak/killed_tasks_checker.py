"""The checker of killed_tasks: the journal's rows against what handlers wrote down. It imports no product.

Every task ends once, with success. Every step has one accepted outcome. Its token is one under which a
handler ran this step of this task, and its result is the one that this handler wrote down before it returned
it. No token ends two steps. No step is granted after its end.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def check(rows: list[Row], notes: Path, tasks: int, steps: int) -> dict[str, int]:
    """Returns what was counted; raises `AssertionError`."""
    _check_tasks(rows, tasks)
    outcomes = _outcomes(rows)
    assert len(outcomes) == tasks * steps, f"{len(outcomes)} outcomes of {tasks * steps} steps"
    made, runs = _made(notes)
    named: dict[str, set[str]] = defaultdict(set)
    for (task, place), row in outcomes.items():
        what = f"step {place} of task {task}"
        assert row["status"] == "SUCCESS", f"{what} is {row['status']}"
        assert row["token"] in made, f"no handler made the outcome of {what}"
        run = made[row["token"]]
        assert run["task"] == task, f"the token of {what} is of task {run['task']}"
        assert run["step"] not in named[task], f"step {run['step']} of task {task} has two outcomes"
        named[task].add(run["step"])
        text = json.dumps(run["output"], separators=(",", ":"), ensure_ascii=False)
        assert row["result_hash"] == hashlib.sha256(text.encode()).hexdigest(), f"{what}: another result"
    assert all(len(names) == steps for names in named.values())
    _check_grants(rows, outcomes)
    return {"tasks": tasks, "steps": len(outcomes), "runs": runs}


def _check_tasks(rows: list[Row], tasks: int) -> None:
    ended = [row for row in rows if row["operation"] == "TASK_ENDED"]
    assert len(ended) == tasks, f"{len(ended)} of {tasks} tasks ended"
    assert {row["status"] for row in ended} == {"SUCCESS"}
    assert len({row["task"] for row in ended}) == tasks
    submitted = [row for row in rows if row["operation"] == "SUBMIT"]
    assert len(submitted) == tasks, "a repeated submit ran again"


def _outcomes(rows: list[Row]) -> dict[tuple[str, int], Row]:
    outcomes: dict[tuple[str, int], Row] = {}
    tokens: set[str] = set()
    for row in rows:
        if row["operation"] == "STEP_ENDED":
            step = row["task"], row["step"]
            assert step not in outcomes, f"step {step} ended twice"
            assert row["token"] not in tokens, f"token {row['token']} ended two steps"
            outcomes[step] = row
            tokens.add(row["token"])
    return outcomes


def _check_grants(rows: list[Row], outcomes: dict[tuple[str, int], Row]) -> None:
    """The message of a step is granted before its outcome only."""
    step_of: dict[int, tuple[str, int]] = {
        row["message_sequence"]: (row["task"], row["step"]) for row in rows if row["operation"] == "STEP_SENT"
    }
    assert len(step_of) == len(outcomes), "a step was sent twice"
    granted = 0
    for row in rows:
        step = step_of.get(row["message_sequence"])
        if row["operation"] == "GRANT" and step is not None:
            granted += 1
            assert row["sequence"] < outcomes[step]["sequence"], f"step {step} was granted after its end"
    assert granted >= len(outcomes), "a step ended that was never granted"


def _made(notes: Path) -> tuple[dict[str, Row], int]:
    """What handlers wrote down, by token, and how many runs they were."""
    made: dict[str, Row] = {}
    runs = 0
    for file in notes.glob("ledger-*.jsonl"):
        for line in file.read_text().splitlines():
            try:
                run = json.loads(line)
            except ValueError:
                continue  # torn by the kill
            runs += 1
            assert run["token"] not in made, f"token {run['token']} was given to two runs"
            made[run["token"]] = run
    return made, runs
