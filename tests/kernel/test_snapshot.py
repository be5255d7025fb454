"""A snapshot is the state at one sequence, however the state moves on while it is drawn."""

from __future__ import annotations

import pytest

from relaymesh.errors import JournalDamaged
from relaymesh.kernel.commands import Complete, Reprioritise, Unsubscribe
from relaymesh.kernel.piece import PIECE_BYTES
from relaymesh.kernel.snapshot import End, EntriesPiece, LettersPiece, Snapshot, restore
from tests.kernel.driver import MINUTE, SECOND, Driver, names, replay, through_a_checkpoint
from tests.kernel.durable import admitted, durable


def a_busy_mesh() -> tuple[Driver, str, str]:
    mesh = Driver()
    box, subscription = mesh.agent(halt_on_dead_letter=True), mesh.subscription("t.*", capacity=50)
    mesh.send(box, *names("lane", 4), key="k", sender=box, requires_ack=True)
    mesh.send(box, *names("free", 6))
    mesh.send(box, "delayed", delay_ms=MINUTE)
    mesh.publish("t.a", *names("p", 5))
    mesh.publish("nobody.cares", "u")
    mesh.nack(*mesh.receive(box), code="other")
    mesh.nack(*mesh.receive(box), code="fatal")
    mesh.receive(subscription, 2, remote=True, lease_ms=7_000)
    mesh.ack(*mesh.receive(subscription, 1))
    return mesh, box, subscription


def test_restoring_a_snapshot_gives_the_state_it_was_taken_of() -> None:
    mesh, _, _ = a_busy_mesh()
    restored = restore(through_a_checkpoint(Snapshot(mesh.kernel.state).pieces()))
    assert durable(restored) == durable(mesh.kernel.state)
    assert admitted(restored) == admitted(mesh.kernel.state)


@pytest.mark.parametrize("drawn_before", range(8))
def test_what_happens_while_it_is_drawn_does_not_show(drawn_before: int) -> None:
    mesh, box, subscription = a_busy_mesh()
    before = durable(mesh.kernel.state)
    snapshot = Snapshot(mesh.kernel.state)
    drawing = snapshot.pieces()
    pieces = [next(drawing) for _ in range(drawn_before)]
    first_later = len(mesh.records)
    everything_changes(mesh, box, subscription)
    pieces += drawing
    snapshot.close()
    restored = restore(through_a_checkpoint(pieces))
    assert durable(restored) == before
    assert durable(replay(mesh.records[first_later:], restored)) == durable(mesh.kernel.state)
    assert admitted(restored) == admitted(mesh.kernel.state)


def everything_changes(mesh: Driver, box: str, subscription: str) -> None:
    mesh.ack(*mesh.receive(box, 2))
    mesh.nack(*mesh.receive(box, 1), delay_ms=5)
    mesh.do(Reprioritise(box, None, 1))
    mesh.force_delayed()
    mesh.do(Complete(box, mesh.entry(box, "delayed").sequence))
    mesh.redrive(*mesh.letters)
    mesh.send(box, "new", key="k")
    mesh.receive(box, 50)
    mesh.advance(7 * SECOND)
    mesh.do(Unsubscribe(subscription))


def test_a_snapshot_may_be_restored_twice() -> None:
    mesh, box, _ = a_busy_mesh()
    pieces = list(Snapshot(mesh.kernel.state).pieces())
    first = Driver(state=restore(pieces))
    first.send(box, "another")
    assert durable(restore(pieces)) == durable(mesh.kernel.state)


@pytest.mark.parametrize("kind", [EntriesPiece, LettersPiece])
def test_a_piece_is_bounded_in_bytes_and_not_only_in_number(kind: type[EntriesPiece | LettersPiece]) -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, *names("m", 10), content=b'"' + b"x" * (PIECE_BYTES // 3) + b'"')
    if kind is LettersPiece:
        for lease in mesh.receive(box, 10):
            mesh.nack(lease, code="fatal")
    pieces = list(Snapshot(mesh.kernel.state).pieces())
    assert [parts_of(piece) for piece in pieces if isinstance(piece, kind)] == [3, 3, 3, 1]
    assert durable(restore(pieces)) == durable(mesh.kernel.state)


def parts_of(piece: EntriesPiece | LettersPiece) -> int:
    return len(piece.entries if isinstance(piece, EntriesPiece) else piece.letters)


@pytest.mark.parametrize("missing", ["the end", "a piece"])
def test_a_snapshot_that_is_not_whole_is_refused(missing: str) -> None:
    mesh, _, _ = a_busy_mesh()
    pieces = list(Snapshot(mesh.kernel.state).pieces())
    assert isinstance(pieces[-1], End)
    del pieces[-1 if missing == "the end" else -2]
    with pytest.raises(JournalDamaged, match="is incomplete"):
        restore(pieces)


def test_a_closed_snapshot_keeps_nothing() -> None:
    mesh, _, _ = a_busy_mesh()
    snapshot = Snapshot(mesh.kernel.state)
    assert mesh.kernel.state.keep is not None
    snapshot.close()
    assert mesh.kernel.state.keep is None


def test_deliveries_after_a_restore_come_in_the_same_order_as_live() -> None:
    mesh = Driver()
    box = mesh.agent()
    for i in range(30):
        key = f"k{i % 4}" if i % 3 else None
        mesh.send(box, f"m{i}", priority=i % 5 + 1, key=key, delay_ms=i % 2 * i)
        mesh.now += i % 3
    mesh.advance(MINUTE)
    mesh.nack(*mesh.receive(box), delay_ms=0)
    mesh.release(*mesh.receive(box, 5))
    restored = Driver(state=restore(through_a_checkpoint(Snapshot(mesh.kernel.state).pieces())), now=mesh.now)
    mesh.restart()
    orders = [[lease.envelope.id for lease in one.receive(box, 50)] for one in (mesh, restored)]
    assert orders[0] == orders[1]
