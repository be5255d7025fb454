"""A purge that a person asked for: what is old goes, what is live stays, and the preview tells it before."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from relaymesh import InvalidValue, Mesh, MeshSettings, StoreLagging
from relaymesh.errors import SenderError
from relaymesh.node import purging
from relaymesh.node.projector import InlineProjector
from relaymesh.store import aging
from relaymesh.testing import ManualClock, ManualMesh
from relaymesh.wire.retention import PreviewPurge, Purge
from tests.node.doubles import LIGHT
from tests.waiting import until

HOUR = 3_600
DAY = 24 * HOUR
KEEP = MeshSettings(journal=LIGHT, done_retention_days=1_000, dead_letter_days=1_000, archive_days=1_000)
PLAN = {"workflow": "w", "steps": {"only": {"agent": "coder"}}}


def opened(path: Path | None, clock: ManualClock | None = None, settings: MeshSettings = KEEP) -> ManualMesh:
    return ManualMesh(path, settings=settings, clock=clock) if path else ManualMesh(clock=clock)


def deal(mesh: ManualMesh, id: str, how: str, to: str = "coder") -> None:
    """Send a message, and let its receiver ack it, refuse it, or leave it."""
    mesh.agent(to)
    mesh.agent("planner").send(to, {"of": id}, id=id)
    if how != "leave":
        delivery = mesh.agent(to).receive()
        assert delivery.id == id
        delivery.ack() if how == "ack" else delivery.nack("no use", code="fatal", retryable=False)


def counts(report: Any) -> dict[tuple[str, str | None], int]:
    return {(row.kind, row.mailbox): row.count for row in report.rows}


def shown(mesh: ManualMesh) -> set[str]:
    store = mesh._session.node.store  # type: ignore[attr-defined]
    return {row.msg_id for row in store.messages(limit=10_000)}


def archived(path: Path) -> list[str]:
    files = sorted((path / "dead-letters").iterdir())
    return [json.loads(line)["messageId"] for file in files for line in file.read_text().splitlines()]


def purge(mesh: ManualMesh, **words: Any) -> dict[str, int]:
    report = mesh.purge(**words, dry_run=False, reason="a test")
    return {kind: count for kind, count in report.purged.items() if count}


# -- ages


def test_a_message_goes_when_it_was_done_for_longer_and_not_at_the_very_age(tmp_path: Path) -> None:
    with opened(tmp_path) as mesh:
        deal(mesh, "a", "ack")
        mesh.advance(7 * DAY)
        assert counts(mesh.purge(done_older_than=7 * DAY)) == {}
        assert purge(mesh, done_older_than=7 * DAY) == {}
        mesh.advance(0.001)
        assert counts(mesh.purge(done_older_than=timedelta(days=7))) == {
            ("messages", "default/coder"): 1,
            ("ids", "default/coder"): 1,
        }
        assert purge(mesh, done_older_than=timedelta(days=7)) == {"messages": 1, "ids": 1}
        assert shown(mesh) == set()


def test_a_dead_letter_goes_when_it_died_longer_ago_and_not_at_the_very_age(tmp_path: Path) -> None:
    with opened(tmp_path) as mesh:
        deal(mesh, "a", "refuse")
        mesh.advance(30 * DAY)
        assert counts(mesh.purge(dead_older_than=30 * DAY)) == {}
        mesh.advance(0.001)
        [row] = mesh.purge(dead_older_than=30 * DAY).rows
        assert (row.kind, row.mailbox, row.count, row.oldest) == (
            "dead_letters",
            "default/coder",
            1,
            row.newest,
        )
        assert row.bytes > 0
        assert purge(mesh, dead_older_than=30 * DAY) == {"dead_letters": 1}
        assert mesh.dead_letters() == []
    assert archived(tmp_path) == ["a"]


def test_without_ages_it_keeps_to_the_retention_of_the_node(tmp_path: Path) -> None:
    settings = MeshSettings(journal=LIGHT, done_retention_days=3, dead_letter_days=5)
    with opened(tmp_path, settings=settings) as mesh:
        found = mesh.purge()
        assert found.done_before is not None
        assert found.dead_before is not None
        assert (mesh.now - found.done_before, mesh.now - found.dead_before) == (
            timedelta(days=3),
            timedelta(days=5),
        )


def test_one_age_alone_leaves_the_other_sort_alone(tmp_path: Path) -> None:
    with opened(tmp_path) as mesh:
        deal(mesh, "done", "ack")
        deal(mesh, "dead", "refuse")
        mesh.advance(2 * DAY)
        assert {kind for kind, _ in counts(mesh.purge(done_older_than=DAY))} == {"messages", "ids"}
        assert {kind for kind, _ in counts(mesh.purge(dead_older_than=DAY))} == {"dead_letters"}


def test_a_preview_changes_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as mesh:
        deal(mesh, "done", "ack")
        deal(mesh, "dead", "refuse")
        mesh.advance(2 * DAY)
        before = (mesh.stats(), shown(mesh))
        assert mesh.purge(done_older_than=0, dead_older_than=0) == mesh.purge(
            done_older_than=0, dead_older_than=0
        )
        assert (mesh.stats(), shown(mesh)) == before


def test_ids_stay_for_the_dedup_window_whatever_was_asked(tmp_path: Path) -> None:
    with opened(tmp_path) as mesh:
        deal(mesh, "a", "ack")
        mesh.advance(HOUR)
        assert purge(mesh, done_older_than=0) == {"messages": 1}
        assert mesh.agent("planner").send("coder", {"of": "a"}, id="a").duplicate
        assert mesh.agent("coder").peek() == []


def test_a_task_stays_while_its_key_is_known(tmp_path: Path) -> None:
    with opened(tmp_path) as mesh:
        coder = mesh.agent("coder")
        task = mesh.submit(PLAN, key="k")
        coder.receive().ack()
        assert task.show().status == "SUCCESS"
        mesh.advance(7 * DAY - 1)
        assert "tasks" not in purge(mesh, done_older_than=0)
        assert mesh.submit(PLAN, key="k").id == task.id
        mesh.advance(2)
        assert purge(mesh, done_older_than=0) == {"tasks": 1, "steps": 1, "keys": 1}
        assert mesh.submit(PLAN, key="k").id != task.id


def test_only_of_one_mailbox_and_of_a_subscription(tmp_path: Path) -> None:
    with opened(tmp_path) as mesh:
        billing = mesh.subscribe("order.*", "billing")
        for to in ("coder", "tester"):
            deal(mesh, f"of-{to}", "ack", to)
            deal(mesh, f"dead-{to}", "refuse", to)
        mesh.publish("order.new", "x", id="published")
        billing.receive().ack()
        mesh.advance(2 * DAY)
        assert purge(mesh, done_older_than=DAY, dead_older_than=DAY, mailbox="coder") == {
            "messages": 1,
            "ids": 1,
            "dead_letters": 1,
        }
        assert shown(mesh) == {"dead-coder", "of-tester", "dead-tester", "published"}
        assert purge(mesh, done_older_than=DAY, mailbox="order.*:billing") == {"messages": 1}
        assert shown(mesh) == {"dead-coder", "of-tester", "dead-tester"}


# -- steps


def waiting_step(mesh: ManualMesh, key: str = "k") -> Any:
    coder = mesh.agent("coder")
    task = mesh.submit(PLAN, key=key)
    coder.receive().nack("no use", code="fatal", retryable=False)
    assert [step.status for step in task.show().steps] == ["DEAD_LETTER"]
    return task


def test_letters_of_waiting_steps_stay_unless_they_are_included(tmp_path: Path) -> None:
    with opened(tmp_path) as mesh:
        deal(mesh, "plain", "refuse")
        task = waiting_step(mesh)
        mesh.advance(2 * DAY)
        found = mesh.purge(dead_older_than=DAY)
        assert (found.waiting_letters, found.waiting_tasks) == (1, 1)
        assert counts(found) == {("dead_letters", "default/coder"): 1}
        assert purge(mesh, dead_older_than=DAY) == {"dead_letters": 1}
        assert task.show().status == "DEAD_LETTER"
        included = mesh.purge(dead_older_than=DAY, including_steps=True)
        assert counts(included) == {("dead_letters", "default/coder"): 1}
        assert purge(mesh, dead_older_than=DAY, including_steps=True) == {"dead_letters": 1}
        state = task.show()
        assert (state.status, state.steps[0].status, state.steps[0].code) == ("FAILED", "FAILED", "purged")


def test_many_letters_of_steps_do_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relaymesh.node.old_letters.LETTERS_AT_ONCE", 1)
    with opened(tmp_path) as mesh:
        mesh.agent("coder", breaker=False)
        for number in range(5):
            waiting_step(mesh, str(number))
        for number in range(5):
            deal(mesh, f"m{number}", "refuse")
        mesh.advance(2 * DAY)
        assert purge(mesh, dead_older_than=DAY) == {"dead_letters": 5}
        assert mesh.purge(dead_older_than=DAY).waiting_letters == 5


# -- clocks


def test_a_wall_clock_that_jumps_ahead_ages_nothing_in_a_running_node(tmp_path: Path) -> None:
    clock = ManualClock()
    with opened(tmp_path, clock) as mesh:
        deal(mesh, "a", "ack")
        deal(mesh, "b", "refuse")
        clock.jump_wall(400 * DAY)
        mesh.advance(HOUR)
        assert mesh.purge(done_older_than=DAY, dead_older_than=DAY).rows == []
        clock.jump_wall(-800 * DAY)
        mesh.advance(HOUR)
        assert mesh.purge(done_older_than=DAY, dead_older_than=DAY).rows == []
        assert purge(mesh, done_older_than=HOUR, dead_older_than=HOUR) == {"messages": 1, "dead_letters": 1}


def test_a_clock_that_was_set_back_before_a_start_does_not_make_the_past_young(tmp_path: Path) -> None:
    clock = ManualClock()
    with opened(tmp_path, clock) as mesh:
        deal(mesh, "a", "ack")
        mesh.advance(3 * DAY)
        mesh.agent("later")
    clock.jump_wall(-30 * DAY)
    with opened(tmp_path, clock) as mesh:
        assert purge(mesh, done_older_than=2 * DAY) == {"messages": 1, "ids": 1}


def test_a_moment_in_the_future_is_now() -> None:
    with opened(None) as mesh:
        deal(mesh, "a", "refuse")
        request = Purge("x", dead_before=mesh._session.now() + DAY * 1000)
        mesh.advance(0.001)
        assert mesh._session.execute(request).counts.dead_letters == 1


# -- parts, and what comes in between


def test_a_long_purge_is_many_short_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purging, "PART_MS", 0)
    monkeypatch.setattr(aging.purge_part, "__defaults__", (10,))
    with opened(tmp_path) as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        planner.send_many([{"to": "coder", "content": n, "id": f"m{n}"} for n in range(95)])
        for delivery in coder.receive_many(95):
            delivery.ack()
        mesh.advance(2 * DAY)
        parts: list[Any] = []
        asked = PreviewPurge(done_ms=DAY * 1000)
        before = mesh._session.execute(asked).done_before
        after = 0
        while not parts or parts[-1].more:
            parts.append(mesh._session.execute(Purge("x", done_before=before, after=after)))
            after = parts[-1].after
        assert [part.counts.messages for part in parts][:10] == [10] * 9 + [5]
        assert sum(part.counts.ids for part in parts) == 95
        assert shown(mesh) == set()


def test_messages_flow_while_a_purge_runs(tmp_path: Path) -> None:
    settings = MeshSettings(journal=LIGHT, archive_days=1_000)
    with Mesh(tmp_path, settings=settings) as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        planner.send_many([{"to": "coder", "content": n} for n in range(3_000)])
        for delivery in coder.receive_many(3_000):
            delivery.ack()
        store = mesh._session.node.store  # type: ignore[attr-defined]
        until(lambda: store.counts() == {"acked": 3_000})
        ended = threading.Event()
        sent: list[str] = []

        def flow() -> None:
            while not ended.is_set():
                sent.append(planner.send("coder", len(sent)).id)
                coder.receive(timeout=10).ack()

        flowing = threading.Thread(target=flow)
        flowing.start()
        try:
            report = mesh.purge(done_older_than=0, dry_run=False, reason="while it flows")
        finally:
            ended.set()
            flowing.join(30)
        assert report.purged["messages"] >= 3_000
        assert planner.send("coder", "last").sequence > 0
        assert [entry.envelope.content for entry in coder.peek()] == [b'"last"']


# -- never something live


@pytest.mark.parametrize("seed", range(6))
def test_random_traffic_against_a_dumb_model(seed: int, tmp_path: Path) -> None:
    """What waits, what died, what is known by id, and what tasks wait for is the same after each purge."""
    chance, clock = random.Random(seed), ManualClock()
    mesh = opened(tmp_path, clock)
    model = Model(mesh)
    for turn in range(120):
        model.act(chance)
        if turn % 40 == 39:
            mesh.close()
            mesh = model.mesh = opened(tmp_path, clock)
        if turn % 10 == 9:
            model.purge(chance)
            model.check()
    assert model.gone > 5
    mesh.close()


class Model:
    """Remembers what was done to each message, and when: no more."""

    def __init__(self, mesh: ManualMesh) -> None:
        self.mesh = mesh
        self.done: dict[str, float] = {}
        self.dead: dict[str, float] = {}
        self.waiting: dict[str, list[str]] = {"coder": [], "tester": []}
        self.gone = 0
        self.number = 0
        self.admitted: dict[str, float] = {}

    @property
    def now(self) -> float:
        return self.mesh._session.now()

    def act(self, chance: random.Random) -> None:
        self.mesh.advance(chance.choice([0.5, HOUR, 9 * HOUR]))
        box = chance.choice(["coder", "tester"])
        doing: Callable[[str], None] = chance.choice([self.send, self.send, self.ack, self.ack, self.refuse])
        doing(box)

    def send(self, box: str) -> None:
        self.number += 1
        id = f"m{self.number}"
        self.mesh.agent(box)
        self.mesh.agent("planner").send(box, self.number, id=id, ttl=0)
        self.waiting[box].append(id)
        self.admitted[id] = self.now

    def ack(self, box: str) -> None:
        if self.waiting[box]:
            self.mesh.agent(box).receive().ack()
            self.done[self.waiting[box].pop(0)] = self.now

    def refuse(self, box: str) -> None:
        if self.waiting[box]:
            self.mesh.agent(box).receive().nack("no", code="fatal", retryable=False)
            self.dead[self.waiting[box].pop(0)] = self.now

    def purge(self, chance: random.Random) -> None:
        age = chance.choice([0, HOUR, DAY, 3 * DAY])
        kinds = chance.choice([("done",), ("dead",), ("done", "dead")])
        before = self.now - age * 1000
        ages: dict[str, Any] = {f"{kind}_older_than": age for kind in kinds}
        preview = self.mesh.purge(**ages)
        report = self.mesh.purge(**ages, dry_run=False, reason="random")
        assert preview.rows == report.rows
        old_dead = {id for id, at in self.dead.items() if at < before} if "dead" in kinds else set()
        old_done = {id for id, at in self.done.items() if at < before} if "done" in kinds else set()
        assert (report.purged["dead_letters"], report.purged["messages"]) == (len(old_dead), len(old_done))
        for id in old_dead:
            self.done[id] = self.now  # its row ends with the purge of the letter
            del self.dead[id]
        for id in old_done:
            del self.done[id]
        self.gone += len(old_dead) + len(old_done)

    def check(self) -> None:
        for box, ids in self.waiting.items():
            self.mesh.agent(box)
            inbox = self.mesh.agent(box).peek(1_000)
            assert [entry.envelope.id for entry in inbox] == ids
        assert {letter.message_id for letter in self.mesh.dead_letters()} == set(self.dead)
        live = {id for ids in self.waiting.values() for id in ids}
        assert shown(self.mesh) == live | set(self.dead) | set(self.done)
        store = self.mesh._session.node.store  # type: ignore[attr-defined]
        for id in live | set(self.dead):
            assert [row.msg_id for row in store.message(id)] == [id]
        for id, at in self.admitted.items():
            if self.now - at < DAY * 1000:
                known = store.lookup([("default/coder", id), ("default/tester", id)], self.now)
                assert len(known) == 1


# -- a purge that dies

KILLED = """
import os, signal, sys
from relaymesh import Mesh, MeshSettings
from relaymesh.node import purging
from relaymesh.node.old_letters import OldLetters
from relaymesh.node.projector import Projector
from relaymesh.store import aging

aging.purge_part.__defaults__ = (50,)
left = [int(sys.argv[2])]
def dying(method):
    def call(*words, **named):
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1
        return method(*words, **named)
    return call
Projector.purge_part = dying(Projector.purge_part)
OldLetters.remove_some = dying(OldLetters.remove_some)
keep = MeshSettings(done_retention_days=1000, dead_letter_days=1000)
mesh = Mesh(sys.argv[1], settings=keep)
mesh.purge(done_older_than=0, dead_older_than=0, dry_run=False, reason="dies")
mesh.close()
print("to the end")
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
@pytest.mark.parametrize("parts", [0, 2, 5])
def test_a_purge_that_was_killed_is_finished_by_the_next_and_nothing_else_is_gone(
    tmp_path: Path, parts: int
) -> None:
    def run(parts: int) -> None:
        ran = subprocess.run(
            [sys.executable, "-c", KILLED, str(tmp_path), str(parts)],
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert ran.returncode == (-signal.SIGKILL if parts < 1_000 else 0), ran.stderr

    with Mesh(tmp_path) as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        planner.send_many([{"to": "coder", "content": n, "id": f"m{n}"} for n in range(300)])
        for number, delivery in enumerate(coder.receive_many(200)):
            delivery.ack() if number % 2 else delivery.nack("no", code="fatal", retryable=False)
    run(parts)
    run(1_000)
    with Mesh(tmp_path) as mesh:
        assert mesh.dead_letters() == []
        waiting = [entry.envelope.id for entry in mesh.agent("coder").peek(1_000)]
        assert waiting == [f"m{n}" for n in range(200, 300)]
        store = mesh._session.node.store  # type: ignore[attr-defined]
        until(lambda: mesh.stats().store_lag == 0)
        assert store.counts().get("pending") == 100
        assert "dead" not in store.counts()
    assert set(archived(tmp_path)) == {f"m{n}" for n in range(0, 200, 2)}


# -- bad values


@pytest.mark.parametrize(
    "words",
    [
        {"done_older_than": -1},
        {"done_older_than": "7d"},
        {"done_older_than": True},
        {"dead_older_than": float("nan")},
        {"dead_older_than": timedelta(days=-1)},
        {"dead_older_than": 10**30},
        {"including_steps": 1},
        {"dry_run": None},
        {"dry_run": False},
        {"dry_run": False, "reason": "  "},
        {"dry_run": False, "reason": 7},
        {"dry_run": False, "reason": "x" * 161},
    ],
)
def test_values_that_are_none_are_refused(words: dict[str, Any]) -> None:
    with opened(None) as mesh, pytest.raises(InvalidValue):
        mesh.purge(**words)


@pytest.mark.parametrize("mailbox", ["", "a b", "a/b/c", ":x", "x:", 7, "\ud83d"])
def test_a_mailbox_that_can_be_none_is_refused(mailbox: Any) -> None:
    with opened(None) as mesh, pytest.raises(SenderError):
        mesh.purge(mailbox=mailbox)


def test_a_store_that_is_down_refuses_a_purge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as mesh:
        projector = mesh._session.node.projector  # type: ignore[attr-defined]
        assert isinstance(projector, InlineProjector)
        monkeypatch.setattr(projector, "failed", OSError("gone"))
        with pytest.raises(StoreLagging):
            purge(mesh, done_older_than=0)
