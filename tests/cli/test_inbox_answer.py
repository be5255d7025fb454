"""inbox --answer: a person at a terminal settles questions, steps and mail."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from relaymesh import Mesh
from relaymesh.cli.failure import Exit
from tests.cli.running import Cli, on_terminal, piped

PLAN = {
    "workflow": "release",
    "steps": {
        "approve": {"ask": "owner", "question": "Ship 1.4?", "options": ["ship", "stop"]},
        "check": {"agent": "owner", "input": {"what": "the page"}, "needs": ["approve"]},
    },
}


@pytest.fixture
def mail(tmp_path: Path) -> Path:
    path = tmp_path / "mesh"
    with Mesh(path) as mesh:
        mesh.agent("owner")
        planner = mesh.agent("planner")
        planner.send("owner", {"color": "red or blue?"}, type="question", id="q-1")
        planner.send("owner", "just mail", id="m-1")
        planner.send("owner", "left as it is", id="m-2")
    return path


def answers(path: Path, *lines: str) -> tuple[int, str]:
    return on_terminal("inbox", "owner", "--answer", "--dir", str(path), answer="\n".join(lines) + "\n")


def test_each_message_is_shown_and_settled_with_what_is_typed(mail: Path) -> None:
    code, seen = answers(mail, "?", "blue", "!ack", "")
    assert code == 0
    assert "1 of 3: question from planner" in seen
    assert '{"color":"red or blue?"}' in seen
    assert "2 settled, 1 left as they are" in seen
    with Mesh(mail) as mesh:
        answer = mesh.agent("planner").receive(timeout=1)
        assert (answer.type, answer.content) == ("answer", "blue")
        [left] = mesh.agent("owner").receive_many(10)
        assert (left.id, left.attempt) == ("m-2", 1)


def test_a_question_of_a_step_takes_its_options_and_a_step_its_result(tmp_path: Path) -> None:
    path = tmp_path / "mesh"
    with Mesh(path) as mesh:
        mesh.agent("owner")
        task = mesh.submit(PLAN).id
        until = time.monotonic() + 20
        while not mesh.agent("owner").peek(1) and time.monotonic() < until:
            time.sleep(0.01)
    code, seen = answers(path, "perhaps", "1")
    assert code == 0, seen
    assert "Ship 1.4?" in seen
    assert "  1  ship" in seen
    assert "retryable: no" in seen, "an answer that is no option is refused, and asked again"
    code, seen = answers(path, '{"fine": true}')
    assert code == 0, seen
    assert '{"what":"the page"}' in seen
    with Mesh(path) as mesh:
        assert mesh.task(task).show().status == "SUCCESS"
        assert mesh.task(task).result(timeout=5) is not None


def test_a_step_can_be_failed(tmp_path: Path) -> None:
    path = tmp_path / "mesh"
    with Mesh(path) as mesh:
        mesh.agent("owner")
        task = mesh.submit({"workflow": "one", "steps": {"a": {"agent": "owner"}}}).id
    code, seen = answers(path, "!fail no time")
    assert code == 0, seen
    with Mesh(path) as mesh:
        assert mesh.task(task).show().status == "FAILED"


def test_stopping_leaves_the_rest_unburned(mail: Path) -> None:
    code, seen = answers(mail, "!quit")
    assert code == 0
    assert "0 settled, 3 left" in seen
    with Mesh(mail) as mesh:
        assert [each.attempt for each in mesh.agent("owner").receive_many(10)] == [1, 1, 1]


def test_without_a_terminal_it_never_asks(mail: Path) -> None:
    ran = piped("inbox", "owner", "--answer", "--dir", str(mail), stdin="blue\n")
    assert ran.code == Exit.USAGE
    assert "relaymesh answer owner CONTENT --id ID" in ran.err
    assert ran.out == ""


@pytest.mark.parametrize("also", [("--take", "1"), ("--ack",), ("--timeout", "1")])
def test_it_goes_with_no_other_way_of_taking(cli: Cli, also: tuple[str, ...]) -> None:
    assert cli("inbox", "tester", "--answer", *also).code == Exit.USAGE


def test_a_mailbox_that_is_not_there_is_named(cli: Cli) -> None:
    shown = cli("inbox", "testr", "--answer")
    assert shown.code == Exit.NOT_FOUND
    assert "tester" in shown.err
