"""The demo: what a newcomer sees first must work, in a pipe and on a terminal."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.cli.running import Cli, on_terminal, piped

STEPS = [
    "send",
    "idempotent",
    "ask",
    "lane",
    "crash",
    "workflow",
    "approval",
    "dead_letter",
    "redrive",
    "delay",
    "topic",
]


def test_the_demo_in_a_pipe_tells_every_step(tmp_path: Path) -> None:
    began = time.monotonic()
    ran = piped("demo", TMPDIR=str(tmp_path))
    assert (ran.code, ran.err) == (0, "")
    assert time.monotonic() - began < 60
    assert "\x1b" not in ran.out
    for words in (
        "coder acked it",
        "marked duplicate",
        "CONFLICT",
        "reviewer answered: ship it",
        "in order: compile (attempt 2), test, publish",
        "render-1 on attempt 1 and was killed",
        "render-1 is reclaimed; attempt 2",
        "compile/0 was granted again, attempt 2: SUCCESS",
        "the task ended as SUCCESS: published app-linux, app-macos, app-windows",
        "release-owner got the question: Ship 1.4?",
        "the task ended as FAILED: step smoke-test",
        "undone, the last one first: switch!undo, upload!undo",
        "retries_exhausted after 3 attempts",
        "attempt 3: bad_patch",
        "redriven to coder with line 10",
        "origin patch-7",
        "coder sees nothing yet; 1 delayed",
        "published to order.new: 2 targets",
        "MAILBOX",
        "relaymesh journal cat",
        "rm -r ",
    ):
        assert words in ran.out
    [made] = tmp_path.iterdir()
    assert str(made / "journal") in ran.out
    look_around = piped("dlq", "show", "patch-7", RELAYMESH_HOME=str(made))
    assert "line must be a number" in look_around.out
    assert piped("doctor", RELAYMESH_HOME=str(made)).code == 0


def test_the_demo_tells_programs_the_same(empty: Cli) -> None:
    ran = empty.json("demo")
    assert (ran.code, ran.err) == (0, "")
    *steps, summary = ran.rows
    assert [step["name"] for step in steps] == STEPS
    assert [step["step"] for step in steps] == list(range(1, len(STEPS) + 1))
    assert all(step["why"] and step["facts"] for step in steps)
    crash = next(step for step in steps if step["name"] == "crash")
    assert [fact.get("attempt") for fact in crash["facts"][:2]] == [1, 2]
    for box in summary["summary"]:
        settled = box["acked"] + box["dead"] + box["pending"]
        assert box["accepted"] == settled + ("deployer" in box["mailbox"])  # one step said that it cannot
    assert summary["directory"] == str(empty.path)


def test_the_demo_fits_80_columns_and_leaves_your_directory_alone(tmp_path: Path) -> None:
    code, seen = on_terminal("demo", "--dir", str(tmp_path / "d"), NO_COLOR="1")
    assert code == 0
    lines = [line for line in seen.splitlines() if str(tmp_path) not in line]
    assert [line for line in lines if len(line) > 80] == []
    assert "rm -r" not in seen


def test_the_demo_does_not_mix_with_a_mesh_that_is_there(cli: Cli) -> None:
    ran = cli.json("demo")
    assert (ran.code, ran.error["code"]) == (8, "CONFLICT")
    assert ran.out == ""


def test_a_worker_that_cannot_start_is_one_line(empty: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/true")
    ran = empty("demo")
    assert ran.code == 1
    assert len(ran.err.splitlines()) == 1
    assert json.loads(empty.json("demo").err)["code"] == "CONFLICT"
