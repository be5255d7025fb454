"""schedule add, list, show, pause, resume and remove: embedded and over a server alike."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from relaymesh.cli.main import main
from relaymesh.sdk.mesh import Mesh
from tests.cli.running import Ran
from tests.client.serving import ServerThread

WORK = "workflow: work\nsteps:\n  one: {agent: coder}\n"


class Commands:
    """`relaymesh schedule …`, on a directory or on a server."""

    def __init__(self, capsys: pytest.CaptureFixture[str], file: Path, *place: str) -> None:
        self._capsys = capsys
        self.file = str(file)
        self._place = place

    def __call__(self, *words: str) -> Ran:
        self._capsys.readouterr()
        code = main(["schedule", *words, *self._place])
        return Ran(code, *self._capsys.readouterr())

    def json(self, *words: str) -> Ran:
        return self(*words, "--json")

    def add(self, name: str, *words: str) -> Ran:
        return self.json("add", name, "--cron", "0 7 * * *", *words)


@pytest.fixture(params=["directory", "server"])
def commands(
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Iterator[Commands]:
    file, path = tmp_path / "work.yaml", tmp_path / "mesh"
    file.write_text(WORK)
    if request.param == "directory":
        with Mesh(path) as mesh:
            mesh.agent("coder")
        yield Commands(capsys, file, "--dir", str(path))
        return
    server = ServerThread(path)
    token = server.token(["admin"])
    try:
        with Mesh(server.url, token=token) as mesh:
            mesh.agent("coder")
        yield Commands(capsys, file, "--url", server.url, "--token", token)
    finally:
        server.stop()


def test_a_schedule_from_its_beginning_to_its_end(commands: Commands) -> None:
    made = commands.add("nightly", "--tz", "Europe/Berlin", "--to", "coder", "--content", '{"a": 1}').row
    assert (made["name"], made["work"], made["state"], made["duplicate"]) == (
        "nightly", "send to coder", "active", False,
    )  # fmt: skip
    again = commands.add("nightly", "--tz", "Europe/Berlin", "--to", "coder", "--content", '{"a": 1}')
    assert again.row["duplicate"] is True
    assert commands.add("runs", "--workflow", commands.file, "--missed", "none").row["work"] == "run work"
    assert [row["name"] for row in commands.json("list").rows] == ["nightly", "runs"]
    shown = commands.json("show", "nightly").row
    assert (shown["content"], shown["missed"], shown["to"], shown["waiting"]) == (
        {"a": 1},
        "one",
        "coder",
        None,
    )
    assert commands.json("show", "runs").row["document"] == {
        "workflow": "work", "steps": {"one": {"agent": "coder"}},
    }  # fmt: skip
    assert "0 7 * * *" in commands("show", "runs").out
    assert commands.json("pause", "nightly").row["state"] == "paused"
    assert commands.json("resume", "nightly").row["state"] == "active"
    assert commands.json("remove", "nightly", "--yes").row == {"name": "nightly", "removed": True}
    assert commands("show", "nightly").code == 4
    assert "runs" in commands("list").out


def test_other_fields_need_replace(commands: Commands) -> None:
    commands.add("s", "--to", "coder")
    refused = commands.add("s", "--to", "coder", "--priority", "1")
    assert (refused.code, "CONFLICT" in refused.err) == (8, True)
    assert commands.add("s", "--to", "coder", "--priority", "1", "--replace").code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--workflow or --to"),
        (("--to", "coder", "--workflow", "work"), "not both"),
        (("--workflow", "work", "--content", "1"), "not both"),
        (("--to", "coder", "--input", "1"), "--input"),
        (("--to", "coder", "--content", "{"), "--content"),
        (("--to", "coder", "--missed", "all"), "one, none"),
        (("--to", "coder", "--tz", "Europe/Berln"), "did you mean Europe/Berlin?"),
        (("--to", "nobody"), "nobody"),
        (("--to", "coder", "--priority", "9"), "priority"),
        (("--workflow", "nothing"), "there is no file 'nothing'"),
        (("--workflow", "nothing.yaml"), "nothing.yaml"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(
    commands: Commands, words: tuple[str, ...], said: str
) -> None:
    ran = commands.add("s", *words)
    assert ran.code != 0
    assert said in ran.err
    assert commands.json("list").rows == []


def test_a_bad_line_is_refused(commands: Commands) -> None:
    for line in ("", "x", "* * * *", "0 * * * * *", "99 * * * *"):
        ran = commands("add", "s", "--cron", line, "--to", "coder")
        assert ran.code == 2, line
    assert commands("remove", "s", "--yes").code == commands("pause", "s").code == 4
