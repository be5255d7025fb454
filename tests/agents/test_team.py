"""A team at work: what a crash of each part does to it, what a change of its file does, and how it stops."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from relaymesh.agents.processes import marks_alive
from tests.agents.team_up import command, rows, team_up
from tests.waiting import until

SLEEPER = """\
import json, os, sys, time
request = json.load(sys.stdin)
content = request["content"]
seconds = content["seconds"] if isinstance(content, dict) else 0
open(f"began-{request['step']}", "a").write(f"{os.getpid()}\\n")
time.sleep(seconds)
print(json.dumps({"attempt": request["attempt"]}))
"""
TEAM = """\
[agents.one]
command = ["python3", "sleeper.py"]
backoff_min = 0
grace = 1

[agents.two]
command = ["python3", "sleeper.py"]
backoff_min = 0
grace = 1
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sleeper.py").write_text(SLEEPER, encoding="utf-8")
    (tmp_path / "relaymesh.toml").write_text(TEAM, encoding="utf-8")
    return tmp_path


def submit(folder: Path, agent: str, seconds: float, step: str = "work") -> str:
    """A task of one step. Returns its id."""
    plan = {"workflow": f"w-{step}", "steps": {step: {"agent": agent, "input": {"seconds": seconds}}}}
    (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    [row] = rows(folder, "submit", "plan.json", "--key", step)
    id: str = row["id"]
    return id


def began(folder: Path, step: str = "work") -> list[int]:
    """Processes that began the step so far."""
    path = folder / f"began-{step}"
    return [int(line) for line in path.read_text(encoding="utf-8").split()] if path.exists() else []


def task(folder: Path, id: str) -> dict[str, Any]:
    return rows(folder, "task", "show", id)[0]


def mark_of(folder: Path) -> str:
    return (folder / ".relaymesh" / "supervisor" / "mark").read_text(encoding="utf-8")


def test_a_killed_supervisor_leaves_no_process_and_its_work_is_granted_again_at_once(folder: Path) -> None:
    with team_up(folder) as up:
        submit(folder, "one", 1.0)
        [first] = until(lambda: began(folder))
        os.kill(up.keeper()["supervisor"]["pid"], signal.SIGKILL)
        took = up.wait_for("supervisor.took_over")
        assert took["abandoned"] == 1
        assert not Path(f"/proc/{first}").exists()
        done = up.wait_for("step.done")
        assert done["attempt"] == 2
        assert len(began(folder)) == 2
        assert up.of("supervisor.ended")[0]["exit_code"] == -signal.SIGKILL


def test_a_grant_that_a_killed_supervisor_had_not_recorded_goes_back_at_once(folder: Path) -> None:
    long = "[settings]\nlease_timeout_ms = 300000\n"  # no lease runs out meanwhile
    (folder / "relaymesh.toml").write_text(TEAM + long, encoding="utf-8")
    with team_up(folder) as up:
        supervisor = up.keeper()["supervisor"]["pid"]
        os.kill(supervisor, signal.SIGSTOP)
        id = submit(folder, "one", 0.0)
        until(lambda: task(folder, id)["status"] == "RUNNING")
        os.kill(supervisor, signal.SIGKILL)
        assert up.wait_for("step.done")["attempt"] == 1  # nothing was started, and no lease had to run out
        assert up.stop() == 0
    assert (folder / ".relaymesh" / "supervisor" / "sessions.json").read_bytes() == b"[]"


def test_a_killed_node_ends_no_run_and_voids_no_lease(folder: Path) -> None:
    with team_up(folder) as up:
        id = submit(folder, "one", 3.0)
        until(lambda: began(folder))
        url = up.keeper()["url"]
        os.kill(up.keeper()["node"]["pid"], signal.SIGKILL)
        done = up.wait_for("step.done")
        assert (done["attempt"], len(began(folder))) == (1, 1)
        assert up.keeper()["url"] == url
        assert task(folder, id)["status"] == "SUCCESS"


def test_a_killed_keeper_takes_all_down_and_the_next_up_takes_over(folder: Path) -> None:
    with team_up(folder) as up:
        id = submit(folder, "one", 2.0)
        until(lambda: began(folder))
        up.process.kill()
        up.process.wait()
    with team_up(folder) as again:
        until(lambda: task(folder, id)["status"] == "SUCCESS")
        assert again.stop() == 0
    assert marks_alive(mark_of(folder)) == {}


def test_an_agent_that_is_killed_gets_its_work_again(folder: Path) -> None:
    with team_up(folder) as up:
        submit(folder, "one", 1.0)
        [pid] = until(lambda: began(folder))
        os.kill(pid, signal.SIGKILL)
        failed = up.wait_for("step.failed")
        assert failed["became"] == "abandoned"
        assert up.wait_for("step.done")["attempt"] == 2
        [row] = [each for each in rows(folder, "ps") if each["agent"] == "one"]
        assert row["restarts"] == 1
        assert "SIGKILL" in row["last_error"]


def test_an_agent_that_rests_after_a_crash_gets_no_work_and_shows_no_life(folder: Path) -> None:
    resting = TEAM.replace("backoff_min = 0", "backoff_min = 10\nconcurrency = 2", 1)
    beats = "\n[settings]\nheartbeatInterval = 200\nheartbeatTimeout = 1500\n"
    (folder / "relaymesh.toml").write_text(resting + beats, encoding="utf-8")

    def listed() -> dict[str, Any]:
        [row] = [each for each in rows(folder, "agent", "list") if each["name"] == "one"]
        return {"state": row["state"], "status": row.get("status")}

    with team_up(folder) as up:
        assert listed()["state"] == "online"
        submit(folder, "one", 4.0)
        [pid] = until(lambda: began(folder))
        until(lambda: listed() == {"state": "online", "status": "running"})
        os.kill(pid, signal.SIGKILL)
        up.wait_for("agent.restarted")
        until(lambda: listed() == {"state": "offline", "status": "backoff"})
        assert [each["state"] for each in rows(folder, "ps") if each["agent"] == "one"] == ["backoff"]
        assert len(began(folder)) == 1
        assert up.wait_for("step.done")["attempt"] == 2
        until(lambda: listed() == {"state": "online", "status": "idle"})


def test_down_gives_running_work_back_unburned(folder: Path) -> None:
    slow = (folder / "relaymesh.toml").read_text(encoding="utf-8")
    (folder / "relaymesh.toml").write_text(f"[mesh]\ngraceful_timeout = 4\n{slow}", encoding="utf-8")
    with team_up(folder) as up:
        id = submit(folder, "one", 60.0)
        [pid] = until(lambda: began(folder))
        [row] = rows(folder, "down")
        assert row["in_order"] is True
        assert row["seconds"] < 5
        assert up.process.wait(10) == 0
        assert not Path(f"/proc/{pid}").exists()
    assert task(folder, id)["status"] in ("RUNNING", "PENDING")
    with team_up(folder) as up:
        again = until(lambda: began(folder)[1:])
        os.kill(again[0], signal.SIGKILL)
        assert up.wait_for("step.failed")["attempt"] == 1  # the one that went back did not count


def test_only_what_changed_restarts_and_a_broken_file_changes_nothing(folder: Path) -> None:
    file = folder / "relaymesh.toml"
    with team_up(folder) as up:
        submit(folder, "two", 3.0)
        until(lambda: began(folder))
        file.write_text(TEAM.replace("backoff_min = 0", "bakcoff_min = 0", 1), encoding="utf-8")
        refused = up.wait_for("file.refused")
        assert "[agents.one] has no key 'bakcoff_min'; 'backoff_min' was probably meant" in refused["text"]
        changed = TEAM.replace("[agents.one]", '[agents.one]\nrole = "tester"', 1)
        file.write_text(changed + '\n[agents.three]\ncommand = ["true"]\n', encoding="utf-8")
        up.wait_for("file.read")
        assert up.wait_for("agent.restarted")["agent"] == "one"
        up.wait_for("agent.started", 3)
        assert up.wait_for("step.done")["attempt"] == 1
        assert [each["agent"] for each in up.of("agent.stopped")] == ["one"]
        assert [each["agent"] for each in rows(folder, "ps")] == ["two", "one", "three"]


def test_a_broken_file_keeps_neither_node_nor_supervisor_from_starting_again(folder: Path) -> None:
    file, mesh = folder / "relaymesh.toml", str(folder / ".relaymesh")
    settings = "\n[settings]\nmax_attempts = 7\n"
    file.write_text(TEAM + settings, encoding="utf-8")
    with team_up(folder) as up:
        file.write_text(TEAM + settings + "[agents.one", encoding="utf-8")
        up.wait_for("file.refused")
        os.kill(up.keeper()["node"]["pid"], signal.SIGKILL)
        up.wait_for("node.started", 2)
        [said] = [
            each["text"] for each in up.of("node.note") if "goes on with the settings it had" in each["text"]
        ]
        assert "relaymesh.toml is not sound TOML" in said
        shown = {each["name"]: each for each in rows(folder, "settings", "show", "--dir", mesh)}
        assert (shown["max_attempts"]["value"], shown["max_attempts"]["origin"]) == (7, "toml")
        os.kill(up.keeper()["supervisor"]["pid"], signal.SIGKILL)
        up.wait_for("ready", 2)
        [said] = [each["text"] for each in up.of("file.refused") if "go on" in each["text"]]
        assert said.startswith("relaymesh.toml: ")
        assert command(folder, "send", "one", "hello", "--content-text", "--dir", mesh).returncode == 0
        assert up.wait_for("step.done")["agent"] == "one"
        file.write_text(TEAM.replace("[agents.two]", "[agents.three]"), encoding="utf-8")
        up.wait_for("file.read")
        until(lambda: {each["agent"] for each in rows(folder, "ps")} == {"one", "three"})
        until(lambda: _value(folder, "max_attempts") == 3)


def _value(folder: Path, setting: str) -> Any:
    return {each["name"]: each["value"] for each in rows(folder, "settings", "show")}[setting]


SPENDER = """\
import json, sys
request = json.load(sys.stdin)
print(json.dumps({"relaymesh": "usage", "cost_usd": 0.25, "tokens": 400}), file=sys.stderr)
left = [request["step"], request["cost_left_usd"], request["tokens_left"], request["time_left_s"]]
open(f"left-{request['content']}", "a").write(json.dumps(left) + "\\n")
"""


def test_an_agent_reads_what_is_left_of_the_budget_and_the_time_of_its_task(folder: Path) -> None:
    (folder / "sleeper.py").write_text(SPENDER, encoding="utf-8")
    with team_up(folder) as up:
        bounded = {"budget": {"cost_usd": 1, "tokens": 1000}, "deadline": "1h"}
        for name, more in (("bounded", bounded), ("free", {})):
            first = {"agent": "one", "input": name}
            second = {"agent": "two", "input": name, "needs": ["first"]}
            plan = {"workflow": name, "steps": {"first": first, "second": second}, **more}
            (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
            rows(folder, "submit", "plan.json")
        up.wait_for("step.done", 4)
        lines = rows(folder, "audit", "list", "--limit", "500")
    assert not [each for each in lines if "step_bounds" in json.dumps(each)]  # a look is no write
    left = {
        name: [json.loads(line) for line in (folder / f"left-{name}").read_text().splitlines()]
        for name in ("bounded", "free")
    }
    assert [each[:3] for each in left["bounded"]] == [["first", 1.0, 1000], ["second", 0.75, 600]]
    first_s, second_s = [each[3] for each in left["bounded"]]
    assert 0 < second_s < first_s <= 3600
    assert left["free"] == [["first", None, None, None], ["second", None, None, None]]


def test_a_second_up_on_the_same_directory_says_so(folder: Path) -> None:
    with team_up(folder) as up:
        second = command(folder, "up")
        assert second.returncode == 5
        assert f"already (pid {up.process.pid})" in second.stderr


def test_a_team_in_the_background_is_listed_followed_restarted_and_stopped(folder: Path) -> None:
    [started] = rows(folder, "up", "--detach")
    try:
        assert command(folder, "send", "one", "hello", "--content-text").returncode == 0
        until(lambda: [each for each in rows(folder, "ps") if each["done"] == 1])
        assert rows(folder, "restart", "two") == [{"restarted": ["two"]}]
        assert command(folder, "restart", "nobody").returncode == 4
        said = command(folder, "logs").stdout
        assert "two restarted (script)" in said
        assert "done in" in command(folder, "logs", "one").stdout
    finally:
        [stopped] = rows(folder, "down")
    assert stopped["stopped"] == started["pid"]
    assert command(folder, "ps").returncode == 5
