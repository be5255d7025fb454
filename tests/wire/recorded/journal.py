"""A mesh without lots and without a clock of its own: what it writes into its journal is known to the byte.

`python -m tests.wire.recorded.journal` writes the recording anew.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

from relaymesh.journal import read_frames
from relaymesh.journal.checkpoint import checkpoint_chunks, list_checkpoints, read_checkpoint
from relaymesh.node.local import LocalSession
from relaymesh.testing import ManualMesh, MemoryDisk
from relaymesh.wire.snapshot import decode_piece

RECORDING = Path(__file__).parent / "journal.txt"


def live(disk: MemoryDisk) -> None:
    """Everything that a message may go through, once."""
    with ManualMesh(disk=disk) as mesh:
        _name(mesh)
        lead, worker, once = mesh.agent("lead"), mesh.agent("worker"), mesh.agent("once")
        mesh.agent("once", delivery_semantics="at_most_once")
        audit = mesh.subscribe("order.*", "audit")
        batch = [{"to": "worker", "content": n, "id": f"b-{n}"} for n in range(12)]
        lead.send_many(batch)
        mesh.ack_many(worker.receive_many(5))
        part = worker.receive_many(4)
        part[0].ack()
        part[1].nack("no", code="bad_input", retryable=False)
        part[2].nack("later", delay_ms=2_000)
        lead.send("worker", "solo", id="solo", priority=1, requires_ack=True)
        for n in range(4):
            lead.send("worker", n, id=f"k-{n}", key="red")
        lead.send("worker", "late", id="late", delay_ms=5_000)
        run = worker.receive_many(6)
        mesh.checkpoint()
        run[1].nack("no")
        mesh.advance(40)
        mesh.ack_many(worker.receive_many(100))
        lead.send_many([{"to": "once", "content": n, "id": f"o-{n}"} for n in range(5)])
        once.receive_many(3)
        lead.send("once", "brief", id="brief", ttl=1)
        mesh.advance(5)
        mesh.publish("order.made", {"n": 1}, id="p-1")
        mesh.publish("order.paid", {"n": 2}, id="p-2")
        got = audit.receive_many(5)
        got[0].ack()
        mesh.redrive(mesh.dead_letters())
        lead.send_many([{"to": "worker", "content": n, "id": f"r-{n}"} for n in range(9)])
        for delivery in worker.receive_many(6):
            delivery.nack("again", delay_ms=100)
        mesh.advance(60)


def _name(mesh: ManualMesh) -> None:
    """Leases are given to this holder, not to a process with a number."""
    assert isinstance(mesh._session, LocalSession)
    mesh._session.holder = "recorder"


def written() -> Iterator[bytes]:
    """The payload of every frame, then every piece of every checkpoint, of two lives on one disk."""
    disk = MemoryDisk()
    live(disk)
    with ManualMesh(disk=disk) as mesh:
        _name(mesh)
        mesh.agent("worker").receive_many(100)
        mesh.checkpoint()
    for frame in read_frames(disk):
        yield bytes(frame.payload)
    for sequence in list_checkpoints(disk):
        for chunk in checkpoint_chunks(disk, read_checkpoint(disk, sequence)):
            decode_piece(chunk)
            yield bytes(chunk)


def recorded() -> list[bytes]:
    return [base64.b64decode(line) for line in RECORDING.read_text().splitlines()]


if __name__ == "__main__":
    RECORDING.write_text("".join(f"{base64.b64encode(each).decode()}\n" for each in written()))
