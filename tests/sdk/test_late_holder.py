"""A holder that gets to its delivery only when somebody else has finished it."""

from __future__ import annotations

import pytest

from relaymesh import Empty, LeaseLost
from relaymesh.kernel.settings import Semantics
from relaymesh.testing import ManualMesh

LEASE_MS = 1_000


@pytest.mark.parametrize("semantics", ["at_least_once", "exactly_once"])
def test_a_delivery_that_another_has_acked_meanwhile_is_lost_and_not_settled(semantics: Semantics) -> None:
    """Promise 4. The lease ran out before its holder had looked at it, and the next one acked."""
    with ManualMesh() as mesh:
        planner = mesh.agent("planner")
        coder = mesh.agent("coder", lease_ms=LEASE_MS, backoff_ms_base=0, delivery_semantics=semantics)
        planner.send("coder", "bump")
        leases = mesh._session.receive(coder.address, 1, 0)
        mesh.advance(LEASE_MS / 1000 + 1)
        coder.receive(timeout=0).ack()
        [late] = coder._deliveries(leases)
        assert not late.settled
        with pytest.raises(LeaseLost):
            late.ack()
        with pytest.raises(LeaseLost):
            late.nack()


def test_its_answer_does_not_get_through_a_second_time() -> None:
    with ManualMesh() as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder", lease_ms=LEASE_MS, backoff_ms_base=0)
        planner.send("coder", "ready?", reply_to="planner")
        leases = mesh._session.receive(coder.address, 1, 0)
        mesh.advance(LEASE_MS / 1000 + 1)
        coder.answer(coder.receive(timeout=0), "yes")
        [late] = coder._deliveries(leases)
        with pytest.raises(LeaseLost):
            coder.answer(late, "no")
        assert planner.receive(timeout=0).content == "yes"
        with pytest.raises(Empty):
            planner.receive(timeout=0)


def test_what_is_settled_before_it_is_delivered_needs_no_ack_however_late() -> None:
    with ManualMesh() as mesh:
        coder = mesh.agent("coder", delivery_semantics="at_most_once")
        mesh.agent("planner").send("coder", "bump")
        delivery = coder.receive(timeout=0)
        mesh.advance(3600)
        assert delivery.settled
        delivery.ack()
