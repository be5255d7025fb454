"""Recovery: what was receipted is back, whole, whatever happened to the process or the disk."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from relaymesh import Conflict, Mesh, MeshSettings
from relaymesh.journal import JournalSettings
from relaymesh.node.opening import STORE_FILE
from relaymesh.store import SqliteStore
from relaymesh.testing import ManualMesh
from tests.node.crashing import crash_again_and_again
from tests.node.inside import node_of

SEGMENTS = MeshSettings(
    journal=JournalSettings(segment_bytes_max=4_000, allocate_bytes=1_000, checkpoint_reserve_bytes=1_000)
)


@pytest.mark.parametrize("seed", range(60))
def test_power_may_go_at_any_moment_again_and_again(seed: int) -> None:
    """Promise 1. The seed is in the test's name; it reproduces the run."""
    crash_again_and_again(seed)


def everything(mesh: Mesh) -> dict[str, Any]:
    """The durable state as users see it."""
    stats = mesh.stats()
    return {
        "mailboxes": {
            address: msgspec.structs.replace(box, recent_retry_rate=0)  # volatile, as the breaker is
            for address, box in stats.mailboxes.items()
        },
        "unrouted": stats.unrouted,
        "letters": [letter.as_json() for letter in mesh.dead_letters(status=None)],
        "pending": [
            (entry.envelope, entry.sequence, entry.attempts, entry.due_at, entry.priority, entry.redrives)
            for inbox in (mesh.agent("coder"), mesh.agent("planner"))
            for entry in inbox.peek(1000)
        ],
    }


def fill(mesh: Mesh) -> None:
    """Some of everything there is."""
    planner, coder = mesh.agent("planner"), mesh.agent("coder", max_retries=1)
    mesh.subscribe("news.*", "listener", ordered=True, capacity=3, overflow="dead_letter")
    planner.send_many(
        [
            {"to": "coder", "content": {"n": n}, "id": f"m{n}", "key": f"k{n % 3}", "priority": 1 + n % 5}
            for n in range(30)
        ]
    )
    planner.send(
        "coder", b"later", id="later", delay_ms=60_000, tags=["x"], extra={"y": 1}, requires_ack=True
    )
    for delivery in coder.receive_many(12):
        if not delivery._held:
            continue  # a nack before it in its lane took it back
        if delivery.id.endswith(("1", "4")):
            delivery.nack(ValueError("bad"), retryable=False)
        elif delivery.id.endswith("2"):
            delivery.nack("again", delay_ms=5_000)
        elif delivery.id.endswith("3"):
            delivery.nack("busy", until=4_000_000_000)
        else:
            delivery.ack()
    for n in range(5):
        mesh.publish("news.today", n, id=f"n{n}")
    mesh.publish("nobody", 1)
    mesh.reprioritise("coder", 1, ids=["m20", "m21"])
    letters = mesh.dead_letters(receiver="coder")
    mesh.redrive(letters[0])
    mesh.redrive(letters[1], to="planner", edit={"edited": True})


@pytest.mark.parametrize("checkpointed", [False, True])
def test_everything_is_back_after_a_restart(tmp_path: Path, checkpointed: bool) -> None:
    with ManualMesh(tmp_path, settings=SEGMENTS) as mesh:
        fill(mesh)
        if checkpointed:
            assert mesh.checkpoint() == mesh.stats().sequence
            mesh.agent("planner").send("coder", "behind the checkpoint", id="tail")
        node_of(mesh).core.sync()
        # What is out with a holder comes back unburned at the stop.
        for delivery in mesh.agent("planner").receive_many(1):
            delivery.nack("back", delay_ms=0)
        before = everything(mesh)
    with ManualMesh(tmp_path, settings=SEGMENTS, clock=mesh.clock) as mesh:
        assert everything(mesh) == before
        planner = mesh.agent("planner")
        assert planner.send("coder", {"n": 0}, id="m0").duplicate
        assert mesh.publish("news.today", 4, id="n4").duplicate
        with pytest.raises(Conflict):
            planner.send("coder", "other", id="m29")


def test_a_checkpoint_moves_what_lies_behind_it_to_the_archive(tmp_path: Path) -> None:
    journal, archive = tmp_path / "journal", tmp_path / "archive"
    with ManualMesh(tmp_path, settings=SEGMENTS) as mesh:
        fill(mesh)
        mesh.checkpoint()
        assert not list(archive.iterdir())  # the older of two is a fallback that needs no archive
        segments = {path.name for path in journal.iterdir()}
        mesh.agent("planner").send("coder", "between the two", id="between")
        mesh.checkpoint()
        moved = {path.name for path in archive.iterdir()}
        assert moved
        assert moved <= segments
        assert not moved & {path.name for path in journal.iterdir()}
        before = everything(mesh)
    shutil.rmtree(archive)  # long after: retention has dropped it
    (tmp_path / STORE_FILE).unlink()
    with ManualMesh(tmp_path, settings=SEGMENTS, clock=mesh.clock) as mesh:
        assert everything(mesh)["letters"] == before["letters"]
        assert everything(mesh)["pending"] == before["pending"]
        opened = node_of(mesh).opened
        assert opened is not None
        assert opened.replayed < before["mailboxes"]["default/coder"].accepted


def test_a_checkpoint_is_taken_by_itself_when_the_journal_has_grown(tmp_path: Path) -> None:
    settings = MeshSettings(checkpoint_bytes=20_000, journal=SEGMENTS.journal)
    with ManualMesh(tmp_path, settings=settings) as mesh:
        coder = mesh.agent("coder")
        for _ in range(60):
            coder.send("coder", b"x" * 1000)
            coder.receive(timeout=0).ack()
            mesh.advance(1)
        checkpoints = list((tmp_path / "checkpoints").iterdir())
        assert checkpoints
    with ManualMesh(tmp_path, settings=settings, clock=mesh.clock) as mesh:
        assert mesh.stats().mailboxes["default/coder"].acked == 60


def rows(path: Path) -> list[Any]:
    store = SqliteStore(path / STORE_FILE)
    applied = store.applied
    store.close()
    connection = apsw.Connection(str(path / STORE_FILE))
    connection.execute("UPDATE admissions SET boundary = 0")  # says where a transaction began, and no more
    tables = ("messages", "dead_letter_queue", "admissions")
    found = [sorted(connection.execute(f"SELECT * FROM {table}"), key=repr) for table in tables]
    connection.close()
    return [applied, *found]


def damage_missing(path: Path) -> None:
    for file in path.glob(STORE_FILE + "*"):
        file.unlink()


def damage_garbage(path: Path) -> None:
    damage_missing(path)
    (path / STORE_FILE).write_bytes(b"this is not a database" * 1000)


def damage_torn(path: Path) -> None:
    data = bytearray((path / STORE_FILE).read_bytes())
    data[len(data) // 3 :] = b"\xaa" * (len(data) - len(data) // 3)
    (path / STORE_FILE).write_bytes(data)


def damage_empty(path: Path) -> None:
    damage_missing(path)
    (path / STORE_FILE).touch()


@pytest.mark.parametrize("damage", [damage_missing, damage_empty, damage_garbage, damage_torn])
@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_store_that_is_gone_or_damaged_is_built_anew(
    tmp_path: Path, damage: Any, checkpointed: bool
) -> None:
    with ManualMesh(tmp_path, settings=SEGMENTS) as mesh:
        fill(mesh)
        if checkpointed:
            mesh.checkpoint()
    before = rows(tmp_path)
    damage(tmp_path)
    with ManualMesh(tmp_path, settings=SEGMENTS, clock=mesh.clock) as mesh:
        assert mesh.stats().mailboxes["default/coder"].accepted == 32
    after = rows(tmp_path)
    assert after[0] > before[0]
    assert after[1:] == before[1:]


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_store_that_is_behind_catches_up(tmp_path: Path, checkpointed: bool) -> None:
    with ManualMesh(tmp_path / "mesh", settings=SEGMENTS) as mesh:
        mesh.agent("coder").send("coder", 0)
    shutil.copy(tmp_path / "mesh" / STORE_FILE, tmp_path / "old")
    with ManualMesh(tmp_path / "mesh", settings=SEGMENTS, clock=mesh.clock) as mesh:
        fill(mesh)
        if checkpointed:
            mesh.checkpoint()
    before = rows(tmp_path / "mesh")
    damage_missing(tmp_path / "mesh")
    shutil.copy(tmp_path / "old", tmp_path / "mesh" / STORE_FILE)
    ManualMesh(tmp_path / "mesh", settings=SEGMENTS, clock=mesh.clock).close()
    assert rows(tmp_path / "mesh")[1:] == before[1:]


def test_a_store_that_is_ahead_of_the_journal_is_built_anew(tmp_path: Path) -> None:
    """As after a journal restored from a copy: the store must not know of what the journal does not."""
    place = tmp_path / "mesh"
    with ManualMesh(place, settings=SEGMENTS) as mesh:
        mesh.agent("coder").send("coder", 0, id="kept")
    shutil.copytree(place, tmp_path / "copy")
    with ManualMesh(place, settings=SEGMENTS, clock=mesh.clock) as mesh:
        mesh.agent("coder").send("coder", 0, id="rolled back")
    store = (place / STORE_FILE).read_bytes()
    shutil.rmtree(place)
    shutil.copytree(tmp_path / "copy", place)
    damage_missing(place)
    (place / STORE_FILE).write_bytes(store)
    with ManualMesh(place, settings=SEGMENTS, clock=mesh.clock) as mesh:
        coder = mesh.agent("coder")
        assert not coder.send("coder", 1, id="rolled back").duplicate
        assert coder.send("coder", 0, id="kept").duplicate
