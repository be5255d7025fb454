"""`relaymesh bus`: make a bus, serve it, look into it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import typer

from relaymesh import Mesh
from relaymesh.cli.bus import app
from relaymesh.errors import InvalidSettings, NotFound
from tests.cli.running import environment


def bus(*words: object) -> None:
    typer.main.get_command(app)([str(word) for word in words], standalone_mode=False)


def rows(capsys: pytest.CaptureFixture[str]) -> dict[str, int]:
    out = capsys.readouterr().out
    return {row["place"]: row["files"] for row in map(json.loads, out.splitlines())}


def test_a_bus_is_made_for_its_owner_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bus("init", tmp_path / "bus", "--agent", "coder", "--agent", "team/tester", "--json")
    made: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert made["agents"] == ["default/coder", "team/tester"]
    assert sorted(path.name for path in (tmp_path / "bus").iterdir()) == sorted(
        [".gateway", "bus.json", "meta", "payload", "receipt", "inbox", "processing", "done", "dead"]
    )
    assert (tmp_path / "bus").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "bus/.gateway").stat().st_mode & 0o777 == 0o700


def test_making_it_again_changes_nothing_but_its_agents(tmp_path: Path) -> None:
    bus("init", tmp_path / "bus", "--agent", "coder")
    (tmp_path / "bus/payload/x").write_text("kept")
    bus("init", tmp_path / "bus", "--agent", "tester")
    assert (tmp_path / "bus/payload/x").read_text() == "kept"
    assert json.loads((tmp_path / "bus/bus.json").read_bytes()) == {"agents": ["default/tester"]}


def test_a_bus_needs_an_agent(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="agent"):
        bus("init", tmp_path / "bus")
    assert not (tmp_path / "bus").exists()


def test_what_is_no_bus_is_named(tmp_path: Path) -> None:
    for words in (["status", tmp_path / "none"], ["run", tmp_path / "none", "--dir", tmp_path / "mesh"]):
        with pytest.raises(NotFound, match="no file bus"):
            bus(*words)


@pytest.mark.parametrize("text", ["", "{}", '{"agents": 7}', "\x00"])
def test_a_bus_that_does_not_say_whose_it_is_is_not_served(tmp_path: Path, text: str) -> None:
    bus("init", tmp_path / "bus", "--agent", "coder")
    (tmp_path / "bus/bus.json").write_text(text)
    with pytest.raises(InvalidSettings, match=r"bus\.json"):
        bus("run", tmp_path / "bus", "--dir", tmp_path / "mesh")


def test_a_bus_is_served_until_a_signal_and_gives_back_what_nobody_claimed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, data = tmp_path / "bus", tmp_path / "mesh"
    bus("init", path, "--agent", "coder")
    capsys.readouterr()
    with Mesh(data) as mesh:
        mesh.agent("coder")
        mesh.agent("planner").send("coder", "work", id="m-1", priority="high")
    words = ["run", str(path), "--dir", str(data), "--poll", "0.05"]
    with subprocess.Popen(
        [sys.executable, "-c", "from relaymesh.cli.bus import app; app()", *words], env=environment()
    ) as process:
        try:
            deadline = time.monotonic() + 60
            while not list((path / "inbox/high").glob("[!.]*")):
                assert time.monotonic() < deadline
                assert process.poll() is None
                time.sleep(0.02)
            bus("status", path, "--json")
            assert rows(capsys)["inbox/high"] == 1
        finally:
            os.kill(process.pid, signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    assert list((path / "inbox/high").iterdir()) == []
    with Mesh(data) as mesh:
        [delivery] = mesh.agent("coder").receive_many(5, timeout=0)
        assert delivery.attempt == 1


def test_the_state_of_every_file_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bus"
    bus("init", path, "--agent", "coder")
    capsys.readouterr()
    for place in (
        "meta/a.meta.json",
        ".gateway/b.meta.json",
        "receipt/c.receipt.json",
        "inbox/low/d~0.1.1.meta.json",
        "processing/w1/e~0.1.2.meta.json",
        "processing/w1/f~0.1.3.lost.json",
        "done/g~0.1.4.meta.json",
        "done/2026-01-01/h~0.1.5.meta.json",
        "dead/i.reason.json",
    ):
        (path / place).parent.mkdir(exist_ok=True)
        (path / place).write_text("{}")
    bus("status", path, "--json")
    assert rows(capsys) == {
        "meta": 1,
        ".gateway": 1,
        "receipt": 1,
        "inbox/high": 0,
        "inbox/normal": 0,
        "inbox/low": 1,
        "processing/w1": 1,
        "done": 1,
        "done/2026-01-01": 1,
        "dead": 1,
    }
