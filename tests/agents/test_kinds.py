"""Agents of every kind in one team: a script, a worker, a Python function and a person."""

from __future__ import annotations

import json
from pathlib import Path

from tests.agents.team_up import command, rows, team_up
from tests.waiting import until

TEAM = """\
[agents.script]
command = ["sh", "-c", "cat > /dev/null; echo '{\\"from\\": \\"script\\"}'"]
[agents.worker]
kind = "worker"
command = ["python3", "worker.py"]
[agents.function]
kind = "python"
run = "functions:work"
concurrency = 2
[agents.person]
kind = "person"
[agents.missing]
command = ["no-such-program-anywhere"]
"""
WORKER = """\
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    print(json.dumps({"relaymesh": "done", "id": request["id"], "value": "worker"}), flush=True)
"""
FUNCTION = """\
def work(delivery):
    delivery.progress("half done")
    return {"from": "function", "attempt": delivery.attempt}
"""
PLAN = {
    "workflow": "all",
    "steps": {
        "a": {"agent": "script"},
        "b": {"agent": "worker", "needs": ["a"]},
        "c": {"agent": "function", "needs": ["b"]},
        "d": {"ask": "person", "question": "ship?", "options": ["yes", "no"], "needs": ["c"]},
    },
}


SHARED = """\
[agents.function]
kind = "python"
run = "functions:work"
processes = 2
"""
MEETS = """\
import os, time
from pathlib import Path

def work(delivery):
    Path(f"at-{os.getpid()}").touch()
    until = time.monotonic() + 20
    while len(list(Path().glob("at-*"))) < 2 and time.monotonic() < until:
        time.sleep(0.02)
    return os.getpid()
"""


def test_a_python_agent_may_have_several_processes(tmp_path: Path) -> None:
    """Each of two steps ends once another process is at work beside it."""
    (tmp_path / "relaymesh.toml").write_text(SHARED, encoding="utf-8")
    (tmp_path / "functions.py").write_text(MEETS, encoding="utf-8")
    plan = {"workflow": "both", "steps": {"a": {"agent": "function"}, "b": {"agent": "function"}}}
    (tmp_path / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    with team_up(tmp_path) as up:
        rows(tmp_path, "submit", "plan.json")
        up.wait_for("step.done", 2)
        [row] = rows(tmp_path, "ps")
        pids = {int(path.name.removeprefix("at-")) for path in tmp_path.glob("at-*")}
        assert len(pids) == 2
        assert pids <= set(row["pids"])
        assert up.stop() == 0
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_task_goes_through_every_kind(tmp_path: Path) -> None:
    (tmp_path / "relaymesh.toml").write_text(TEAM, encoding="utf-8")
    (tmp_path / "worker.py").write_text(WORKER, encoding="utf-8")
    (tmp_path / "functions.py").write_text(FUNCTION, encoding="utf-8")
    (tmp_path / "plan.json").write_text(json.dumps(PLAN), encoding="utf-8")
    with team_up(tmp_path) as up:
        rows(tmp_path, "submit", "plan.json")
        up.wait_for("step.done", 3)
        states = {row["agent"]: row["state"] for row in rows(tmp_path, "ps")}
        assert states["person"] == "person"
        until(lambda: rows(tmp_path, "inbox", "person"))
        answered = command(tmp_path, "answer", "person", "yes", "--content-text")
        assert answered.returncode == 0, answered.stderr
        until(lambda: rows(tmp_path, "task", "list")[0]["status"] == "SUCCESS")
        lone = {"workflow": "lone", "steps": {"x": {"agent": "missing"}}}
        (tmp_path / "lone.json").write_text(json.dumps(lone), encoding="utf-8")
        rows(tmp_path, "submit", "lone.json")
        failed = up.wait_for("step.failed")
        assert (failed["agent"], failed["code"]) == ("missing", "fatal")
        events = {line["event"] for line in rows(tmp_path, "audit", "list", "--limit", "500")}
        assert "agent.run" in events
        assert up.stop() == 0
