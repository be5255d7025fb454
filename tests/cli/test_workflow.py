"""workflow: a file is checked and drawn without a mesh, and run on one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import Cli, piped

RELEASE = """\
workflow: release
input: {repo: string}
steps:
  plan: {agent: planner, input: {goal: "Release ${{ input.repo }}"}}
  build:
    agent: builder
    needs: [plan]
    for_each: ${{ steps.plan.output.targets }}
    input: {target: "${{ item }}"}
  note: {agent: scribe, needs: [build], when: "${{ size(steps.build.output) > 0 }}"}
"""
INPUT = '{"repo": "x"}'


@pytest.fixture
def release(tmp_path: Path) -> str:
    path = tmp_path / "release.yaml"
    path.write_text(RELEASE)
    return str(path)


def test_check_counts_what_is_in_a_good_file(empty: Cli, release: str) -> None:
    ran = empty("workflow", "check", release)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == f"{release}: ok: workflow 'release', 3 steps, 3 agents, 3 levels\n"
    row = empty.json("workflow", "check", release).row
    assert row == {
        "file": release,
        "workflow": "release",
        "version": "",
        "steps": 3,
        "agents": 3,
        "levels": 3,
    }
    assert not empty.path.exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must be an object"),
        ("steps: [", "line 2, column 1"),
        ("workflow: w\nsteps: {}", "at least one step"),
        ("workflow: w\nsteps: {a: {agent: x, neds: [b]}}", "unknown field 'neds'"),
        ("workflow: w\nsteps: {a: {agent: x, needs: [b]}}", "unknown step 'b'"),
        ("workflow: w\nsteps: {a: {agent: x, needs: [b]}, b: {agent: x, needs: [a]}}", "a -> b -> a"),
        ('{"workflow": "w", "steps": {"a": {}}}', "the agent is missing"),
        ("workflow: &x w\nsteps: {a: {agent: *x}}", "anchor"),
        ("\x00", "YAML"),
    ],
)
def test_a_bad_file_is_one_line_that_names_it(empty: Cli, tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    for verb in ("check", "graph", "run"):
        ran = empty("workflow", verb, str(path), *(["--create"] if verb == "run" else []))
        assert (ran.code, ran.out) == (2, "")
        [line] = ran.err.splitlines()
        assert line.startswith("error: INVALID_PLAN: ")
        assert words in line
    error = empty.json("workflow", "check", str(path)).error
    assert (error["code"], str(path) in error["message"], error["retryable"]) == ("INVALID_PLAN", True, False)


def test_a_file_that_is_not_text_or_too_large_is_refused(empty: Cli, tmp_path: Path) -> None:
    path = tmp_path / "bad"
    path.write_bytes(b"\xff\xfe\xff")
    assert empty("workflow", "check", str(path)).code == 2
    path.write_bytes(b"#" * 10_000_000)
    assert "are allowed" in empty("workflow", "check", str(path)).err


def test_a_file_that_is_not_there(empty: Cli, tmp_path: Path) -> None:
    assert empty.json("workflow", "check", "nowhere.yaml").error["code"] == "NOT_FOUND"
    assert empty("workflow", "check", "a\x00b").code == 4
    assert empty("workflow", "check", str(tmp_path)).code == 1


def test_a_workflow_may_come_through_a_pipe() -> None:
    ran = piped("workflow", "check", "-", stdin=RELEASE)
    assert (ran.code, ran.out) == (0, "stdin: ok: workflow 'release', 3 steps, 3 agents, 3 levels\n")


def test_graph_shows_levels_a_flowchart_or_both_as_json(empty: Cli, release: str) -> None:
    tree = empty("workflow", "graph", release).out
    assert "    build (builder); needs plan; for each\n" in tree
    flowchart = empty("workflow", "graph", release, "--mermaid").out
    assert flowchart.startswith("flowchart TD\n")
    assert "s0 --> s1" in flowchart
    row = empty.json("workflow", "graph", release).row
    assert row["levels"] == [["plan"], ["build"], ["note"]]
    assert row["steps"][1]["needs"] == ["plan"]
    assert row["mermaid"] + "\n" == flowchart


def test_the_same_run_is_one_task_and_another_key_another(empty: Cli, release: str) -> None:
    first = empty.json("workflow", "run", release, "--input", INPUT, "--create").row
    again = empty.json("workflow", "run", release, "--input", INPUT).row
    assert (first["duplicate"], again["duplicate"]) == (False, True)
    assert first["id"] == again["id"]
    other = empty.json("workflow", "run", release, "--input", INPUT, "--key", "other").row
    assert other["id"] != first["id"]


def test_without_create_its_agents_must_be_there(cli: Cli, release: str) -> None:
    ran = cli.json("workflow", "run", release, "--input", INPUT)
    assert (ran.code, ran.out) == (2, "")
    assert "no mailbox" in ran.error["message"]


def test_a_run_makes_no_mesh_unless_told_to(empty: Cli, release: str) -> None:
    assert empty("workflow", "run", release, "--input", INPUT).code == 4
    assert not empty.path.exists()


@pytest.mark.parametrize("given", ["{", '{"repo": 3}', '{"rep": "x"}', "null", "@nowhere", "NaN"])
def test_a_bad_input_starts_nothing(empty: Cli, release: str, given: str) -> None:
    ran = empty("workflow", "run", release, "--create", "--input", given)
    assert ran.code == (4 if given == "@nowhere" else 2)
    assert len(ran.err.splitlines()) == 1
    empty("send", "someone", "hello", "--create")
    assert empty.json("task", "list").rows == []


def test_the_input_may_be_in_a_file(empty: Cli, release: str, tmp_path: Path) -> None:
    (tmp_path / "input.json").write_text(json.dumps({"repo": "x"}))
    given = f"@{tmp_path / 'input.json'}"
    assert empty("workflow", "run", release, "--create", "--input", given).code == 0
