"""A workflow that asks, waits, listens, fails and undoes, killed at every write: it ends the same way."""

from __future__ import annotations

from typing import Any

import pytest

from relaymesh import Delivery, Empty, Failed, JournalPoisoned, NotFound
from relaymesh.journal import read_frames
from relaymesh.kernel.records import NoticeSent, TaskEnded, TaskUndoing
from relaymesh.testing import Keep, ManualClock, ManualMesh, MemoryDisk, PowerLost
from relaymesh.wire.records import read_records
from tests.node.crashing import SMALL

RELEASE = {
    "workflow": "release",
    "budget": {"cost_usd": 5},
    "steps": {
        "plan": {"agent": "worker"},
        "build": {
            "agent": "worker",
            "needs": ["plan"],
            "for_each": "${{ steps.plan.output }}",
            "input": {"part": "${{ item }}"},
            "compensate": {"input": {"remove": "${{ item }}", "was": "${{ output }}"}},
        },
        "pause": {"wait": "20s", "needs": ["build"]},
        "approve": {
            "ask": "boss",
            "question": "ship?",
            "options": ["ship", "stop"],
            "needs": ["pause"],
        },
        "ready": {"signal": "green", "needs": ["approve"]},
        "ship": {
            "agent": "worker",
            "needs": ["ready"],
            "input": {"how": "${{ steps.approve.output }}"},
            "compensate": {"input": {"rollback": True}},
        },
        "check": {"agent": "worker", "needs": ["ship"]},
    },
}
AGENTS = ("worker", "boss", "owner")


class Life:
    """One start of the mesh, with everything that the world does for the task."""

    def __init__(self, disk: MemoryDisk, clock: ManualClock) -> None:
        self.mesh = ManualMesh(disk=disk, clock=clock, settings=SMALL)
        for agent in AGENTS:
            self.mesh.agent(agent)
        self.mesh.step("worker")(self.work)
        self.task = self.mesh.submit(RELEASE, key="once", reply_to="owner")

    @staticmethod
    def work(delivery: Delivery) -> Any:
        if delivery.step == "plan":
            return ["a", "b"]
        if delivery.step == "check":
            raise Failed("it does not work")
        return delivery.step

    def go_on(self) -> None:
        """Until the task has ended and its outcome came as mail."""
        for _ in range(60):
            shown = self.task.show()
            steps = {step.name: step for step in shown.steps}
            if shown.status == "FAILED":
                return
            if steps["approve"].status == "RUNNING":
                self.task.answer("approve", "ship", by="boss")
            if steps["ready"].status != "SUCCESS":
                self.task.signal("green", {"by": "ci"}, id="signal-1")
            self.mesh.advance(20)
        raise AssertionError([(step.name, step.status, step.waiting) for step in self.task.show().steps])

    def ending(self) -> tuple[Any, ...]:
        shown = self.task.show()
        mail = []
        while True:
            try:
                with self.mesh.agent("owner").receive(timeout=1) as delivery:
                    mail.append((delivery.type, delivery.content["status"]))
            except Empty:
                break
        states = {step.name: (step.status, step.uncertain) for step in shown.steps}
        return shown.status, shown.reason, states, mail


def play(cut: int | None, keep: Keep) -> tuple[int, tuple[Any, ...]]:
    """The changes that were made before the power went, and how the task ended."""
    disk, clock = MemoryDisk(), ManualClock()
    if cut is not None:
        disk.cut_power_after(cut)
    try:
        life = Life(disk, clock)
        life.go_on()
        ending = life.ending()
        life.mesh.close()
        return disk.changes, ending
    except (PowerLost, JournalPoisoned):
        pass
    changes, disk = disk.changes, disk.crash(keep, seed=cut or 0)
    life = Life(disk, clock)
    try:
        life.go_on()
        ending = life.ending()
    except NotFound:  # it had ended before the power went, and this mesh has no store that knows it
        ending = ()
        life.mesh.advance(60)
    life.mesh.close()
    check_journal(disk)
    return changes, ending


def check_journal(disk: MemoryDisk) -> None:
    """The task ended once, undid once, and told its outcome once."""
    told = [record for frame in read_frames(disk) for record in read_records(frame.payload)]
    (end,) = [record for record in told if isinstance(record, TaskEnded)]
    assert end.status == "FAILED"
    (undoing,) = [record for record in told if isinstance(record, TaskUndoing)]
    assert undoing.uncertain == [False, False, False]
    (notice,) = [record for record in told if isinstance(record, NoticeSent)]
    assert (notice.kind, notice.mailbox) == ("result", "default/owner")


PARTS = 4


def expected() -> tuple[int, tuple[Any, ...]]:
    return play(None, Keep.NOTHING)


def test_without_a_kill_it_undoes_what_it_did() -> None:
    _, (status, reason, states, mail) = expected()
    assert (status, reason) == ("FAILED", "step check: it does not work")
    undone = [name for name in states if name.endswith("!undo")]
    assert undone[0] == "ship!undo"
    assert set(undone[1:]) == {"build/0!undo", "build/1!undo"}
    assert set(states.values()) == {("SUCCESS", False), ("FAILED", False)}
    assert mail == [("task_failed", "FAILED")]


@pytest.mark.parametrize("part", range(PARTS))
def test_killed_at_every_write_it_ends_the_same_way(part: int) -> None:
    changes, ending = expected()
    assert changes > 40
    for cut in range(part, changes, PARTS):
        for keep in (Keep.NOTHING, Keep.EVERYTHING):
            _, again = play(cut, keep)
            if not again:
                continue
            assert again[:2] == ending[:2], (cut, keep)
            assert again[3] == ending[3], (cut, keep)
            states = {name: status for name, (status, _) in again[2].items()}
            assert states == {name: status for name, (status, _) in ending[2].items()}, (cut, keep)
