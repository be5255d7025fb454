"""Who joined is in the journal: a restart knows it, from the records and from a checkpoint alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from relaymesh.journal.events import EventRows
from relaymesh.journal.reader import read_frames
from relaymesh.kernel.commands import DrainAgent, RegisterAgent
from relaymesh.kernel.registration import Registration
from relaymesh.node.disk import RealDisk
from relaymesh.node.node import Node
from relaymesh.node.settings import MeshSettings

CODER = "default/coder"


def agents(node: Node) -> dict[str, Registration]:
    found: dict[str, Registration] = node.core.read(lambda kernel: dict(kernel.state.agents))
    return found


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_restart_knows_who_joined(tmp_path: Path, checkpoint: bool) -> None:
    node = Node(tmp_path, MeshSettings())
    node.core.execute(RegisterAgent(CODER, "developer", ("python",), "1.1", b'{"a":1}'))
    node.core.execute(DrainAgent(CODER))
    if checkpoint:
        node.checkpoint()
    before = agents(node)
    node.close()
    again = Node(tmp_path, MeshSettings())
    assert agents(again) == before
    assert before[CODER].draining
    again.close()


def test_the_journal_shows_who_joined(tmp_path: Path) -> None:
    node = Node(tmp_path, MeshSettings())
    node.core.execute(RegisterAgent(CODER, "developer"))
    node.close()
    rows = EventRows().rows(read_frames(RealDisk(tmp_path)))
    joined = [(row["mailbox"], row["role"]) for row in rows if row["operation"] == "REGISTER"]
    assert joined == [(CODER, "developer")]
