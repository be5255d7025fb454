"""`relaymesh init && relaymesh up`: from an empty folder to a finished task."""

from __future__ import annotations

from pathlib import Path

from tests.agents.team_up import command, rows, team_up


def test_from_an_empty_folder_to_a_finished_task(tmp_path: Path) -> None:
    assert command(tmp_path, "init").returncode == 0
    with team_up(tmp_path) as up:
        given = ("--input", '{"name": "Ada"}')
        done = command(tmp_path, "workflow", "run", "hello.yaml", *given, "--watch", "--json")
        assert done.returncode == 0, done.stderr
        [task] = rows(tmp_path, "task", "list")
        assert task["status"] == "SUCCESS"
        assert up.wait_for("step.done")["agent"] == "hello"
        assert up.stop() == 0
    assert [each["event"] for each in up.events if each["event"] in ("supervisor.stopped", "down")] == [
        "supervisor.stopped",
        "down",
    ]
    assert "recovery point: everything before sequence" in up.of("node.note")[-1]["text"]


def test_settings_in_the_file_of_the_team_reach_its_node(tmp_path: Path) -> None:
    assert command(tmp_path, "init").returncode == 0
    with (tmp_path / "relaymesh.toml").open("a") as file:
        file.write("\n[settings]\nmax_attempts = 7\n")
    with team_up(tmp_path):
        shown = {each["name"]: each for each in rows(tmp_path, "settings", "show")}
    assert (shown["max_attempts"]["value"], shown["max_attempts"]["origin"]) == (7, "toml")
