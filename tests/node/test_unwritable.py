"""A record that cannot be written is a defect: the mesh stops, says which, and the next start opens."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from relaymesh import Closed
from relaymesh.kernel.commands import Nack, Send
from relaymesh.kernel.envelope import Envelope
from relaymesh.testing import MemoryDisk
from tests.node.doubles import mesh_on
from tests.node.inside import node_of
from tests.waiting import until


def broken(token: int) -> Nack:
    """What no caller can build: a command that was changed after it had checked itself."""
    nack = Nack(token)
    nack.reason = "\ud83d"
    return nack


def test_the_mesh_stops_tells_everybody_and_opens_again_with_all_that_was_receipted() -> None:
    disk = MemoryDisk()
    mesh = mesh_on(disk)
    planner, coder = mesh.agent("planner"), mesh.agent("coder")
    planner.send("coder", 1, id="one")
    delivery = coder.receive(timeout=5)
    planner.send("coder", 2, id="two")
    core = node_of(mesh).core
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(mesh.agent("tester").receive, 30)
        until(lambda: core.kernel.state.mailboxes["default/tester"].waiters)
        with pytest.raises(Closed, match="the record Returned of default/coder cannot be written"):
            core.execute(broken(delivery._token))
        with pytest.raises(Closed, match="cannot be written"):
            waiting.result(10)
    with pytest.raises(Closed, match="cannot be written") as caught:
        planner.send("coder", 3)
    assert "a defect of RelayMesh, not of your disk" in caught.value.hint
    mesh.close()
    with mesh_on(disk) as again:
        assert {each.id for each in again.agent("coder").receive_many(5)} == {"one", "two"}


def test_what_was_decided_before_the_defect_is_still_written_and_receipted() -> None:
    """Sends of other threads that wait for their sync are not lost to somebody else's defect."""
    disk = MemoryDisk()
    mesh = mesh_on(disk)
    planner, coder = mesh.agent("planner"), mesh.agent("coder")
    planner.send("coder", 1, id="one")
    token = coder.receive(timeout=5)._token
    core = node_of(mesh).core
    two = Envelope("two", "default/planner", b"2")
    step = core.submit(Send([("default/coder", [two])]))
    with pytest.raises(Closed):
        core.execute(broken(token))
    assert [receipt.id for receipt in core.commit(step)] == ["two"]
    mesh.close()
    with mesh_on(disk) as again:
        assert {each.id for each in again.agent("coder").receive_many(5)} == {"one", "two"}
