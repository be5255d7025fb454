"""A team under kill -9: random agents, the supervisor and the node are killed while tasks run.

    python -m tests.soak.killed_agents --kills 200
    python -m tests.soak.killed_agents --kills 0 --tasks 1000 --steps 1     (memory, without kills)

Four agents of `relaymesh up` work on tasks of several steps: three scripts, one of which leaves children in
sessions of their own, and a Python function in a process that stays. Before a run prints its result it
syncs it to a file of its own. The checker (killed_agents_checker.py) reads these files, the rows of
`relaymesh journal cat --json` and /proc, and nothing of the product.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from relaymesh import Mesh, RemoteSettings, Task
from tests.soak.killed_agents_checker import (
    DESCRIPTORS_MORE,
    below,
    check,
    descriptors,
    marked,
    memory_kib,
    table,
)

RELAYMESH = [sys.executable, "-m", "relaymesh.cli.main"]
IDLE_MIB_MAX = 120
PEAK_MIB_MAX = 512
AGENTS = ("plain", "forking", "talking", "function")
WARM_UP = len(AGENTS)
SCRIPT = """\
import json, os, subprocess, sys, time
request = json.load(sys.stdin)
if "fork" in sys.argv:
    subprocess.Popen(["sleep", "300"], start_new_session=True, stdin=0, stdout=2)
if "talk" in sys.argv:
    print("x" * 2000, file=sys.stderr)
time.sleep(0.05)
output = {"task": request["task"], "step": request["step"], "run": request["run"]}
with open(f"notes/ledger-{os.getpid()}.jsonl", "a") as ledger:
    ledger.write(json.dumps(output) + "\\n")
    ledger.flush()
    os.fsync(ledger.fileno())
print(json.dumps(output, separators=(",", ":")))
"""
FUNCTION = """\
import json, os, time

def work(delivery):
    time.sleep(0.05)
    output = {"task": delivery.task, "step": delivery.step, "run": delivery.run}
    with open(f"notes/ledger-{os.getpid()}.jsonl", "a") as ledger:
        ledger.write(json.dumps(output) + "\\n")
        ledger.flush()
        os.fsync(ledger.fileno())
    return output
"""
FILE = """\
[agents.plain]
command = ["python3", "-S", "-E", "agent.py"]
concurrency = 2
backoff_min = 0
[agents.forking]
command = ["python3", "-S", "-E", "agent.py", "fork"]
backoff_min = 0
[agents.talking]
command = ["python3", "-S", "-E", "agent.py", "talk"]
backoff_min = 0
[agents.function]
kind = "python"
run = "functions:work"
backoff_min = 0
"""


class Stage:
    """The team's process, and what kills need to know of it."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder = folder
        self.chance = chance
        self.killed: Counter[str] = Counter()
        (folder / "notes").mkdir()
        (folder / "agent.py").write_text(SCRIPT, encoding="utf-8")
        (folder / "functions.py").write_text(FUNCTION, encoding="utf-8")
        (folder / "relaymesh.toml").write_text(FILE, encoding="utf-8")
        self._log = (folder / "up.log").open("wb")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RELAYMESH")}
        repository = str(Path(__file__).parents[2] / "src")
        environment["PYTHONPATH"] = repository
        self.process = subprocess.Popen(
            [*RELAYMESH, "up", "--json"],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    @property
    def data(self) -> Path:
        return self.folder / ".relaymesh"

    def events(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for line in (self.folder / "up.log").read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                said = json.loads(line)
            except ValueError:
                continue
            if said.get("event") == name:
                found.append(said)
        return found

    def pids(self) -> dict[str, int]:
        """The keeper, the node and the supervisor, as far as they run."""
        try:
            said = json.loads((self.data / "supervisor" / "keeper.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        found = {"keeper": said["pid"], "node": said["node"]["pid"], "supervisor": said["supervisor"]["pid"]}
        return {name: pid for name, pid in found.items() if pid is not None}

    def mark(self) -> str:
        return (self.data / "supervisor" / "mark").read_text(encoding="ascii").strip()

    def kill_one(self) -> None:
        """An agent in most cases: there are more of them."""
        what = self.chance.choices(("agent", "supervisor", "node"), (6, 2, 2))[0]
        candidates = marked(self.mark()) if what == "agent" else [self.pids().get(what, 0)]
        if candidates and (pid := self.chance.choice(candidates)):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                return
            self.killed[what] += 1

    def url(self) -> str:
        said = json.loads((self.data / "supervisor" / "keeper.json").read_text(encoding="utf-8"))
        url: str = said["url"]
        return url

    def make_token(self) -> str:
        words = [*RELAYMESH, "token", "create", "--role", "admin", "--dir", str(self.data), "--json"]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        token: str = json.loads(done.stdout)["token"]
        return token

    def memory_kib(self) -> int:
        """Of the whole tree."""
        return memory_kib([self.process.pid, *[each.pid for each in below(self.process.pid)]])

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._log.close()


def workflow(steps: int, number: int) -> dict[str, object]:
    """A fan-out: every agent works on every task at once."""
    named = {f"s{place}": {"agent": AGENTS[(place + number) % len(AGENTS)]} for place in range(steps)}
    return {"workflow": f"w{number % 4}", "steps": named}


def until(condition: Callable[[], object], seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {seconds:g} s"
        time.sleep(0.02)


def soak(tasks: int, steps: int, kills: int, seed: int, seconds: float) -> dict[str, Any]:
    """Returns what was counted; raises `AssertionError` for what must not be."""
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(Path(folder), random.Random(seed))
        try:
            until(lambda: stage.events("ready"), 120, "the team is at work")
            mark = stage.mark()
            idle_kib = stage.memory_kib()
            assert idle_kib < IDLE_MIB_MAX * 1024, f"{idle_kib} KiB idle"
            patient = RemoteSettings(unreachable_s=600.0)  # a busy machine starts a node slowly
            with Mesh(stage.url(), token=stage.make_token(), settings=patient) as mesh:
                first = [mesh.submit(workflow(steps, number), {"n": number}) for number in range(WARM_UP)]
                for task in first:  # every agent worked once: logs are open, the worker runs
                    task.result(timeout=120)
                until(lambda: len(marked(mark)) == 1, 30, "only the worker that stays is left of the agents")
                new = {name: descriptors(pid) for name, pid in stage.pids().items()}
                peak_kib, tasks = _work(stage, mesh, tasks, steps, kills, seconds)
            assert peak_kib < PEAK_MIB_MAX * 1024, f"{peak_kib} KiB at work"
            left = _check_quiet(stage, mark, new)
            assert stage.stop() == 0, "the team did not stop in order"
            until(lambda: not marked(mark), 5, "no process of a run is left after down")
            assert not [each for each in table().values() if each.parent == os.getpid() and each.state == "Z"]
            cat = [*RELAYMESH, "journal", "cat", "--dir", str(stage.data), "--json"]
            shown = subprocess.run(cat, capture_output=True, text=True, check=True).stdout
            counted = check(
                [json.loads(line) for line in shown.splitlines()], Path(folder) / "notes", tasks, steps
            )
        except BaseException:
            sys.stderr.write((Path(folder) / "up.log").read_text(encoding="utf-8", errors="replace")[-6000:])
            raise
        finally:
            stage.close()
    return counted | {
        "kills": sum(stage.killed.values()),
        "killed": dict(stage.killed),
        "idle_mib": round(idle_kib / 1024, 1),
        "peak_mib": round(peak_kib / 1024, 1),
        "descriptors": left,
    }


def _work(stage: Stage, mesh: Mesh, tasks: int, steps: int, kills: int, seconds: float) -> tuple[int, int]:
    """Submit, kill, and wait for the end of every task. Returns the most memory that was seen, and the number
    of tasks: as long as there are kills to come, there is work.
    """
    end = time.monotonic() + seconds
    peak = 0
    running = [mesh.submit(workflow(steps, number), {"n": number}) for number in range(WARM_UP, tasks)]
    while (missing := sum(stage.killed.values()) < kills) or not _has_ended(running[-1]):
        assert time.monotonic() < end, f"{stage.killed} in {seconds:g} s"
        time.sleep(stage.chance.uniform(0.05, 0.5))
        if missing:
            if _has_ended(running[-1]):
                number = WARM_UP + len(running)
                running.append(mesh.submit(workflow(steps, number), {"n": number}))
            stage.kill_one()
        peak = max(peak, stage.memory_kib())
    for task in running:
        task.result(timeout=max(1.0, end - time.monotonic()))
    return peak, WARM_UP + len(running)


def _has_ended(task: Task) -> bool:
    return task.status() in ("SUCCESS", "FAILED", "CANCELLED", "TIMEOUT")


def _check_quiet(stage: Stage, mark: str, new: dict[str, int]) -> dict[str, int]:
    """Nothing runs any more but what stays: no script, no child of one, no zombie, no forgotten file."""
    until(lambda: len(stage.pids()) == 3, 30, "all three processes run")
    until(lambda: len(marked(mark)) <= 1, 30, "only the worker that stays is left of the agents")
    until(lambda: not [each for each in below(stage.process.pid) if each.state == "Z"], 10, "nothing to reap")
    assert not list((stage.data / "supervisor" / "runs").glob("*.json")), "a run is still on record"
    found = {name: descriptors(pid) for name, pid in stage.pids().items()}
    more = {name: count - new[name] for name, count in found.items() if count > new[name] + DESCRIPTORS_MORE}
    assert not more, f"open files beyond those at the start: {more}"
    return found


def _lasting(mark: str) -> list[int]:
    return marked(mark)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tasks", type=int, default=400)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1800)
    given = parser.parse_args()
    print(json.dumps(soak(given.tasks, given.steps, given.kills, given.seed, given.seconds)))


if __name__ == "__main__":
    main()
