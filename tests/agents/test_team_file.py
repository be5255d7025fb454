"""`relaymesh.toml`: what is taken, and how each mistake is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from relaymesh.agents import team_file
from relaymesh.agents.declarations import AgentDeclaration, MeshDeclaration, Team
from relaymesh.agents.team_file import mesh_directory, read_team, team_of
from relaymesh.errors import InvalidSettings, NotFound

PATH = Path("folder/relaymesh.toml")


def read(text: str) -> Team:
    team, problems = team_of(text.encode(), PATH)
    assert team is not None, problems
    return team


def wrong(text: str) -> list[str]:
    team, problems = team_of(text.encode(), PATH)
    assert team is None
    assert all("\n" not in each for each in problems)
    return problems


def test_a_file_becomes_values() -> None:
    team = read(
        """
        [mesh]
        directory = "data"
        port = 7717
        graceful_timeout = "2s"
        [agents.coder]
        command = ["python3", "coder.py"]
        time_limit = "10m"
        silence_limit = 30
        secrets = { KEY = "env:MY_KEY" }
        [agents.owner]
        kind = "person"
        """
    )
    assert team.mesh == MeshDeclaration(directory=Path("folder/data"), port=7717, graceful_timeout=2.0)
    coder, owner = team.agents
    assert (coder.kind, coder.time_limit, coder.silence_limit) == ("script", 600.0, 30.0)
    assert coder.secrets == {"KEY": "env:MY_KEY"}
    assert owner.kind == "person"


def test_an_agent_of_several_processes_has_a_step_for_each(tmp_path: Path) -> None:
    table = "[agents.a]\nkind = 'python'\nrun = 'm:f'\n"
    given = ("", "processes = 3", "processes = 2\nconcurrency = 8", "concurrency = 4")
    agents = [read(f"{table}{each}").agents[0] for each in given]
    assert [(each.processes, each.concurrency) for each in agents] == [(1, 1), (3, 3), (2, 8), (1, 4)]


def test_an_empty_file_is_a_team_of_none() -> None:
    team = read("")
    assert team.agents == ()
    assert team.mesh.directory == Path("folder/.relaymesh")


def test_every_key_of_a_declaration_is_checked_and_no_other() -> None:
    for struct, checks in ((MeshDeclaration, team_file._MESH), (AgentDeclaration, team_file._AGENT)):
        names = {field.name for field in msgspec.structs.fields(struct)} - {"name"}
        assert names == set(checks)
    assert set(get_type_hints(Team)) == {"path", "mesh", "agents"}


MISTAKES = {
    '[agents.a]\ncommand = "python3 a.py"': "[agents.a] command must be a list of arguments, not a line",
    '[agents.a]\ncomand = ["true"]': "[agents.a] has no key 'comand'; 'command' was probably meant",
    "[agents.a]\nkind = 'script'": '[agents.a] command is missing: as ["python3", "agents/greeter.py"]',
    "[agents.a]\nkind = 'python'": "[agents.a] run is missing: as module:name",
    "[agents.a]\nkind = 'person'\ncommand = ['x']": "[agents.a] command is for kind script and worker",
    "[agents.a]\ncommand = ['x']\nprocesses = 2": "processes is for kind worker and python",
    "[agents.a]\nkind = 'worker'\ncommand = ['x']\nconcurrency = 2\nprocesses = 3": (
        "[agents.a] processes is 3 and concurrency 2: a process would get no work"
    ),
    "[agents.a]\nkind = 'robot'\ncommand = ['x']": "[agents.a] kind",
    "[agents.a]\ncommand = ['x']\nconcurrency = 0": "[agents.a] concurrency",
    "[agents.a]\ncommand = ['x']\nconcurrency = true": "[agents.a] concurrency",
    "[agents.a]\ncommand = ['x']\ntime_limit = '5 minutes'": "[agents.a] time_limit is '5 minutes'",
    "[agents.a]\ncommand = ['x']\ntime_limit = nan": "[agents.a] time_limit",
    "[agents.a]\ncommand = ['x']\nsecrets = {KEY = 'hunter2'}": "[agents.a] secrets.KEY is not a reference",
    "[agents.a]\ncommand = ['x']\nenvironment = {RELAYMESH_TOKEN = 'x'}": "[agents.a] environment names",
    "[agents.a]\ncommand = ['x']\nrole = 'king'": "[agents.a] role",
    '[agents.a]\ncommand = ["a\\u0000b"]': "[agents.a] an item of command has a NUL",
    "[agents.a]\ncommand = ['x']\nbackoff_min = 5\nbackoff_max = 1": "[agents.a] backoff_max is below",
    "[agents.relaymesh]\ncommand = ['x']": "[agents.relaymesh] its name is reserved",
    "[agents.'a/b']\ncommand = ['x']": "[agents.a/b] its name has a slash",
    "[mesh]\nport = 70000": "[mesh] port",
    "[mash]\nport = 1": "has no key 'mash'; 'mesh' was probably meant",
    "agents = 3": "[agents] must be tables, written [agents.NAME]",
    "[mesh": "relaymesh.toml: ",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_one_line_that_names_table_and_key(text: str) -> None:
    problem = wrong(text)[0]
    assert MISTAKES[text] in problem
    assert problem.startswith("relaymesh.toml: ")


def test_every_mistake_is_told_at_once() -> None:
    assert len(wrong("[mesh]\nport = -1\n[agents.a]\nkind = 'x'\nfoo = 1")) == 4


def test_a_secret_that_stands_in_the_file_is_not_repeated() -> None:
    assert "hunter2" not in wrong("[agents.a]\ncommand = ['x']\nsecrets = {KEY = 'hunter2'}")[0]


def test_what_is_no_toml_is_told_and_never_raised() -> None:
    for data in (b"\xff\xfe", b"a = [" + b"[" * 100_000, b"x" * 2_000_000, b"[agents\xc2\x80]"):
        team, problems = team_of(data, PATH)
        assert team is None
        assert len(problems) == 1


VALUES = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(), inner, max_size=3),
    max_leaves=6,
)


@given(key=some.sampled_from(sorted(team_file._AGENT)), value=VALUES)
def test_no_value_of_any_key_ends_the_check(key: str, value: Any) -> None:
    try:
        team_file._AGENT[key](value, key)
    except InvalidSettings:
        pass


def test_a_file_that_is_not_there_names_the_next_command(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="relaymesh init"):
        read_team(tmp_path / "relaymesh.toml")
    assert mesh_directory(tmp_path / "relaymesh.toml") is None


def test_commands_find_the_directory_also_where_an_agent_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "relaymesh.toml"
    file.write_text("[mesh]\ndirectory = 'data'\n[agents.a]\nkind = 'robot'\n", encoding="utf-8")
    assert mesh_directory(file) == tmp_path / "data"
    file.write_text("[mesh", encoding="utf-8")
    with pytest.raises(InvalidSettings, match="--dir"):
        mesh_directory(file)


def test_settings_of_the_node_may_stand_in_it_and_are_checked() -> None:
    assert read("[settings]\nmax_attempts = 5\nlease_timeout_ms = 20000").agents == ()
    [problem] = wrong("[settings]\nmax_attempt = 5")
    assert "[settings]" in problem
    assert "max_attempt" in problem
    assert wrong("settings = 3")
    assert wrong("[settings]\nbase_backoff_ms = 5000\nmax_backoff_ms = 1000")
