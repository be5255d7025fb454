"""Duplicates are duplicates: after any number of other ids, and after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from relaymesh import Closed, Conflict, Mesh, MeshSettings
from relaymesh.testing import ManualClock, ManualMesh
from tests.node.doubles import LIGHT, eventually
from tests.node.inside import node_of

FORGETFUL = MeshSettings(remembered_ids_max=10, journal=LIGHT)


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
        eventually(lambda: mesh.stats().remembered_ids <= 100_000, 20)
        all_duplicates(mesh, 1000)
    with Mesh(tmp_path) as mesh:
        all_duplicates(mesh, count)
