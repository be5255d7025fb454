"""settings: what a person sees of them, with a running node and without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from relaymesh.node.settings_file import SETTINGS_FILE
from relaymesh.wire.parameters import PARAMETERS
from tests.cli.running import Cli
from tests.server.processes import running


def write(path: Path, **values: Any) -> None:
    path.mkdir(exist_ok=True)
    (path / SETTINGS_FILE).write_text(json.dumps(values))


def by_name(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in rows}


def test_without_a_node_the_file_and_the_environment_say_what_one_would_take(
    empty: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(empty.path, max_attempts=5, mesh_prune_limit=9, queue_capacity=3)
    monkeypatch.setenv("RELAYMESH_QUEUE_CAPACITY", "4")
    rows = by_name(empty.json("settings", "show").rows)
    assert list(rows) == [row.name for row in PARAMETERS]
    assert all(row["effect"] for row in rows.values())
    assert [rows["max_attempts"][each] for each in ("value", "default", "origin", "active")] == [
        5,
        3,
        "file",
        True,
    ]
    assert not rows["mesh_prune_limit"]["active"]
    assert (rows["queue_capacity"]["value"], rows["queue_capacity"]["origin"]) == (4, "environment")
    differing = by_name(empty.json("settings", "diff").rows)
    assert set(differing) == {"max_attempts", "mesh_prune_limit", "queue_capacity"}
    assert "variable" in differing["queue_capacity"]["note"]
    assert "inactive" in differing["mesh_prune_limit"]["note"]
    assert empty.json("settings", "reload").error["code"] == "NOT_FOUND"


def test_a_wrong_file_is_named_with_the_close_name(empty: Cli) -> None:
    write(empty.path, max_atempts=5)
    for words in (("show",), ("diff",), ("reload",)):
        ran = empty.json("settings", *words)
        assert ran.code != 0
        assert ran.error["code"] == "INVALID_SETTINGS"
        assert "max_atempts" in ran.error["message"]
        assert "max_attempts" in ran.error["hint"]
    assert empty.json("settings", "history").rows == []


def test_a_directory_that_is_no_mesh_is_said_and_left_alone(empty: Cli) -> None:
    empty.path.mkdir()
    ran = empty.json("settings", "show")
    assert ran.error["code"] == "NOT_FOUND"
    assert list(empty.path.iterdir()) == []


def test_a_running_node_is_asked(empty: Cli) -> None:
    write(empty.path, max_attempts=5)
    with running(empty.path) as process:
        assert by_name(empty.json("settings", "show").rows)["max_attempts"]["value"] == 5
        assert by_name(empty.json("settings", "diff").rows)["max_attempts"]["note"] == ""
        write(empty.path, max_attempts=6, maxRetries=1)
        differing = by_name(empty.json("settings", "diff").rows)
        assert {name: (row["in_force"], row["file"]) for name, row in differing.items()} == {
            "max_attempts": (5, 6),
            "maxRetries": (3, 1),
        }
        assert empty.json("reload-settings").row["changed_fields"] == ["max_attempts", "maxRetries"]
        assert "nothing changed" in empty("settings", "reload").out
        write(empty.path, max_attempts="6")
        assert empty.json("settings", "reload").error["code"] == "INVALID_SETTINGS"
        [newest] = empty.json("settings-history", "--limit", "1").rows
        assert (newest["refused"], newest["changed_fields"], newest["cause"]) == (
            True,
            ["max_attempts"],
            "reload",
        )
        shown = empty("settings", "show")
        assert "is not applied" in shown.err
        assert process.stop() == 0
    assert len(empty.json("settings", "history").rows) == 4
