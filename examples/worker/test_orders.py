"""The worker's own tests: no disk, no threads, no waiting. `pytest examples/worker` runs them."""

from itertools import pairwise

import pytest
from orders import approve, start

ORDER = {"id": 17, "customer": "customer", "amount": 40}


def receipts(mesh):
    return [delivery.content for delivery in mesh.agent("customer").receive_many(10)]


def test_an_order_is_booked_and_the_customer_is_told(manual_mesh):
    start(manual_mesh, pay=lambda order: "R1")
    manual_mesh.publish("orders", ORDER)
    manual_mesh.advance()
    assert receipts(manual_mesh) == [{"order": 17, "receipt": "R1"}]


@pytest.mark.manual_mesh(raise_errors=False)
def test_a_payment_service_that_is_away_is_asked_again(manual_mesh):
    tries = []

    def pay(order):
        tries.append(manual_mesh.now)
        if len(tries) < 4:
            raise ConnectionError("the payment service is away")
        return "R2"

    start(manual_mesh, pay)
    manual_mesh.publish("orders", ORDER)
    manual_mesh.advance(60)
    pauses = [(later - earlier).total_seconds() for earlier, later in pairwise(tries)]
    for pause, base in zip(pauses, [1, 2, 4], strict=True):
        assert base <= pause <= base * 1.25, "up to a quarter more, at random"
    assert receipts(manual_mesh) == [{"order": 17, "receipt": "R2"}]


@pytest.mark.manual_mesh(raise_errors=False)
def test_an_order_of_nothing_is_a_dead_letter_and_can_be_mended(manual_mesh):
    start(manual_mesh, pay=lambda order: "R3")
    manual_mesh.publish("orders", {**ORDER, "amount": 0})
    manual_mesh.advance(3600)
    (letter,) = manual_mesh.dead_letters(receiver="orders:booking")
    assert letter.error == "ValueError: an order of 0"
    manual_mesh.redrive(letter, edit={**ORDER, "amount": 40})
    manual_mesh.advance()
    assert receipts(manual_mesh) == [{"order": 17, "receipt": "R3"}]


def test_a_handler_that_is_wrong_fails_the_test(manual_mesh):
    start(manual_mesh, pay=lambda order: order["no such field"])
    manual_mesh.publish("orders", ORDER)
    with pytest.raises(KeyError, match="no such field"):
        manual_mesh.advance()


def test_a_manager_is_asked_and_silence_is_no(manual_mesh):
    manager = manual_mesh.agent("manager")
    assert approve(manual_mesh, ORDER, timeout=60) is False
    (question,) = manager.receive_many(1)
    question.ack()
    manager.handle(lambda delivery: manager.answer(delivery, delivery.content["approve"]["amount"] < 100))
    assert approve(manual_mesh, ORDER) is True
    assert approve(manual_mesh, {**ORDER, "amount": 1000}) is False
