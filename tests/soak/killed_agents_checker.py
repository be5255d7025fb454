"""The checker of killed_agents: the journal against what agents wrote down, and /proc. It imports no product.

Every task ends once, with success. Every step has one accepted outcome, which one run of an agent for this
step wrote down before it printed it. No step is granted after its end. When all is done, no process of a
run is left, nothing waits to be reaped, and no process of ours has more open files than when it was new.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

Row = dict[str, Any]
MARK = b"RELAYMESH_RUN="
DESCRIPTORS_MORE = 6
"""Open files beyond those at the start that mean nothing: a segment, a checkpoint being written."""


class Seen(NamedTuple):
    """One process, as /proc shows it."""

    pid: int
    parent: int
    state: str
    mark: str


def table() -> dict[int, Seen]:
    """Every process that can be seen, with the mark of its run; empty: it has none."""
    found: dict[int, Seen] = {}
    for name in [each.name for each in Path("/proc").iterdir()]:
        if name.isdigit():
            try:
                stat = Path(f"/proc/{name}/stat").read_bytes()
            except OSError:
                continue
            try:
                environ = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
            except OSError:  # a zombie has none any more
                environ = []
            state, parent = stat[stat.rindex(b")") + 2 :].split()[:2]
            mark = next((each[len(MARK) :].decode() for each in environ if each.startswith(MARK)), "")
            found[int(name)] = Seen(int(name), int(parent), state.decode(), mark)
    return found


def marked(mark: str) -> list[int]:
    """Processes of runs of this data directory."""
    return [each.pid for each in table().values() if each.mark.startswith(mark)]


def below(root: int) -> list[Seen]:
    """Every process below this one, also those that wait to be reaped."""
    seen = table()
    found: list[Seen] = []
    waiting = [root]
    while waiting:
        parent = waiting.pop()
        children = [each for each in seen.values() if each.parent == parent]
        found += children
        waiting += [each.pid for each in children]
    return found


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def memory_kib(pids: list[int]) -> int:
    """What these processes use of the machine: pages that several share count in parts."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total


def check(rows: list[Row], notes: Path, tasks: int, steps: int) -> dict[str, int]:
    """Returns what was counted; raises `AssertionError`."""
    ended = [row for row in rows if row["operation"] == "TASK_ENDED"]
    assert len(ended) == tasks, f"{len(ended)} of {tasks} tasks ended"
    assert {row["status"] for row in ended} == {"SUCCESS"}, "a task did not succeed"
    assert len({row["task"] for row in ended}) == tasks, "a task ended twice"
    outcomes = _outcomes(rows)
    assert len(outcomes) == tasks * steps, f"{len(outcomes)} outcomes of {tasks * steps} steps"
    written, runs = _written(notes)
    named: dict[str, set[str]] = defaultdict(set)
    for (task, place), row in outcomes.items():
        assert row["status"] == "SUCCESS", f"step {place} of task {task} is {row['status']}"
        made = [each for each in written[task] if _hash(each) == row["result_hash"]]
        assert len(made) == 1, f"{len(made)} runs made the outcome of step {place} of task {task}"
        assert made[0]["step"] not in named[task], f"step {made[0]['step']} of task {task} has two outcomes"
        named[task].add(made[0]["step"])
    assert all(len(names) == steps for names in named.values()), "an outcome is of another step"
    _check_grants(rows, outcomes)
    return {"tasks": tasks, "steps": len(outcomes), "runs": runs}


def _hash(output: Row) -> str:
    text = json.dumps(output, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


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
    step_of = {
        row["message_sequence"]: (row["task"], row["step"]) for row in rows if row["operation"] == "STEP_SENT"
    }
    assert len(step_of) == len(outcomes), "a step was sent twice"
    for row in rows:
        step = step_of.get(row["message_sequence"])
        if row["operation"] == "GRANT" and step is not None:
            assert row["sequence"] < outcomes[step]["sequence"], f"step {step} was granted after its end"


def _written(notes: Path) -> tuple[dict[str, list[Row]], int]:
    """What agents wrote down before they said it, by task, and how many runs they were."""
    written: dict[str, list[Row]] = defaultdict(list)
    runs: set[str] = set()
    for file in notes.glob("ledger-*.jsonl"):
        for line in file.read_text(encoding="utf-8").splitlines():
            try:
                output = json.loads(line)
            except ValueError:
                continue  # torn by the kill
            assert output["run"] not in runs, f"run {output['run']} worked twice"
            runs.add(output["run"])
            written[output["task"]].append(output)
    return written, len(runs)
