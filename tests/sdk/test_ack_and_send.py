"""`ack_and_send`: a delivery is done and what follows from it is sent, both or neither."""

from __future__ import annotations

from typing import Any

import pytest

from relaymesh import InvalidEnvelope, LeaseLost, MailboxFull, UnknownRecipient
from tests.sdk.uniform import Worlds
from tests.waiting import until_async


async def test_a_delivery_is_acked_and_the_next_message_sent_in_its_agents_name(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        reviewer = await mesh.agent("reviewer")
        await planner.send("coder", "write it")
        delivery = await coder.receive(timeout=5)
        receipt = await delivery.ack_and_send("reviewer", {"pull": 17}, priority="HIGH", task="release")
        assert delivery.settled
        sent = await reviewer.receive(timeout=5)
        assert (sent.id, sent.sequence) == (receipt.id, receipt.sequence)
        assert (sent.sender, sent.content) == ("default/coder", {"pull": 17})
        assert (sent.type, sent.priority, sent.task) == ("message", 2, "release")
        stats = (await mesh.stats()).mailboxes["default/coder"]
        assert (stats.acked, stats.pending) == (1, 0)


async def test_several_messages_go_out_with_one_ack(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        await planner.send("coder", "split it")
        delivery = await coder.receive(timeout=5)
        parts = [{"to": to, "content": n} for n, to in enumerate(["planner", "coder", "planner"])]
        receipts = await delivery.ack_and_send_many(parts)
        assert [each.content for each in await planner.receive_many(5)] == [0, 2]
        (own,) = await coder.receive_many(5)
        assert (own.content, own.id) == (1, receipts[1].id)


async def test_no_messages_is_an_ack(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        await planner.send("coder", 1)
        delivery = await coder.receive(timeout=5)
        assert await delivery.ack_and_send_many([]) == []
        assert delivery.settled
        assert (await mesh.stats()).mailboxes["default/coder"].acked == 1


async def test_a_send_that_is_refused_leaves_the_delivery_unsettled(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner", capacity=1), await mesh.agent("coder")
        await planner.send("coder", 1)
        await coder.send("planner", "the mailbox is full now")
        delivery = await coder.receive(timeout=5)
        both = [{"to": "coder", "content": "alone"}, {"to": "planner", "content": "too much"}]
        with pytest.raises(MailboxFull):
            await delivery.ack_and_send_many(both)
        with pytest.raises(UnknownRecipient):
            await delivery.ack_and_send("nobody", 2)
        with pytest.raises(InvalidEnvelope, match="no field 'colour'"):
            await delivery.ack_and_send("planner", 2, colour="red")
        with pytest.raises(InvalidEnvelope, match="no field 'timeout'"):
            await delivery.ack_and_send("planner", 2, timeout=5)
        assert not delivery.settled
        assert not delivery.lost
        assert await coder.receive_many(5) == [], "none of the two was sent"
        await delivery.ack_and_send("coder", "now")
        assert (await coder.receive(timeout=5)).content == "now"


async def test_nothing_is_sent_under_a_lost_lease(worlds: Worlds) -> None:
    """Promise 4."""
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder", lease_ms=1000)
        await planner.send("coder", 1)
        delivery = await coder.receive(timeout=5)
        await mesh.pass_time(1)
        with pytest.raises(LeaseLost):
            await delivery.ack_and_send("planner", "too late")
        assert delivery.lost
        assert await planner.receive_many(10) == []


async def test_a_delivery_that_is_settled_already_sends_as_ever(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner = await mesh.agent("planner")
        coder = await mesh.agent("coder", delivery_semantics="at_most_once")
        await planner.send("coder", 1)
        delivery = await coder.receive(timeout=5)
        assert delivery.settled
        await delivery.ack_and_send("planner", 2)
        assert (await planner.receive(timeout=5)).content == 2


async def test_a_subscription_sends_in_the_name_of_its_subscriber(worlds: Worlds) -> None:
    async with worlds() as mesh:
        billing = await mesh.agent("billing")
        orders = await mesh.subscribe("order.*", "billing")
        await mesh.publish("order.created", {"order": 1})
        await (await orders.receive(timeout=5)).ack_and_send("billing", {"invoice": 1})
        invoice = await billing.receive(timeout=5)
        assert (invoice.sender, invoice.content) == ("default/billing", {"invoice": 1})


async def test_a_handler_passes_its_work_on(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        if worlds.awaited:

            async def forward(delivery: Any) -> None:
                await delivery.ack_and_send("planner", delivery.content + 1)
        else:

            def forward(delivery: Any) -> None:  # type: ignore[misc]
                delivery.ack_and_send("planner", delivery.content + 1)

        coder.handle(forward)
        await planner.send("coder", 1)
        assert (await planner.receive(timeout=5)).content == 2
        counters = mesh.node.core.kernel.state.mailboxes["default/coder"].counters
        await until_async(lambda: counters.acked == 1)
        assert counters.retried == 0


async def test_the_ack_and_the_message_are_there_after_a_restart(durable_worlds: Worlds) -> None:
    async with durable_worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        await planner.send("coder", 1)
        await (await coder.receive(timeout=5)).ack_and_send("planner", 2)
        await mesh.close(force=True)
    async with durable_worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        assert await coder.receive_many(5) == []
        assert (await planner.receive(timeout=5)).content == 2
