"""worker run: handlers of a module, several processes, drain, crashes, reload."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from relaymesh import Mesh
from relaymesh.cli.failure import Exit
from tests.cli.running import command, environment
from tests.waiting import until

APP = """
import os, time
from pathlib import Path

def app(mesh):
    @mesh.step("builder")
    def build(delivery):
        how = delivery.content
        if how == "crash" and delivery.attempt == 1:
            os._exit(3)
        if how == "slow":
            Path("slow-began").touch()
            time.sleep(1)
        with open("done", "a") as file:
            file.write(f"{VERSION} {how} {os.getpid()}\\n")

async def async_app(mesh):
    agent = await mesh.agent("builder")
    @agent.handle
    async def build(delivery):
        with open("done", "a") as file:
            file.write(f"async {delivery.content} {type(mesh).__name__}\\n")

number = 5
"""


class Worker:
    """`relaymesh worker run` in a directory of its own."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            command("--json", "worker", "run", *words),
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.events: list[dict[str, Any]] = []

    def until(self, event: str, count: int = 1) -> dict[str, Any]:
        """Read its events until there were so many of this kind."""
        assert self.process.stdout is not None
        while sum(each["event"] == event for each in self.events) < count:
            line = self.process.stdout.readline()
            assert line, self.process.stderr.read() if self.process.stderr else ""
            self.events.append(json.loads(line))
        return self.events[-1]

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        self.process.communicate(timeout=30)
        return self.process.returncode

    def done(self) -> list[list[str]]:
        path = self.folder / "done"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    """Start the command; whatever happens, it and its processes end."""
    (tmp_path / "builders.py").write_text("VERSION = 1\n" + APP)
    workers: list[Worker] = []

    def start(*words: str) -> Worker:
        workers.append(Worker(tmp_path, *words))
        return workers[-1]

    yield start
    for worker in workers:
        for event in worker.events:
            if "pid" in event:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(event["pid"], signal.SIGKILL)
        worker.process.kill()
        worker.process.communicate()


def mesh_with(path: Path, *contents: str) -> str:
    with Mesh(path) as mesh:
        mesh.agent("builder")
        for content in contents:
            mesh.agent("planner").send("builder", content, max_retries=3)
    return str(path)


def test_it_serves_the_handlers_of_a_module(run: Callable[..., Worker], tmp_path: Path) -> None:
    worker = run("builders:app", "--dir", mesh_with(tmp_path / "mesh", "a", "b"))
    until(lambda: len(worker.done()) == 2)
    assert worker.end() == 0


def test_a_coroutine_function_gets_an_async_mesh(run: Callable[..., Worker], tmp_path: Path) -> None:
    worker = run("builders:async_app", "--dir", mesh_with(tmp_path / "mesh", "a"))
    assert until(worker.done) == [["async", "a", "AsyncMesh"]]
    assert worker.end(signal.SIGINT) == 0


def test_a_stop_lets_a_running_handler_finish(run: Callable[..., Worker], tmp_path: Path) -> None:
    worker = run("builders:app", "--dir", mesh_with(tmp_path / "mesh", "slow"))
    until((tmp_path / "slow-began").exists)
    assert worker.end() == 0
    assert [line[1] for line in worker.done()] == ["slow"]


def test_a_process_that_crashes_is_started_again(run: Callable[..., Worker], tmp_path: Path) -> None:
    worker = run("builders:app", "--dir", mesh_with(tmp_path / "mesh", "crash"))
    worker.until("started", 2)
    assert {"event": "ended", "process": 1, "code": 3} in worker.events
    until(worker.done)
    assert worker.end() == 0


def test_its_processes_end_when_it_is_killed(run: Callable[..., Worker], tmp_path: Path) -> None:
    worker = run("builders:app", "--dir", mesh_with(tmp_path / "mesh"))
    pid = worker.until("serves")["pid"]
    worker.end(signal.SIGKILL)

    def gone() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except FileNotFoundError:
            return True

    until(gone)


def test_reload_restarts_when_the_module_changes(run: Callable[..., Worker], tmp_path: Path) -> None:
    worker = run("builders:app", "--reload", "--dir", mesh_with(tmp_path / "mesh", "a"))
    assert until(worker.done)[0][:2] == ["1", "a"]
    worker.until("serves")
    (tmp_path / "builders.py").write_text("VERSION = (\n" + APP)
    worker.until("ended", 2)  # by us, and by the mistake in it
    (tmp_path / "builders.py").write_text("VERSION = 22\n" + APP)
    worker.until("serves", 2)
    assert worker.end() == 0
    mesh_with(tmp_path / "mesh", "b")
    again = run("builders:app", "--dir", str(tmp_path / "mesh"))
    until(lambda: ["22", "b"] in [line[:2] for line in again.done()])


def test_several_processes_share_the_work_of_a_node(run: Callable[..., Worker], tmp_path: Path) -> None:
    path = mesh_with(tmp_path / "mesh")
    node = subprocess.Popen(
        command("serve", "--dir", path, "--port", "0"), env=environment(), stdout=subprocess.PIPE
    )
    try:
        until((tmp_path / "mesh" / "server" / "address.json").exists)
        worker = run("builders:app", "--processes", "2", "--dir", path)
        worker.until("serves", 2)
        with Mesh(path) as mesh:
            for _ in range(6):
                mesh.agent("planner").send("builder", "slow")
        until(lambda: len({line[2] for line in worker.done()}) == 2)
        assert worker.end() == 0
    finally:
        node.terminate()
        node.communicate(timeout=30)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("no_such_module:app",), Exit.USAGE, "there is no module 'no_such_module'"),
        (("builders:nothing",), Exit.USAGE, "builders has no nothing"),
        (("builders:number",), Exit.USAGE, "is no function of a mesh"),
        (("builders",), Exit.USAGE, "write MODULE:APP"),
        (("--", "-c:x"), Exit.USAGE, "write MODULE:APP"),
        (("builders:app", "--processes", "2"), Exit.UNREACHABLE, "DIRECTORY_IN_USE"),
    ],
)
def test_what_cannot_be_served_is_said_once(
    run: Callable[..., Worker], tmp_path: Path, words: tuple[str, ...], code: Exit, said: str
) -> None:
    path = mesh_with(tmp_path / "mesh")
    worker = run("--dir", path, *words)
    _, err = worker.process.communicate(timeout=60)
    assert worker.process.returncode == code
    assert said in err.decode()
    assert "Traceback" not in err.decode()
