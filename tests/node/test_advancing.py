"""Advancing: what cannot be sent fails its step, and never the settle that made it ready."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from relaymesh import Conflict, TaskFailed
from relaymesh.node import advancing
from relaymesh.testing import ManualMesh

LARGE = "x" * 600_000


@pytest.mark.parametrize(
    ("second", "code"),
    [
        ({"input": ["${{ steps.one.output }}"] * 18}, "input_too_large"),
        ({"for_each": "${{ [steps.one.output + steps.one.output] }}"}, "items_too_large"),
    ],
)
def test_a_step_whose_input_is_too_large_fails(second: dict[str, Any], code: str) -> None:
    with ManualMesh() as mesh:
        a = mesh.agent("a")
        steps = {"one": {"agent": "a"}, "two": {"agent": "a", "needs": ["one"], **second}}
        task = mesh.submit({"workflow": "w", "steps": steps})
        a.receive().finish(LARGE)
        with pytest.raises(TaskFailed, match="bytes"):
            task.result()
        assert task.show().step("two").code == code


def test_a_task_that_cannot_be_advanced_fails_no_settle_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = {name: {"agent": "a", "needs": needs} for name, needs in (("one", []), ("two", ["one"]))}
    with ManualMesh(tmp_path / "mesh") as mesh:
        a = mesh.agent("a")
        task = mesh.submit({"workflow": "w", "steps": steps})
        delivery = a.receive()
        with monkeypatch.context() as broken:
            broken.setattr(advancing, "move_of", None)
            delivery.finish(1)
            mesh.advance(10)
        assert task.status() == "RUNNING"
        mesh.advance(10)
        a.receive().finish(2)
        assert task.result() == 2


def test_a_mailbox_with_steps_does_not_become_at_most_once() -> None:
    with ManualMesh() as mesh:
        a = mesh.agent("a")
        task = mesh.submit({"workflow": "w", "steps": {"one": {"agent": "a"}}})
        with pytest.raises(Conflict, match="default/a"):
            mesh.agent("a", delivery_semantics="at_most_once")
        a.receive().finish(1)
        assert task.result() == 1
        mesh.agent("a", delivery_semantics="at_most_once")


def test_reasons_of_failed_items_leave_room_for_results() -> None:
    items = 1_500
    steps = {"all": {"agent": "a", "for_each": "${{ input }}", "on_failure": "continue"}}
    with ManualMesh() as mesh:
        a = mesh.agent("a")
        task = mesh.submit({"workflow": "w", "steps": steps}, list(range(items)))
        for _ in range(items - 1):
            a.receive(timeout=0).fail("😀" * 2_000)
        a.receive(timeout=0).finish("good")
        result = task.result()
    assert result[-1] == "good"
    assert result[0]["error"]["reason"].startswith("😀")
    assert result[-2] == {"error": {"code": "failed", "reason": ""}}


def test_steps_that_wait_for_a_full_mailbox_hold_up_no_others() -> None:
    steps: dict[str, Any] = {f"s{i}": {"agent": "full"} for i in range(80)}
    steps |= {"many": {"agent": "full", "for_each": "${{ input }}"}, "last": {"agent": "free"}}
    with ManualMesh() as mesh:
        mesh.agent("full", capacity=1)
        free = mesh.agent("free")
        task = mesh.submit({"workflow": "w", "steps": steps}, list(range(100)))
        assert free.receive(timeout=10).step == "last"
        assert task.show().step("s79").waiting == "mailbox default/full is full"
