"""task: submitting, looking, following to the end, cancelling, replaying."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relaymesh.cli.options import Call
from relaymesh.cli.output import Output
from relaymesh.cli.task_rows import in_plan_order
from relaymesh.cli.task_watch import _tree
from relaymesh.kernel.tasks.commands import Submit
from relaymesh.kernel.tasks.plan import Plan, StepPlan, WaitPlan
from relaymesh.sdk.mesh import Mesh
from relaymesh.sdk.task import Task
from tests.cli.running import Cli, on_terminal
from tests.cli.test_hostile_text import HOSTILE
from tests.node.inside import node_of

PAIR = {"workflow": "pair", "steps": {"a": {"agent": "x"}, "b": {"agent": "y", "needs": ["a"]}}}


@pytest.fixture
def mesh(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mesh]:
    """One mesh that the test and every command share, as they would share a node."""
    with Mesh(durability="memory") as opened:

        @contextmanager
        def shared(call: Call, **_options: Any) -> Iterator[Mesh]:
            yield opened

        monkeypatch.setattr(Call, "mesh", shared)
        opened.agent("x"), opened.agent("y")
        yield opened


def submitted(mesh: Mesh, **request: Any) -> Task:
    return mesh.submit(PAIR, **request)


def work(mesh: Mesh, agent: str, result: Any = None) -> None:
    mesh.agent(agent).receive(timeout=5).finish(result)


def test_a_submitted_task_is_listed_and_shown(empty: Cli, tmp_path: Path) -> None:
    path = tmp_path / "pair.json"
    path.write_text(json.dumps(PAIR))
    id = empty.json("submit", str(path), "--create").row["id"]
    assert empty.json("submit-workflow", str(path)).row == {"id": id, "workflow": "pair", "duplicate": True}
    [row] = empty.json("tasks", "--workflow", "pair", "--status", "pending").rows
    assert (row["id"], row["status"], row["steps_total"]) == (id, "PENDING", 2)
    shown = empty.json("task", "show", id).row
    assert [(step["name"], step["waiting"]) for step in shown["steps"]] == [("a", ""), ("b", "needs")]
    text = empty("task", "show", id).out
    assert "NAME  AGENT  STATUS   ATTEMPT  ELAPSED  WAITING" in text


def test_a_part_of_an_id_finds_its_task(mesh: Mesh, empty: Cli) -> None:
    task, other = submitted(mesh), submitted(mesh, key="other")
    assert empty.json("task", "show", f"…{task.id[9:]}").row["id"] == task.id
    assert empty("task", "show", f"{task.id[:8]}…").code == 2
    assert empty("task", "show", "…zz…").code == 4
    assert other.id != task.id


@pytest.mark.parametrize("verb", ["show", "watch", "cancel", "replay"])
def test_an_unknown_task_is_not_found(cli: Cli, verb: str) -> None:
    ran = cli.json("task", verb, "nothing")
    assert (ran.code, ran.out, ran.error["code"]) == (4, "", "NOT_FOUND")
    assert cli("task", verb, "x" * 1000).code in (1, 2)


def test_an_unknown_status_lists_those_there_are(cli: Cli) -> None:
    ran = cli.json("tasks", "--status", "fine")
    assert (ran.code, "DEAD_LETTER" in ran.error["hint"], "SKIPPED" in ran.error["hint"]) == (2, True, False)


def test_a_list_says_that_there_is_more(mesh: Mesh, empty: Cli) -> None:
    for key in ("1", "2", "3"):
        submitted(mesh, key=key)
    ran = empty("tasks", "--limit", "2")
    assert len(ran.out.splitlines()) == 3
    assert "there are more" in ran.err


def test_watch_tells_each_change_and_ends_with_success(mesh: Mesh, empty: Cli) -> None:
    task = submitted(mesh)

    def both() -> None:
        work(mesh, "x", 1)
        work(mesh, "y", "fine")

    worker = threading.Thread(target=both)
    worker.start()
    ran = empty.json("task", "watch", task.id)
    worker.join()
    assert ran.code == 0
    *steps, end = ran.rows
    assert {step["event"] for step in steps} == {"step"}
    assert [step["status"] for step in steps if step["name"] == "b"][-1] == "SUCCESS"
    assert (end["event"], end["status"], end["result"]) == ("task", "SUCCESS", "fine")
    text = empty("task", "watch", task.id).out
    assert text.endswith("result  fine\n")
    assert f"SUCCESS      task {task.id}  2 of 2 steps ended" in text


def test_watch_of_a_failure_says_why(mesh: Mesh, empty: Cli) -> None:
    task = submitted(mesh)
    mesh.agent("x").receive(timeout=5).fail("no disk", code="disk")
    ran = empty("task", "watch", task.id)
    assert ran.code == 1
    assert "error: TASK_FAILED: " in ran.err
    assert "no disk" in ran.out + ran.err


def test_watch_of_a_task_out_of_time_has_the_code_of_a_timeout(mesh: Mesh, empty: Cli) -> None:
    task = mesh.submit({**PAIR, "deadline": "100ms"})
    ran = empty.json("task", "watch", task.id)
    assert (ran.code, ran.error["code"]) == (6, "TASK_TIMEOUT")


def test_a_cancelled_task_keeps_the_reason(mesh: Mesh, empty: Cli) -> None:
    task = submitted(mesh)
    row = empty.json("cancel", task.id, "--hard", "--reason", "not needed").row
    assert row == {"id": task.id, "status": "CANCELLED", "hard": True, "reason": "not needed"}
    assert empty.json("task", "show", task.id).row["reason"] == "not needed"
    assert empty("task", "watch", task.id).code == 1


def test_replay_sends_the_dead_letters_of_one_task_back(mesh: Mesh, empty: Cli) -> None:
    task, other = submitted(mesh), submitted(mesh, key="other")
    for _ in range(2):
        mesh.agent("x").receive(timeout=5).nack("poison", retryable=False)
    assert (task.status(), other.status()) == ("DEAD_LETTER", "DEAD_LETTER")
    assert empty.json("replay", task.id, "--dry-run").row["outcome"] == "would be redriven"
    assert empty.json("replay", task.id).row["outcome"] == "redriven"
    assert other.status() == "DEAD_LETTER"
    work(mesh, "x")
    work(mesh, "y", "repaired")
    assert task.result(timeout=5) == "repaired"
    assert "nothing to do" in empty("replay", task.id).err


def test_replay_leaves_out_a_dead_letter_whose_failure_was_caught(mesh: Mesh, empty: Cli) -> None:
    caught, waited = (mesh.agent(name) for name in ("caught", "waited"))
    steps = {"one": {"agent": "caught", "on_failure": "continue"}, "two": {"agent": "waited"}}
    task = mesh.submit({"workflow": "w", "steps": steps})
    for agent in (caught, waited):
        agent.receive(timeout=5).nack("no", retryable=False)
    assert [row["receiver"] for row in empty.json("replay", task.id).rows] == ["default/waited"]
    waited.receive(timeout=5).finish(2)
    assert task.status() == "SUCCESS"


def test_a_task_with_a_dead_letter_says_what_to_do(
    mesh: Mesh, empty: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = submitted(mesh)
    mesh.agent("x").receive(timeout=5).nack("poison", retryable=False)
    told: list[str] = []

    def note(_output: Output, text: str) -> None:
        if not told:
            task.cancel("enough")
        told.append(text)

    monkeypatch.setattr(Output, "note", note)
    assert empty("task", "watch", task.id).code == 1
    assert f"relaymesh replay {task.id}" in told[0]


def test_the_items_of_a_fan_out_stand_below_their_step(mesh: Mesh) -> None:
    steps = {"a": {"agent": "x", "for_each": "${{ input }}"}, "b": {"agent": "y", "needs": ["a"]}}
    task = mesh.submit({"workflow": "fan", "steps": steps}, [1, 2])
    for state in task.watch():
        if len(state.steps) == 4:
            break
    assert [step.name for step in in_plan_order(state.steps)] == ["a", "a/0", "a/1", "b"]
    assert [str(branch.label).split()[0] for branch in _tree(state).children] == ["a", "b"]


def test_a_tree_shows_no_control_character(mesh: Mesh) -> None:
    task = submitted(mesh)
    delivery = mesh.agent("x").receive(timeout=5)
    delivery.report(HOSTILE)
    [first, _] = _tree(task.show()).children
    assert "evil" in str(first.label)
    assert str(first.label).isprintable()


def test_on_a_terminal_it_is_a_tree(empty: Cli, tmp_path: Path) -> None:
    path = tmp_path / "pair.json"
    path.write_text(json.dumps({**PAIR, "deadline": "1s"}))
    words = ("workflow", "run", str(path), "--create", "--watch", "--dir", str(empty.path))
    code, seen = on_terminal(*words, NO_COLOR="1")
    assert code == 6
    assert "── a" in seen
    assert "TASK_TIMEOUT" in seen


def test_the_story_of_a_task_is_shown_behind_its_steps(empty: Cli, tmp_path: Path) -> None:
    path = tmp_path / "pair.json"
    path.write_text(json.dumps(PAIR))
    id = empty.json("submit", str(path), "--create").row["id"]
    empty("cancel", id, "--reason", "not wanted")
    ran = empty.json("task", "show", id, "--story")
    told = [(event["event"], event["step"], event["status"]) for event in ran.row["story"]]
    assert told == [
        ("submitted", "", ""),
        ("sent", "a", ""),
        ("closing", "", "CANCELLED"),
        ("step_ended", "a", "CANCELLED"),
        ("ended", "", "CANCELLED"),
    ]
    text = empty("task", "show", id, "--story").out
    assert "submitted" in text
    assert "not wanted" in text
    assert "story" not in empty.json("task", "show", id).row


# -- from outside


def waiting(mesh: Mesh, wait: WaitPlan) -> Task:
    """A task of one step that waits."""
    mailbox = "default/x" if wait.kind == "ask" else ""
    step = StepPlan(name="ok", mailbox=mailbox, wait=wait, input=b'"Ship it?"')
    node = node_of(mesh)
    id = node.new_ids(1)[0]
    plan = Plan(name="waits", steps=(step,))
    return mesh.task(node.tasks.submit(Submit(id, plan, b"null", id, b"", "default/mesh")).task)


def test_a_question_is_shown_and_answered_on_the_command_line(mesh: Mesh, empty: Cli) -> None:
    task = waiting(mesh, WaitPlan(kind="ask", options=("yes", "no")))
    assert "answer of x" in empty("task", "show", task.id).out
    ran = empty.json("task", "answer", task.id, "ok", "maybe")
    assert (ran.code, "one of: 'yes', 'no'" in ran.error["hint"]) == (2, True)
    ran = empty.json("task", "answer", task.id, "ok", "yes", "--as", "y")
    assert (ran.code != 0, ran.error["code"]) == (True, "UNAUTHORIZED")
    assert empty("task", "answer", task.id, "other", "yes").code == 4
    row = empty.json("task", "answer", task.id, "ok", "yes").row
    assert row == {"id": task.id, "step": "ok", "by": "x", "status": "SUCCESS"}
    assert task.result(5) == "yes"


def test_the_answer_command_answers_a_question_of_a_step(mesh: Mesh, empty: Cli) -> None:
    task = waiting(mesh, WaitPlan(kind="ask"))
    row = empty.json("answer", "x", '{"ship": true}').row
    assert row["to"] == "default/relaymesh"
    assert task.result(5) == {"ship": True}


def test_a_signal_from_the_command_line(mesh: Mesh, empty: Cli) -> None:
    task = waiting(mesh, WaitPlan(kind="signal", signal="go"))
    early = {"id": task.id, "signal": "later", "duplicate": False, "status": "RUNNING"}
    assert empty.json("task", "signal", task.id, "later", "--id", "s").row == early
    assert empty.json("task", "signal", task.id, "later", "--id", "s").row == {**early, "duplicate": True}
    assert empty.json("task", "signal", task.id, "go", "[1]").row["status"] == "SUCCESS"
    assert task.result(5) == [1]
    late = empty("task", "signal", task.id, "go")
    assert late.code == 8
    assert "TASK_ENDED" in late.err


def test_a_budget_is_shown_and_raised(mesh: Mesh, empty: Cli) -> None:
    task = submitted(mesh)
    assert "there is no budget" in empty("task", "budget", task.id).out
    row = empty.json("task", "budget", task.id, "--cost-usd", "0.50", "--tokens", "900").row
    assert (row["cost_usd_max"], row["tokens_max"], row["waiting"]) == (0.5, 900, "")
    mesh.agent("x").receive(timeout=5).finish(1, usage={"cost_usd": 0.75, "tokens": 30})
    text = empty("task", "show", task.id).out
    assert "$0.75 of $0.50, 30 of 900 tokens" in text
    assert "its budget is used: $0.75 of $0.50" in text
    assert "$0.75 of $0.50" in str(_tree(task.show()).label)
    assert "$0.75 of $10.00" in empty("task", "budget", task.id, "--cost-usd", "10").out
    work(mesh, "y", "done")
    assert task.result(5) == "done"
    for bad in ("x", "-1", "nan", "1.0000001"):
        assert empty("task", "budget", task.id, f"--cost-usd={bad}").code == 2


def test_a_submit_names_who_hears_of_the_task(mesh: Mesh, empty: Cli, tmp_path: Path) -> None:
    path = tmp_path / "pair.json"
    path.write_text(json.dumps(PAIR))
    told = ["--owner", "x", "--reply-to", "y", "--notify", "failed", "--notify", "update"]
    for verb in ("task submit", "workflow run"):
        id = empty.json(*verb.split(), str(path), *told).row["id"]
        held = node_of(mesh).core.kernel.state.board.tasks[id]
        assert (held.reply_to, held.notify) == ("default/y", ("failed", "update"))
    assert empty("task", "submit", str(path), "--owner", "x", "--notify", "all").code == 2


def test_steps_of_steps_are_listed_below_their_step(mesh: Mesh) -> None:
    shown = submitted(mesh).show()
    names = ["a", "b", "a/one", "a/two", "a/one/3", "b/x", "a!undo"]
    steps = [replace(shown.steps[0], name=name) for name in names]
    ordered = ["a", "a/one", "a/one/3", "a/two", "b", "b/x", "a!undo"]
    assert [step.name for step in in_plan_order(steps)] == ordered


def test_a_task_is_run_again_from_a_step_on(empty: Cli, tmp_path: Path) -> None:
    path = tmp_path / "pair.json"
    path.write_text(json.dumps(PAIR))
    id = empty.json("submit", str(path), "--create").row["id"]
    assert empty.json("task", "rerun", id, "--from", "b").error["code"] == "CONFLICT"
    with Mesh(empty.path) as mesh:
        work(mesh, "x", 1)
        mesh.agent("y").receive(timeout=5).fail("no")
    row = empty.json("task", "rerun", id, "--from", "b", "--input", "[2]").row
    assert (row["again_of"], row["duplicate"]) == (id, False)
    shown = empty.json("task", "show", row["id"]).row
    assert (shown["again_of"], shown["status"]) == (id, "RUNNING")
    assert [step["status"] for step in shown["steps"]] == ["SUCCESS", "PENDING"]
    assert f"again_of     {id}" in empty("task", "show", row["id"]).out
    assert empty("task", "rerun", id, "--from", "c").code == 2
