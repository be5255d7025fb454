"""The scripts of docs/howto/file-bus.md, run as they stand there, by a shell that knows nothing else."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from relaymesh import Mesh
from relaymesh.gateways.filebus import BusSettings, FileBus
from tests.project.tree import ROOT
from tests.waiting import until

PAGE = ROOT / "docs/howto/file-bus.md"
SCRIPT = re.compile(r"^```sh\n(#!/bin/sh\n# ([a-z]+\.sh) .*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    folder = tmp_path / "scripts"
    folder.mkdir()
    for text, name in SCRIPT.findall(PAGE.read_text(encoding="utf-8")):
        (folder / name).write_text(text)
        (folder / name).chmod(0o700)
    assert sorted(path.name for path in folder.iterdir()) == ["alive.sh", "answer.sh", "send.sh", "worker.sh"]
    return folder


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Mesh, Path]]:
    """A mesh, and a bus of `coder` that is served by a thread."""
    with Mesh(durability="memory") as mesh:
        mesh.agent("planner")
        bus = FileBus(
            mesh._session, tmp_path / "bus", ["coder"], BusSettings(poll_s_min=0.01, poll_s_max=0.02)
        )
        stop = threading.Event()
        thread = threading.Thread(target=lambda: bus.run(stop))
        thread.start()
        try:
            yield mesh, tmp_path / "bus"
        finally:
            stop.set()
            thread.join()
            bus.close()


def run(*words: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        ["sh", *map(str, words)], capture_output=True, text=True, timeout=60, check=False, umask=0o077
    )
    assert done.returncode == code, done.stderr
    return done


def waits_in(folder: Path, *, count: int = 1) -> None:
    """Until the gateway has put out so many deliveries."""
    until(lambda: len(list(folder.glob("*/[!.]*.meta.json"))) >= count)


def test_a_script_sends_and_gets_its_receipt(
    served: tuple[Mesh, Path], scripts: Path, tmp_path: Path
) -> None:
    mesh, bus = served
    (tmp_path / "job.json").write_text('{"do": "bump"}')
    done = run(scripts / "send.sh", bus, "job-1", "planner", tmp_path / "job.json")
    assert json.loads(done.stdout)["messageId"] == "job-1"
    assert mesh.agent("planner").receive(timeout=10).content == {"do": "bump"}


def test_a_script_that_sends_to_nobody_is_told_why(
    served: tuple[Mesh, Path], scripts: Path, tmp_path: Path
) -> None:
    _, bus = served
    (tmp_path / "job.json").write_text("1")
    done = run(scripts / "send.sh", bus, "job-1", "nobody", tmp_path / "job.json", code=1)
    assert json.loads(done.stderr)["code"] == "UNKNOWN_RECIPIENT"


def test_a_script_works_through_its_inbox(served: tuple[Mesh, Path], scripts: Path, tmp_path: Path) -> None:
    mesh, bus = served
    for number in range(5):
        mesh.agent("planner").send("coder", number, id=f"m-{number}")
    waits_in(bus / "inbox", count=5)
    done = run(scripts / "worker.sh", bus, "w1", "sh", "-c", "cat; echo")
    assert sorted(done.stdout.split()) == ["0", "1", "2", "3", "4"]
    until(lambda: mesh.stats().mailboxes["default/coder"].acked == 5)


def test_a_script_that_fails_sends_its_delivery_back(served: tuple[Mesh, Path], scripts: Path) -> None:
    mesh, bus = served
    mesh.agent("coder", backoff_ms_base=10)
    mesh.agent("planner").send("coder", "hard", id="m-1", max_retries=0)
    waits_in(bus / "inbox")
    run(scripts / "worker.sh", bus, "w1", "sh", "-c", "exit 3")
    until(mesh.dead_letters)
    [letter] = mesh.dead_letters()
    assert letter.letter.failures[-1].reason == "exit code 3"


def test_a_script_answers_a_question(served: tuple[Mesh, Path], scripts: Path, tmp_path: Path) -> None:
    mesh, bus = served
    (tmp_path / "answer.json").write_text('"42"')
    mesh.agent("planner").send("coder", "how many?", id="q-1", type="question")
    waits_in(bus / "inbox")
    (bus / "processing/w1").mkdir()
    [meta] = list((bus / "inbox/normal").glob("*.meta.json"))
    claimed = meta.rename(bus / "processing/w1" / meta.name)
    run(scripts / "answer.sh", bus, claimed, tmp_path / "answer.json")
    answer = mesh.agent("planner").receive(timeout=10)
    assert (answer.type, answer.content, answer.correlation_id) == ("answer", "42", "q-1")


def test_a_script_shows_life_while_it_works_and_stops_with_its_work(
    served: tuple[Mesh, Path], scripts: Path
) -> None:
    _, bus = served
    (bus / "processing/w1").mkdir()
    run(
        scripts / "alive.sh",
        bus,
        "w1",
        "sh",
        "-c",
        f"until [ -e '{bus}/processing/w1/alive' ]; do sleep 0.1; done",
    )
    assert (bus / "processing/w1/alive").exists()
