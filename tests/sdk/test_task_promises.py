"""What tasks promise, each in one test: views that agree, one run for a submit, recovery, long calls."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import apsw
import pytest

from relaymesh import Delivery, LeaseLost, Mesh
from relaymesh.journal import read_frames
from relaymesh.journal.events import EventRows
from relaymesh.kernel.commands import Receive, Tick
from relaymesh.kernel.waiter import Waiter
from relaymesh.node.disk import RealDisk
from relaymesh.node.opening import STORE_FILE
from relaymesh.testing import ManualClock, ManualMesh, MemoryDisk
from tests.kernel.tasks.office import AGENT, office, plan, step

PAIR: dict[str, Any] = {
    "workflow": "pair",
    "steps": {
        "make": {"agent": "maker", "input": "${{ input.n }}"},
        "check": {"agent": "checker", "needs": ["make"], "input": "${{ steps.make.output }}"},
    },
}
CALL: dict[str, Any] = {"workflow": "call", "steps": {"ask": {"agent": "model"}}}
LEASE_S = 15
HEARTBEAT_S = 2
SCAN_S = 5


def test_a_thousand_tasks_are_the_same_in_kernel_sdk_store_and_journal(tmp_path: Path) -> None:
    with ManualMesh(tmp_path / "mesh", durability="batched") as mesh:
        mesh.step("maker")(lambda delivery: delivery.input * 2)
        mesh.step("checker")(lambda delivery: delivery.input + 1)
        tasks = {mesh.submit(PAIR, {"n": n}).id: n for n in range(1000)}
        mesh.advance(60)
        for id, n in tasks.items():
            assert mesh.task(id).result(0) == 2 * n + 1
        listed = {each.id: (each.status, each.steps_ended) for each in mesh.tasks(limit=2000)}
        assert listed == dict.fromkeys(tasks, ("SUCCESS", 2))
        assert mesh._node.core.kernel.state.board.tasks == {}
    _agree(tmp_path / "mesh", set(tasks))


def _agree(path: Path, tasks: set[str]) -> None:
    """The tables and the journal, read without a mesh."""
    store = apsw.Connection(str(path / STORE_FILE))
    assert dict(store.execute("SELECT task_id, status FROM tasks")) == dict.fromkeys(tasks, "SUCCESS")
    steps = Counter(store.execute("SELECT task_id, status FROM steps"))
    assert steps == dict.fromkeys([(task, "SUCCESS") for task in tasks], 2)
    keys = store.execute("SELECT result_ref, status FROM idempotency").fetchall()
    assert sorted(keys) == sorted([(task, "SUCCESS") for task in tasks])
    store.close()
    rows = list(EventRows().rows(read_frames(RealDisk(path))))
    for operation, times in (("SUBMIT", 1), ("STEP_SENT", 2), ("STEP_ENDED", 2), ("TASK_ENDED", 1)):
        counted = Counter([row["task"] for row in rows if row["operation"] == operation])
        assert counted == dict.fromkeys(tasks, times), operation


def test_a_repeated_submit_from_many_threads_runs_once(tmp_path: Path) -> None:
    runs: list[str] = []
    got: list[tuple[str, bool]] = []
    with Mesh(tmp_path / "mesh") as mesh:

        @mesh.step("model")
        def answer(delivery: Delivery) -> str:
            runs.append(delivery.token)
            return "yes"

        def submit() -> None:
            task = mesh.submit(CALL, 1)
            got.append((task.id, task.duplicate))

        threads = [threading.Thread(target=submit) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert mesh.task(got[0][0]).result(10) == "yes"
    assert len({id for id, _ in got}) == 1
    assert sorted([duplicate for _, duplicate in got]) == [False] + [True] * 15
    assert len(runs) == 1


@pytest.mark.parametrize("moves", range(0, 12, 2))
def test_a_power_loss_at_any_time_loses_no_task_and_ends_no_step_twice(moves: int) -> None:
    disk, clock = MemoryDisk(), ManualClock()
    mesh = ManualMesh(disk=disk, clock=clock)
    maker, checker = mesh.agent("maker"), mesh.agent("checker")
    tasks = [mesh.submit(PAIR, {"n": n}).id for n in range(5)]
    for agent in [maker, checker] * (moves // 2):
        for delivery in agent.receive_many(1, timeout=0):
            delivery.finish(delivery.input)
    maker.receive_many(1, timeout=0)  # held at the moment of the loss
    after = disk.crash()
    with ManualMesh(disk=after, clock=clock) as mesh:
        mesh.step("maker")(lambda delivery: delivery.input)
        mesh.step("checker")(lambda delivery: delivery.input)
        mesh.advance(60)
        rows = list(EventRows().rows(read_frames(after)))
    over = {row["task"]: row["status"] for row in rows if row["operation"] == "TASK_ENDED"}
    assert over == dict.fromkeys(tasks, "SUCCESS")
    ended = Counter([(row["task"], row["step"]) for row in rows if row["operation"] == "STEP_ENDED"])
    assert ended == dict.fromkeys([(id, place) for id in tasks for place in (0, 1)], 1)


def test_a_chain_of_several_agents_and_its_story() -> None:
    with ManualMesh(disk=MemoryDisk()) as mesh:
        mesh.step("planner")(lambda delivery: {"targets": ["wheel", "docs"]})
        mesh.step("builder")(lambda delivery: f"{delivery.input} built")
        mesh.step("reviewer")(lambda delivery: " and ".join(delivery.input))
        steps: dict[str, dict[str, Any]] = {
            "plan": {"agent": "planner"},
            "build": {"agent": "builder", "needs": ["plan"], "for_each": "${{ steps.plan.output.targets }}"},
            "review": {"agent": "reviewer", "needs": ["build"], "input": "${{ steps.build.output }}"},
        }
        steps["build"]["input"] = "${{ item }}"
        task = mesh.submit({"workflow": "release", "steps": steps})
        assert task.result(60) == "wheel built and docs built"
        told = [(event.event, event.step, event.agent) for event in task.story()]
    assert told[0] == ("submitted", "", "")
    assert told[-1] == ("ended", "", "")
    for name, agent in (
        ("plan", "planner"),
        ("build/0", "builder"),
        ("build/1", "builder"),
        ("review", "reviewer"),
    ):
        life = [(event, who) for event, step, who in told if step == name]
        assert life == [("sent", agent), ("granted", agent), ("step_ended", "")], name
    order = [step for event, step, _ in told if event == "granted"]
    assert (order[0], order[-1]) == ("plan", "review")


def test_a_call_of_half_an_hour_runs_once_while_its_owner_lives() -> None:
    runs: list[int] = []
    with ManualMesh(disk=MemoryDisk()) as mesh:

        @mesh.step("model")
        def answer(delivery: Delivery) -> str:
            runs.append(delivery.attempt)
            mesh.advance(1800)
            return "at last"

        task = mesh.submit(CALL)
        began = mesh.now
        assert task.result(3600) == "at last"
        assert (mesh.now - began).total_seconds() >= 1800
        assert [event.event for event in task.story()] == [
            "submitted",
            "sent",
            "granted",
            "step_ended",
            "ended",
        ]
    assert runs == [1]


def test_the_lease_of_a_step_is_renewed_every_two_seconds() -> None:
    with ManualMesh() as mesh:
        mesh.agent("model")
        mesh.submit(CALL)
        owner = mesh.agent("model").receive(timeout=0)
        mesh._renewer.add(owner)
        for _ in range(60):
            mesh.advance(1)
            left = (owner.deadline - mesh.now).total_seconds()
            assert LEASE_S - HEARTBEAT_S <= left <= LEASE_S


def test_after_its_owner_dies_a_step_is_granted_again_within_one_scan_of_its_lease() -> None:
    with ManualMesh() as mesh:
        model = mesh.agent("model")
        task = mesh.submit(CALL)
        owner = model.receive(timeout=0)
        mesh._renewer.add(owner)
        mesh.advance(600)  # it lives, and renews
        mesh._renewer.discard(owner)  # it dies: no renewal any more
        died = mesh.now
        heir = model.receive(timeout=LEASE_S + SCAN_S)
        assert (mesh.now - died).total_seconds() <= LEASE_S
        with pytest.raises(LeaseLost):
            owner.finish("it was only asleep")
        heir.finish("in its place")
        assert task.result(0) == "in its place"
        assert task.show().step("ask").abandoned == 1


def test_what_a_reclaim_costs_does_not_grow_with_the_other_tasks() -> None:
    """Counted in lines of Python, which no other load on this machine changes."""
    assert _lines_of_a_reclaim(10_000) <= 1.2 * _lines_of_a_reclaim(10)


def _lines_of_a_reclaim(others: int) -> int:
    desk = office("worker", "model")
    desk.submit(plan(step("ask", mailbox="default/model")), "call")
    desk.take(mailbox="default/model")
    long = plan(step("wait", lease_ms=3_600_000))
    for i in range(others):
        desk.submit(long, f"t{i}")
    assert len(desk.take(others, AGENT)) == 1  # all have the same name
    desk.plainly(Receive("default/model", Waiter("heir", 1)))
    desk.now += LEASE_S * 1000
    lines = 0

    def trace(frame: object, event: str, arg: object) -> object:
        nonlocal lines
        lines += event == "line"
        return trace

    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        desk.plainly(Tick())
    finally:
        sys.settrace(None)
    assert desk.live("ask", "call").holder == "heir"
    return lines
