"""Workflows under kill -9: every task ends, and each step has one accepted outcome.

    python -m tests.soak.killed_tasks --tasks 200 --steps 20 --kills 20
    python -m tests.soak.killed_tasks --tasks 200 --steps 20 --kills 20 --remote

A child process opens a mesh in a directory, submits the workflows and works on their steps. It is killed at
random moments and started again. With `--remote` the node is a server of its own, and only the server is
killed: two workers in processes of their own hold leases and live on. Before a handler returns, it syncs
(task, step, token, output) to a file of its own. The checker (killed_tasks_checker.py) reads these files and
the rows of `relaymesh journal cat --json`, and nothing of the product.
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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from relaymesh.testing.torture.served import Served
from tests.soak.killed_tasks_checker import check

LEDGER = "ledger-{pid}.jsonl"
DONE = "done"
WORK_S = 0.03
"""How long a step takes: long enough that kills meet running work."""
WORKERS = 2
"""Processes that work for a server."""
TOKEN = "RELAYMESH_TOKEN"


CHILD = [sys.executable, "-m", "tests.soak.killed_tasks", "--child"]


def child(location: str, tasks: int, steps: int, notes: Path) -> None:
    """Submit, work, and leave a mark when every task has ended. `location`: a directory, or a server."""
    from relaymesh import Delivery, Mesh

    ledger = os.open(notes / LEDGER.format(pid=os.getpid()), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with Mesh(location, workers=(4, 4)) as mesh:

        @mesh.step("worker")
        def work(delivery: Delivery) -> dict[str, str | None]:
            time.sleep(WORK_S)
            output = {"step": delivery.step, "token": delivery.token}
            line = {"task": delivery.task, "step": delivery.step, "token": delivery.token, "output": output}
            os.write(ledger, json.dumps(line).encode() + b"\n")
            os.fsync(ledger)
            return output

        running = [mesh.submit(workflow(steps, number), {"n": number}) for number in range(tasks)]
        for task in running:
            task.result(timeout=120)
        (notes / DONE).touch()


def workflow(steps: int, number: int) -> dict[str, object]:
    """A chain, a diamond or a fan-out, of so many steps."""
    named: dict[str, dict[str, object]] = {"s0": {"agent": "worker"}}
    for place in range(1, steps):
        if number % 3 == 0:
            needs = [f"s{place - 1}"]
        elif number % 3 == 1:
            needs = sorted({f"s{(place - 1) // 2}", f"s{max(0, place - 2)}"})
        else:
            needs = ["s0"] if place < steps - 1 else [f"s{each}" for each in range(1, steps - 1)]
        named[f"s{place}"] = {"agent": "worker", "needs": needs}
    return {"workflow": f"w{number % 3}", "steps": named}


def soak(
    tasks: int, steps: int, kills: int, seed: int, seconds: float, *, remote: bool = False
) -> dict[str, int]:
    """Returns what was counted; raises `AssertionError` for what must not be."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        path, notes = Path(folder) / "data", Path(folder) / "notes"
        path.mkdir()
        notes.mkdir()
        work = ["--notes", str(notes), "--tasks", str(tasks), "--steps", str(steps)]
        counted = (_remote if remote else _embedded)(path, notes, work, kills, chance, seconds)
        relaymesh = str(Path(sys.executable).with_name("relaymesh"))
        cat = [relaymesh, "journal", "cat", "--dir", str(path), "--json"]
        shown = subprocess.run(cat, capture_output=True, text=True, check=True).stdout
        return check([json.loads(line) for line in shown.splitlines()], notes, tasks, steps) | counted


def _embedded(
    path: Path, notes: Path, work: list[str], kills: int, chance: random.Random, seconds: float
) -> dict[str, int]:
    """Kill the one process that is the node and its worker."""
    end = time.monotonic() + seconds
    killed = starts = 0
    while not (notes / DONE).exists():
        assert time.monotonic() < end, f"not every task ended in {seconds} s"
        with subprocess.Popen([*CHILD, str(path), *work]) as process:
            starts += 1
            if killed < kills:
                _kill_soon(process, path, chance)
                killed += process.returncode == -signal.SIGKILL
            else:
                assert process.wait(max(1.0, end - time.monotonic())) == 0
    return {"kills": killed, "starts": starts}


def _remote(
    path: Path, notes: Path, work: list[str], kills: int, chance: random.Random, seconds: float
) -> dict[str, int]:
    """Kill the server; the workers live on, and must end by themselves."""
    end = time.monotonic() + seconds
    served = Served(path, notes / "server.txt")
    environment = os.environ | {TOKEN: served.make_token()}
    served.start()
    try:
        with _workers([*CHILD, served.url, *work], environment) as workers:
            killed = 0
            while killed < kills and not (notes / DONE).exists():
                _wait_for_growth(served, path, chance)
                served.kill()
                killed += 1
                served.start()
            for worker in workers:
                assert worker.wait(max(1.0, end - time.monotonic())) == 0, "a worker did not end well"
        served.stop()
    finally:
        served.end()
    return {"kills": killed, "starts": killed + 1, "workers": WORKERS}


@contextmanager
def _workers(command: list[str], environment: dict[str, str]) -> Iterator[list[subprocess.Popen[bytes]]]:
    workers = [subprocess.Popen(command, env=environment) for _ in range(WORKERS)]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def _wait_for_growth(served: Served, path: Path, chance: random.Random) -> None:
    """Until the workers are back at work, and a random time more."""
    before = _bytes(path)
    while _bytes(path) == before:
        served.check()
        time.sleep(0.01)
    time.sleep(chance.uniform(0.05, 0.6))


def _kill_soon(process: subprocess.Popen[bytes], path: Path, chance: random.Random) -> None:
    """Kill it a random time after the journal began to grow."""
    before = _bytes(path)
    while process.poll() is None and _bytes(path) == before:
        time.sleep(0.01)
    try:
        process.wait(chance.uniform(0.05, 0.6))
    except subprocess.TimeoutExpired:
        process.kill()
    process.wait()


def _bytes(path: Path) -> int:
    try:
        return sum(file.stat().st_mtime_ns for file in path.rglob("*.rmj"))
    except OSError:
        return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--remote", action="store_true", help="kill a server under workers that live on")
    parser.add_argument("--child", metavar="LOCATION")
    parser.add_argument("--notes", type=Path)
    given = parser.parse_args()
    if given.child is not None:
        child(given.child, given.tasks, given.steps, given.notes)
        return
    counted = soak(given.tasks, given.steps, given.kills, given.seed, given.seconds, remote=given.remote)
    print(json.dumps(counted))


if __name__ == "__main__":
    main()
