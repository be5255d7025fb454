"""workflow put, list, show, run NAME, graph NAME and remove: embedded and over a server alike."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from relaymesh.cli.main import main
from relaymesh.plans.reading import read_plan
from relaymesh.sdk.mesh import Mesh
from tests.cli.running import Cli, Ran
from tests.client.serving import ServerThread

RELEASE = """\
workflow: release
input: {n: integer}
steps:
  plan: {agent: planner, input: {goal: "Release ${{ input.n }}"}}
  ship: {agent: shipper, needs: [plan]}
"""


class Commands:
    """`relaymesh workflow …`, on a directory or on a server."""

    def __init__(self, capsys: pytest.CaptureFixture[str], file: Path, *place: str) -> None:
        self._capsys = capsys
        self.file = file
        self._place = place

    def __call__(self, *words: str) -> Ran:
        self._capsys.readouterr()
        code = main(["workflow", *words, *self._place])
        return Ran(code, *self._capsys.readouterr())

    def json(self, *words: str) -> Ran:
        return self(*words, "--json")

    def write(self, text: str) -> str:
        self.file.write_text(text)
        return str(self.file)


@pytest.fixture(params=["directory", "server"])
def commands(
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Iterator[Commands]:
    file, path = tmp_path / "release.yaml", tmp_path / "mesh"
    file.write_text(RELEASE)
    if request.param == "directory":
        with Mesh(path) as mesh:
            _furnish(mesh)
        yield Commands(capsys, file, "--dir", str(path))
        return
    server = ServerThread(path)
    token = server.token(["admin"])
    try:
        with Mesh(server.url, token=token) as mesh:
            _furnish(mesh)
        yield Commands(capsys, file, "--url", server.url, "--token", token)
    finally:
        server.stop()


def _furnish(mesh: Mesh) -> None:
    for name in ("planner", "shipper"):
        mesh.agent(name)


def test_put_list_show_and_remove(commands: Commands) -> None:
    file = str(commands.file)
    first = commands.json("put", file).row
    assert (first["name"], first["version"], first["duplicate"]) == ("release", "1", False)
    assert commands.json("put", file).row == first | {"duplicate": True}
    assert commands.json("put", file, "--version", "2.0").row["version"] == "2.0"
    [listed] = commands.json("list").rows
    shown = commands.json("show", "release").row
    document = shown.pop("document")
    assert shown == listed
    assert (listed["version"], listed["versions"], listed["digest"]) == ("2.0", 2, first["digest"])
    assert document == read_plan(RELEASE) | {"version": "2.0"}
    assert [row["version"] for row in commands.json("list", "release").rows] == ["2.0", "1"]
    assert [row["version"] for row in commands.json("list", "release", "--limit", "1").rows] == ["2.0"]
    assert commands.json("show", "release@1").row["document"]["version"] == "1"
    assert commands.json("remove", "release@2.0", "--yes").row == {"name": "release@2.0", "removed": 1}
    assert [row["version"] for row in commands.json("list").rows] == ["1"]
    assert commands.json("remove", "release", "--yes").row["removed"] == 1
    ran = commands("list")
    assert (ran.code, "relaymesh workflow put FILE" in ran.err) == (0, True)


def test_what_people_are_shown_can_be_put_again(commands: Commands) -> None:
    commands("put", str(commands.file))
    head, _, document = commands("show", "release").out.partition("\n\n")
    assert head.split()[:4] == ["name", "release", "version", "1"]
    again = commands.json("put", commands.write(document)).row
    assert (again["version"], again["duplicate"]) == ("1", True)
    columns = commands("list").out.split("\n")[0].split()
    assert columns == ["NAME", "VERSION", "VERSIONS", "OWNER", "BYTES", "PUT", "DIGEST"]


def test_run_and_graph_take_a_file_or_a_name(commands: Commands) -> None:
    file, given = str(commands.file), ("--input", '{"n": 1}')
    commands("put", file)
    by_name = commands.json("run", "release", *given).row
    assert (by_name["workflow"], by_name["duplicate"]) == ("release", False)
    again = commands.json("run", "release@1", *given).row
    assert again == by_name | {"duplicate": True}
    assert commands.json("run", "release", "--create", *given).row == again
    assert commands.json("run", file, *given).row["id"] != by_name["id"], "it has no version"
    drawn = commands("graph", "release").out
    assert drawn.splitlines()[0] == "release 1"
    assert drawn.splitlines()[1:] == commands("graph", file).out.splitlines()[1:]
    assert commands.json("graph", "release@1").row["version"] == "1"


def test_a_file_of_that_name_wins(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    commands("put", str(commands.file))
    monkeypatch.chdir(commands.file.parent)
    Path("release").write_text(RELEASE.replace("workflow: release", "workflow: other"))
    assert commands.json("run", "release", "--input", '{"n": 1}').row["workflow"] == "other"


def test_another_document_under_a_version_is_refused(commands: Commands) -> None:
    file = str(commands.file)
    commands("put", file, "--version", "1")
    ran = commands.json("put", commands.write(RELEASE + "deadline: 1h\n"), "--version", "1")
    assert (ran.code != 0, ran.error["code"]) == (True, "CONFLICT")
    assert commands.json("put", file).row["version"] == "2"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("show", "relase"), "NOT_FOUND"),
        (("show", "release@7"), "NOT_FOUND"),
        (("run", "relase"), "NOT_FOUND"),
        (("run", "release@7"), "NOT_FOUND"),
        (("run", "missing.yaml"), "NOT_FOUND"),
        (("run", "no/such/file"), "NOT_FOUND"),
        (("graph", "relase"), "NOT_FOUND"),
        (("remove", "release"), "CONFIRMATION_NEEDED"),
        (("remove", "relase", "--yes"), "NOT_FOUND"),
        (("show", "a b"), "INVALID_VALUE"),
        (("show", "release@"), "INVALID_VALUE"),
        (("show", "release@ 1"), "INVALID_VALUE"),
        (("show", ""), "INVALID_VALUE"),
        (("remove", "a/b", "--yes"), "INVALID_VALUE"),
        (("list", "a b"), "INVALID_VALUE"),
        (("put", "{file}", "--version", "a b"), "INVALID_VALUE"),
        (("put", "{file}", "--version", "x" * 200), "INVALID_VALUE"),
        (("put", "no-such-file"), "NOT_FOUND"),
    ],
    ids=" ".join,
)
def test_a_bad_call_is_one_line_with_a_hint(
    empty: Cli, tmp_path: Path, words: tuple[str, ...], code: str
) -> None:
    file = tmp_path / "release.yaml"
    file.write_text(RELEASE)
    empty("workflow", "put", str(file), "--create")
    given = [str(file) if word == "{file}" else word for word in words]
    ran = empty("workflow", *given)
    assert (ran.code != 0, ran.out) == (True, "")
    [line] = ran.err.splitlines()
    assert line.startswith(f"error: {code}: ")
    if words[0] in ("show", "run", "graph") and "rel" in words[1] and code == "NOT_FOUND":
        assert "relaymesh workflow list" in line
    assert empty.json("workflow", *given).error["code"] == code
