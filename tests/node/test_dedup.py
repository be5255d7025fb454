"""Duplicates are duplicates: after any number of other ids, and after a restart."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from relaymesh import Closed, Conflict, Mesh, MeshSettings
from relaymesh.journal import JournalSettings
from relaymesh.kernel.commands import Settle
from relaymesh.kernel.envelope import Envelope
from relaymesh.node.local import LocalSession
from relaymesh.testing import ManualClock, ManualMesh
from tests.node.doubles import LIGHT
from tests.node.inside import node_of
from tests.waiting import until

FORGETFUL = MeshSettings(remembered_ids_max=10, journal=LIGHT)


def node_session(mesh: Mesh) -> LocalSession:
    session = mesh._session
    assert isinstance(session, LocalSession)
    return session


def all_duplicates(mesh: Mesh, count: int) -> None:
    planner = mesh.agent("planner")
    again = [{"to": "coder", "content": n, "id": f"given-{n}"} for n in range(count)]
    for start in range(0, count, 1000):
        receipts = planner.send_many(again[start : start + 1000])
        assert all(receipt.duplicate for receipt in receipts)
    assert mesh.publish("topic", 0, id="published").duplicate
    with pytest.raises(Conflict):
        planner.send("coder", "other content", id="given-0")
    assert mesh.agent("coder").peek() == []


def send_and_handle(mesh: Mesh, count: int) -> None:
    planner, coder = mesh.agent("planner"), mesh.agent("coder")
    mesh.publish("topic", 0, id="published")
    for start in range(0, count, 1000):
        numbers = range(start, min(count, start + 1000))
        planner.send_many([{"to": "coder", "content": n, "id": f"given-{n}"} for n in numbers])
        mesh.ack_many(coder.receive_many(1000))


@pytest.mark.parametrize("checkpointed", [False, True])
def test_an_id_memory_has_forgotten_is_found_in_the_store(tmp_path: Path, checkpointed: bool) -> None:
    """Promise 2, with a small memory."""
    with ManualMesh(tmp_path, settings=FORGETFUL) as mesh:
        send_and_handle(mesh, 60)
        mesh.advance(1)
        assert mesh.stats().remembered_ids <= 10
        all_duplicates(mesh, 60)
        if checkpointed:
            mesh.checkpoint()
    with ManualMesh(tmp_path, settings=FORGETFUL, clock=mesh.clock) as mesh:
        all_duplicates(mesh, 60)
        mesh.advance(1)
        all_duplicates(mesh, 60)


def test_a_send_that_looks_up_its_id_while_the_mesh_closes_is_told_so(tmp_path: Path) -> None:
    """The store is closed before the journal: a sender in another thread may find it so."""
    with ManualMesh(tmp_path, settings=FORGETFUL) as mesh:
        send_and_handle(mesh, 60)
        mesh.advance(1)
        node = node_of(mesh)
        assert node.store is not None
        node.store._reader.close()
        with pytest.raises(Closed):
            mesh.agent("planner").send("coder", 0, id="given-0")


def test_the_window_ends_for_the_store_as_for_memory(tmp_path: Path) -> None:
    clock = ManualClock()
    with ManualMesh(tmp_path, settings=FORGETFUL, clock=clock) as mesh:
        send_and_handle(mesh, 30)
        mesh.advance(86_401)
        receipt = mesh.agent("planner").send("coder", "a new day", id="given-0")
        assert not receipt.duplicate


def test_a_new_id_made_here_needs_no_look_at_the_store(tmp_path: Path) -> None:
    """Section 7: a UUIDv7 younger than the memory's horizon needs no lookup."""
    with ManualMesh(tmp_path, settings=FORGETFUL) as mesh:
        send_and_handle(mesh, 60)
        mesh.advance(1)
        node = node_of(mesh)
        assert node.store is not None
        looked: list[object] = []
        lookup = node.store.lookup

        def seen(keys: Any, now_ms: int) -> Any:
            looked.extend(keys := list(keys))
            return lookup(keys, now_ms)

        node.store.lookup = seen  # type: ignore[method-assign]
        (fresh,) = node.new_ids(1)
        mesh.agent("planner").send("coder", 1, id=fresh)
        mesh.agent("planner").send("coder", 1)
        assert looked == []
        mesh.agent("planner").send("coder", 1, id="who knows")
        assert looked == [("default/coder", "who knows")]


@pytest.mark.slow
def test_duplicates_after_more_than_a_hundred_thousand_other_ids_and_a_restart(tmp_path: Path) -> None:
    """Promise 2, at its full size: nothing is made smaller for the test."""
    count = 101_000
    with Mesh(tmp_path) as mesh:
        send_and_handle(mesh, count)
        until(lambda: mesh.stats().remembered_ids <= 100_000, 20)
        all_duplicates(mesh, 1000)
    with Mesh(tmp_path) as mesh:
        all_duplicates(mesh, count)


def test_the_sender_of_an_id_memory_has_forgotten_is_found_in_the_store(tmp_path: Path) -> None:
    """Promise 2, with a small memory, for a mailbox and a topic that has no subscriber."""
    with ManualMesh(tmp_path, settings=FORGETFUL) as mesh:
        send_and_handle(mesh, 60)
        mesh.publish("unheard", 0, id="one", sender="planner")
        for n in range(20):
            mesh.publish("unheard", 0, id=f"other-{n}")
        mesh.advance(1)
        assert mesh.stats().remembered_ids <= 10
        with pytest.raises(Conflict, match="by default/planner"):
            mesh.agent("tester").send("coder", 0, id="given-0")
        with pytest.raises(Conflict, match="by default/planner"):
            mesh.publish("unheard", 0, id="one", sender="tester")
        assert mesh.publish("unheard", 0, id="one", sender="planner").duplicate


def test_the_original_is_found_in_any_segment_and_in_the_archive(tmp_path: Path) -> None:
    """Promise 2: 60 messages in many segments, half of them behind two checkpoints."""
    settings = MeshSettings(remembered_ids_max=10, journal=JournalSettings(segment_bytes_max=3_000))
    with ManualMesh(tmp_path, settings=settings) as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        for n in range(60):
            planner.send("coder", Raw(b'{"n":%d,"a":"%s"}' % (n, b"x" * 200)), id=f"m{n}")
            coder.receive().ack()
            if n in (20, 40):
                mesh.advance(1)
                mesh.checkpoint()
        assert list((tmp_path / "archive").iterdir())
        assert len(list((tmp_path / "journal").iterdir())) > 3
        again = [
            {"to": "coder", "content": Raw(b'{"a":"%s","n":%d}' % (b"x" * 200, n)), "id": f"m{n}"}
            for n in range(60)
        ]
        assert all(receipt.duplicate for receipt in planner.send_many(again))
        with pytest.raises(Conflict, match="'m33' was already sent"):
            planner.send_many([*again[:33], {**again[33], "content": {"n": 33}}, *again[34:]])
        assert coder.peek() == []


def test_an_original_that_cannot_be_read_stays_a_conflict(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ManualMesh(tmp_path) as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        planner.send("coder", Raw(b"[1]"), id="m")
        coder.receive().ack()
        node_of(mesh).core.sync()
        (segment,) = (tmp_path / "journal").glob("*.rmj")
        whole = segment.read_bytes()
        place = whole.index(b"[1]")
        segment.write_bytes(whole[:place] + b"[2]" + whole[place + 3 :])
        with pytest.raises(Conflict):
            planner.send("coder", Raw(b"[ 1 ]"), id="m")
        assert "cannot be read" in caplog.text
        assert planner.send("coder", Raw(b"[1]"), id="m").duplicate
        segment.write_bytes(whole)


def test_an_answer_in_other_words_settles_all_the_same(tmp_path: Path) -> None:
    """A settle that also sends: the answer was sent before, in other bytes."""
    with ManualMesh(tmp_path) as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        coder.send("planner", Raw(b'{"a":1,"b":2}'), id="answer")
        planner.receive().ack()
        planner.send("coder", "question")
        session = node_session(mesh)
        delivery = coder.receive()
        answer = Envelope("answer", "default/coder", b'{"b":2,"a":1}')
        other = Envelope("answer", "default/coder", b'{"b":3,"a":1}')
        with pytest.raises(Conflict):
            session.execute(Settle(delivery._token, [("default/planner", [other])]))
        (receipt,) = session.execute(Settle(delivery._token, [("default/planner", [answer])]))
        assert receipt.duplicate
        assert mesh.stats().pending == 0


def test_a_store_of_an_older_version_does_not_say_who_sent_an_id(tmp_path: Path) -> None:
    with ManualMesh(tmp_path, settings=FORGETFUL) as mesh:
        send_and_handle(mesh, 60)
        mesh.advance(1)
        mesh.checkpoint()
    with closing(sqlite3.connect(tmp_path / "store.db")) as db:
        for table in ("tasks", "steps", "idempotency"):
            db.execute(f"DROP TABLE {table}")
        db.execute("DROP INDEX idx_admissions_processed_at")
        db.execute("ALTER TABLE admissions RENAME TO idempotency")
        db.execute("ALTER TABLE idempotency DROP COLUMN sender")
        db.execute(
            "CREATE INDEX idx_idempotency_processed_at ON idempotency (processed_at_ms) WHERE boundary = 1"
        )
        db.execute("PRAGMA user_version = 3")
        db.commit()
    with ManualMesh(tmp_path, settings=FORGETFUL, clock=mesh.clock) as mesh:
        tester = mesh.agent("tester")
        assert tester.send("coder", 0, id="given-0").duplicate
        with pytest.raises(Conflict, match="with other content"):
            tester.send("coder", 1, id="given-0")
