"""Connections break; what was asked happens once, and whoever asked gets the answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from relaymesh import LeaseLost, Mesh
from relaymesh.client import RemoteSettings
from relaymesh.kernel.commands import PurgeDeadLetters
from relaymesh.sdk.delivery import Delivery
from relaymesh.wire.frames import Deliveries, Receipts, Result, Settled
from tests.client.losing import Loss
from tests.client.serving import ServerThread

QUICK = RemoteSettings(backoff_s_min=0.01, backoff_s_max=0.05)


@pytest.fixture
def mesh(server: ServerThread) -> Iterator[Mesh]:
    with Mesh(server.url, token=server.token(), settings=QUICK) as mesh:
        yield mesh


@pytest.fixture
def loss(server: ServerThread, monkeypatch: pytest.MonkeyPatch) -> Loss:
    return Loss(server, monkeypatch)


def test_a_call_after_a_break_works(server: ServerThread, mesh: Mesh) -> None:
    coder = mesh.agent("coder")
    for n in range(3):
        server.cut()
        coder.send("coder", n)
    assert [each.content for each in coder.receive_many(10)] == [0, 1, 2]


def test_a_send_whose_receipt_was_lost_is_accepted_once(mesh: Mesh, loss: Loss) -> None:
    coder = mesh.agent("coder")
    loss.of(Receipts)
    receipt = coder.send("coder", "once")
    assert loss.lost == 1
    assert not receipt.duplicate, "it was sent once, whatever the wire did"
    assert mesh.stats().mailboxes["default/coder"].accepted == 1


def test_a_publish_whose_receipt_was_lost_is_accepted_once(mesh: Mesh, loss: Loss) -> None:
    mesh.subscribe("order.*", "billing")
    loss.of(Receipts)
    assert mesh.publish("order.created", 1).targets == 1
    assert loss.lost == 1
    assert mesh.stats().mailboxes["default/order.*:billing"].accepted == 1


def test_deliveries_that_never_arrived_are_given_out_again_and_burn_nothing(mesh: Mesh, loss: Loss) -> None:
    coder = mesh.agent("coder")
    coder.send("coder", 1)
    loss.of(Deliveries)
    delivery = coder.receive(timeout=30)
    assert loss.lost == 1
    assert delivery.attempt == 1
    delivery.ack()


def test_an_ack_whose_answer_was_lost_is_no_lost_lease(mesh: Mesh, loss: Loss) -> None:
    coder = mesh.agent("coder")
    coder.send("coder", 1)
    delivery = coder.receive(timeout=30)
    loss.of(Settled)
    delivery.ack()
    assert loss.lost == 1
    assert mesh.stats().mailboxes["default/coder"].acked == 1


def test_a_nack_whose_answer_was_lost_counts_once(mesh: Mesh, loss: Loss) -> None:
    coder = mesh.agent("coder")
    coder.send("coder", 1)
    delivery = coder.receive(timeout=30)
    loss.of(Settled)
    assert delivery.nack("not today", delay_ms=0) == "retrying"
    assert coder.receive(timeout=30).attempt == 2


def test_an_answer_whose_receipt_was_lost_is_sent_once(mesh: Mesh, loss: Loss) -> None:
    planner, coder = mesh.agent("planner"), mesh.agent("coder")
    planner.send("coder", "?", type="question")
    question = coder.receive(timeout=30)
    loss.of(Receipts)
    coder.answer(question, "!")
    assert loss.lost == 1
    assert [each.content for each in planner.receive_many(10)] == ["!"]


def test_a_purge_whose_answer_was_lost_is_done_once(mesh: Mesh, loss: Loss) -> None:
    coder = mesh.agent("coder")
    coder.send("coder", 1)
    coder.receive(timeout=30).nack("no", retryable=False)
    letters = mesh.dead_letters()
    loss.of(Result)
    assert mesh._session.execute(PurgeDeadLetters([letter.key for letter in letters])) == 1
    assert loss.lost == 1
    assert mesh.dead_letters() == []


def test_a_receive_that_waits_goes_on_waiting(server: ServerThread, mesh: Mesh) -> None:
    coder = mesh.agent("coder")
    got: list[object] = []
    waiting = threading.Thread(target=lambda: got.append(coder.receive(timeout=30).content))
    waiting.start()
    server.cut()
    coder.send("coder", "late")
    waiting.join(30)
    assert got == ["late"]


def test_a_handler_is_served_again(server: ServerThread, mesh: Mesh) -> None:
    coder, seen = mesh.agent("coder"), threading.Semaphore(0)
    coder.handle(lambda _: seen.release())
    for n in range(3):
        coder.send("coder", n)
        assert seen.acquire(timeout=30)
        server.cut()


def test_a_lease_is_kept_over_a_break(server: ServerThread, mesh: Mesh) -> None:
    coder = mesh.agent("coder")
    coder.send("coder", 1)
    delivery = coder.receive(timeout=30)
    server.cut()
    mesh.stats()  # it is connected again, and said what it holds
    assert coder.receive_many(10) == []
    delivery.ack()
    assert mesh.stats().mailboxes["default/coder"].acked == 1


def lapsed_and_given_again(mesh: Mesh) -> tuple[Delivery, Delivery]:
    """A delivery whose lease ran out, and the next one of the same message."""
    coder = mesh.agent("coder", lease_ms=50)
    coder.send("coder", 1)
    delivery = coder.receive(timeout=30)
    mesh.agent("coder", lease_ms=30_000)
    return delivery, coder.receive(timeout=30)


def test_a_stale_token_is_a_lost_lease_also_after_a_break(server: ServerThread, mesh: Mesh) -> None:
    delivery, again = lapsed_and_given_again(mesh)
    server.cut()
    with pytest.raises(LeaseLost):
        delivery.ack()
    again.ack()


def test_a_nack_begun_too_late_is_a_lost_lease_also_if_it_had_to_be_repeated(mesh: Mesh, loss: Loss) -> None:
    delivery, again = lapsed_and_given_again(mesh)
    loss.of(Settled)
    with pytest.raises(LeaseLost):
        delivery.nack("too late")
    assert loss.lost == 1
    assert again.nack("in time", retryable=False) == "dead_letter"


def test_a_closed_mesh_gives_back_what_it_held(server: ServerThread) -> None:
    token = server.token()
    with Mesh(server.url, token=token) as mesh:
        coder = mesh.agent("coder")
        coder.send("coder", 1)
        assert coder.receive(timeout=30).attempt == 1
    with Mesh(server.url, token=token) as mesh:
        assert mesh.agent("coder").receive(timeout=0).attempt == 1
