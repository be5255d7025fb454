"""Sending: what a receipt says, what every field does, and what a batch is."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from msgspec import Raw

from relaymesh import Conflict, InvalidEnvelope, MailboxFull, Priority, UnknownRecipient
from tests.sdk.uniform import START, Worlds
from tests.waiting import until_async


async def test_a_receipt_says_what_became_of_the_message(worlds: Worlds) -> None:
    """Promise 1: from the receipt on the message is delivered, dead-lettered or pending."""
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        receipt = await planner.send("coder", {"do": "bump version"})
        assert (receipt.duplicate, receipt.targets, receipt.scheduled_at, receipt.notes) == (
            False,
            1,
            None,
            (),
        )
        delivery = await coder.receive(timeout=5)
        assert (delivery.id, delivery.sequence) == (receipt.id, receipt.sequence)
        assert delivery.content == {"do": "bump version"}


async def test_every_field_of_a_message_arrives(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        receipt = await planner.send(
            "coder",
            ["release", 1.4],
            id="bump-1.4",
            type="notification",
            priority="low",
            task="release",
            key="repository",
            delay_ms=1500,
            ttl=60,
            correlation_id="thread-7",
            reply_to="reviewer",
            requires_ack=True,
            tags=["urgent", "code"],
            max_retries=7,
            trace="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            extra={"hop": 1},
        )
        assert receipt.scheduled_at == START + timedelta(seconds=1.5)
        await mesh.pass_time(1.5)
        delivery = await coder.receive(timeout=5)
        assert delivery.id == "bump-1.4"
        assert delivery.content == ["release", 1.4]
        assert delivery.type == "notification"
        assert delivery.sender == "default/planner"
        assert delivery.receiver == "default/coder"
        assert delivery.priority == Priority.LOW
        assert delivery.task == "release"
        assert delivery.key == "repository"
        assert delivery.correlation_id == "thread-7"
        assert delivery.reply_to == "default/reviewer"
        assert delivery.tags == ("urgent", "code")
        assert delivery.trace == "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        assert delivery.attempt == 1
        assert delivery.token.count(".") == 2
        assert delivery.deadline == START + timedelta(seconds=61.5)
        envelope = delivery.envelope
        assert (envelope.ttl_ms, envelope.requires_ack, envelope.max_retries) == (60_000, True, 7)
        assert envelope.extra == b'{"hop":1}'


@pytest.mark.parametrize(
    ("type", "priority"),
    [("error", 1), ("task_assign", 2), ("task_complete", 2), ("message", 3), ("status_report", 4)],
)
async def test_without_a_priority_the_type_decides(worlds: Worlds, type: str, priority: int) -> None:
    async with worlds() as mesh:
        manager = await mesh.agent("manager")  # it may send, and is sent, every one of these
        await manager.send("manager", 1, type=type)
        assert (await manager.receive(timeout=5)).priority == priority


@pytest.mark.parametrize(
    "content", [None, True, 0, -1.5, "", "héllo ☃", [], {}, {"a": [1, {"b": None}]}, b"\xff\x00"]
)
async def test_content_arrives_as_it_was_sent(worlds: Worlds, content: object) -> None:
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        await planner.send("coder", content)
        assert (await coder.receive(timeout=5)).content == content


async def test_an_address_names_its_namespace(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner = await mesh.agent("planner")
        ours, theirs = await mesh.agent("coder"), await mesh.agent("other/coder")
        await planner.send("other/coder", "for the other namespace")
        assert await ours.receive_many(10) == []
        assert (await theirs.receive(timeout=5)).receiver == "other/coder"


async def test_the_same_id_again_is_the_same_message(worlds: Worlds) -> None:
    """Promise 2: the original receipt, `duplicate`, and no second enqueue; also after it was handled."""
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        first = await planner.send("coder", {"n": 1}, id="once", delay_ms=50)
        again = await planner.send("coder", {"n": 1}, id="once", delay_ms=50)
        assert again.duplicate
        assert (again.id, again.sequence, again.scheduled_at) == (
            first.id,
            first.sequence,
            first.scheduled_at,
        )
        await mesh.pass_time(0.05)
        async with await coder.receive(timeout=5):
            pass
        handled = await planner.send("coder", {"n": 1}, id="once")
        assert handled.duplicate
        assert handled.sequence == first.sequence
        assert await coder.receive_many(10) == []


async def test_the_same_id_with_other_content_is_a_conflict(worlds: Worlds) -> None:
    """Promise 2."""
    async with worlds() as mesh:
        planner, _ = await mesh.agent("planner"), await mesh.agent("coder")
        await planner.send("coder", {"n": 1}, id="once")
        before = mesh.sequence
        with pytest.raises(Conflict, match="once"):
            await planner.send("coder", {"n": 2}, id="once")
        assert mesh.sequence == before


async def test_the_id_of_another_sender_is_a_conflict_that_names_it(worlds: Worlds) -> None:
    """Promise 2: with equal content too, or the second message would vanish as a duplicate of the first."""
    async with worlds() as mesh:
        planner, tester, coder = [await mesh.agent(name) for name in ("planner", "tester", "coder")]
        await planner.send("coder", {"n": 1}, id="task-1")
        before = mesh.sequence
        with pytest.raises(Conflict, match="'task-1' was already sent to default/coder by default/planner"):
            await tester.send("coder", {"n": 1}, id="task-1")
        assert mesh.sequence == before
        await (await coder.receive(timeout=5)).ack()
        with pytest.raises(Conflict, match="by default/planner") as refused:
            await tester.send("coder", {"n": 1}, id="task-1")
        assert "own name" in refused.value.hint
        assert (await planner.send("coder", {"n": 1}, id="task-1")).duplicate


async def test_json_that_differs_in_spacing_or_key_order_is_the_same_message(worlds: Worlds) -> None:
    """Promise 2, between languages: while it waits, and while its receiver has it."""
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        first = await planner.send("coder", Raw(b'{"do":"bump","n":[1,2.50,true]}'), id="once")
        again = await planner.send("coder", Raw(b' {"n": [1, 2.5, true], "do": "b\\u0075mp"} '), id="once")
        assert (again.duplicate, again.sequence) == (True, first.sequence)
        delivery = await coder.receive(timeout=5)
        assert (await planner.send("coder", Raw(b'{"n": [1,2.5,true],"do":"bump"}'), id="once")).duplicate
        for other in (b'{"do":"bump","n":[1,2.50,1]}', b'{"do":"bump","n":[2.5,1,true]}', b'{"do":"bump"}'):
            with pytest.raises(Conflict, match="with other content"):
                await planner.send("coder", Raw(other), id="once")
        await delivery.ack()
        assert await coder.receive_many(10) == []


async def test_a_batch_may_name_one_id_twice_in_two_ways_of_writing(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        await planner.send("coder", Raw(b'{"a":1,"b":2}'), id="old")
        receipts = await planner.send_many(
            [
                {"to": "coder", "content": Raw(b"[1]"), "id": "new"},
                {"to": "coder", "content": Raw(b"[ 1 ]"), "id": "new"},
                {"to": "coder", "content": Raw(b'{"b":2,"a":1}'), "id": "old"},
            ]
        )
        assert [receipt.duplicate for receipt in receipts] == [False, True, True]
        before = mesh.sequence
        with pytest.raises(Conflict):
            await planner.send_many(
                [
                    {"to": "coder", "content": 1, "id": "fresh"},
                    {"to": "coder", "content": Raw(b'{"b":2,"a":1}'), "id": "old"},
                    {"to": "coder", "content": Raw(b"[2]"), "id": "new"},
                ]
            )
        assert mesh.sequence == before
        assert len(await coder.receive_many(10)) == 2


async def test_a_message_that_was_handled_is_read_from_the_journal_and_compared(
    durable_worlds: Worlds,
) -> None:
    """Promise 2: memory keeps a digest; the journal keeps what was sent."""
    sent = [{"to": "coder", "content": Raw(b'{"a":1,"n":%d}' % n), "id": f"m{n}"} for n in range(20)]
    again = [{"to": "coder", "content": Raw(b'{"n":%d,"a":1.0}' % n), "id": f"m{n}"} for n in range(20)]
    async with durable_worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        await planner.send_many(sent[:10])
        for message in sent[10:]:
            await planner.send("coder", message["content"], id=message["id"])
        await mesh.ack_many(await coder.receive_many(20))
        assert all(receipt.duplicate for receipt in await planner.send_many(again))
    async with durable_worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        assert all(receipt.duplicate for receipt in await planner.send_many(again))
        before = mesh.sequence
        with pytest.raises(Conflict, match="'m7' was already sent"):
            await planner.send_many([*again[:7], {**again[7], "content": {"n": 7, "a": 2}}, *again[8:]])
        assert mesh.sequence == before
        assert await coder.receive_many(10) == []


async def test_bytes_are_compared_as_bytes(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, _ = await mesh.agent("planner"), await mesh.agent("coder")
        await planner.send("coder", b"[1]", id="bytes")
        for other in (b"[ 1]", Raw(b"[ 1]")):
            with pytest.raises(Conflict):
                await planner.send("coder", other, id="bytes")


async def test_the_same_id_to_another_target_is_another_message(worlds: Worlds) -> None:
    """Promise 2."""
    async with worlds() as mesh:
        planner, _, _ = [await mesh.agent(name) for name in ("planner", "coder", "tester")]
        receipts = await planner.send_many(
            [{"to": "coder", "content": 1, "id": "x"}, {"to": "tester", "content": 2, "id": "x"}]
        )
        assert [receipt.duplicate for receipt in receipts] == [False, False]


async def test_an_id_is_forgotten_after_a_day(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        await planner.send("coder", 1, id="daily")
        await (await coder.receive(timeout=5)).ack()
        await mesh.pass_time(86_399)
        assert (await planner.send("coder", 1, id="daily")).duplicate
        await mesh.pass_time(2)
        assert not (await planner.send("coder", 2, id="daily")).duplicate


async def test_receipts_of_a_batch_come_in_the_order_of_its_messages(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder, tester = [await mesh.agent(name) for name in ("planner", "coder", "tester")]
        recipients = ["coder", "tester", "default/coder", "coder", "tester"]
        receipts = await planner.send_many(
            [{"to": to, "content": n, "id": f"m{n}"} for n, to in enumerate(recipients)]
        )
        assert [receipt.id for receipt in receipts] == ["m0", "m1", "m2", "m3", "m4"]
        assert [each.content for each in await coder.receive_many(10)] == [0, 2, 3]
        assert [each.content for each in await tester.receive_many(10)] == [1, 4]


async def test_a_batch_may_name_one_id_twice(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        same = {"to": "coder", "content": 1, "id": "same"}
        receipts = await planner.send_many([same, {"to": "coder", "content": 2}, same])
        assert [receipt.duplicate for receipt in receipts] == [False, False, True]
        assert receipts[2].sequence == receipts[0].sequence
        assert len(await coder.receive_many(10)) == 2


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ({"to": "nobody", "content": 1}, UnknownRecipient),
        ({"to": "small", "content": 1}, MailboxFull),
        ({"to": "coder", "content": float("nan")}, InvalidEnvelope),
        ({"to": "coder", "content": 2, "id": "taken"}, Conflict),
        ({"to": "coder"}, InvalidEnvelope),
    ],
)
async def test_a_batch_is_accepted_whole_or_not_at_all(
    worlds: Worlds, bad: dict[str, object], error: type[Exception]
) -> None:
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        await mesh.agent("small", capacity=1)
        await planner.send_many([{"to": "small", "content": 0}, {"to": "coder", "content": 1, "id": "taken"}])
        before = mesh.sequence
        with pytest.raises(error):
            await planner.send_many([{"to": "coder", "content": 1}, bad])
        assert mesh.sequence == before
        assert len(await coder.receive_many(10)) == 1


async def test_an_empty_batch_is_no_batch(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner = await mesh.agent("planner")
        assert await planner.send_many([]) == []


async def test_a_full_mailbox_answers_at_once_and_by_name(worlds: Worlds) -> None:
    """Promise 10."""
    async with worlds() as mesh:
        planner, _ = await mesh.agent("planner"), await mesh.agent("coder", capacity=2)
        await planner.send_many([{"to": "coder", "content": n} for n in range(2)])
        before = mesh.sequence
        with pytest.raises(MailboxFull, match="default/coder") as caught:
            await planner.send("coder", 3)
        assert (caught.value.code, caught.value.retryable) == ("MAILBOX_FULL", True)
        assert mesh.sequence == before


async def test_a_mailbox_is_full_by_bytes_too(worlds: Worlds) -> None:
    """Promise 10."""
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder", capacity_bytes=100)
        await planner.send("coder", b"x" * 60)
        with pytest.raises(MailboxFull, match="60 of 100 bytes"):
            await planner.send("coder", b"x" * 60)
        await (await coder.receive(timeout=5)).ack()
        await planner.send("coder", b"x" * 60)


async def test_a_sender_may_wait_for_room(worlds: Worlds) -> None:
    """Promise 10: `timeout=` is how long."""
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder", capacity=1)
        await planner.send("coder", 1)
        waiting = asyncio.create_task(planner.send("coder", 2, timeout=30))
        await until_async(lambda: mesh.node.core._room_latches)
        assert not waiting.done()
        await (await coder.receive(timeout=5)).ack()
        await waiting
        assert (await coder.receive(timeout=5)).content == 2


async def test_a_sender_that_waits_in_vain_is_told_so(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, _ = await mesh.agent("planner"), await mesh.agent("coder", capacity=1)
        await planner.send("coder", 1)
        waiting = asyncio.create_task(planner.send("coder", 2, timeout=0.01))
        if not worlds.awaited:
            await until_async(lambda: mesh.node.core._room_latches)
            await mesh.pass_time(1)
        with pytest.raises(MailboxFull):
            await waiting


async def test_sends_with_a_timeout_that_find_room_leave_nothing_behind(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, _ = await mesh.agent("planner"), await mesh.agent("coder")
        for n in range(5):
            await planner.send("coder", n, timeout=30)
        assert not mesh.node.core._room_latches


async def test_one_full_mailbox_does_not_delay_another(worlds: Worlds) -> None:
    """Promise 10: topic A's flood does not delay topic B."""
    async with worlds() as mesh:
        flood = await mesh.subscribe("a", "flood", capacity=3)
        calm = await mesh.subscribe("b", "calm", capacity=3)
        for n in range(3):
            await mesh.publish("a", n)
        with pytest.raises(MailboxFull):
            await mesh.publish("a", 3)
        await mesh.publish("b", "through")
        assert (await calm.receive(timeout=5)).content == "through"
        assert len(await flood.receive_many(10)) == 3


async def test_a_sender_that_asked_for_it_hears_of_the_ack(worlds: Worlds) -> None:
    """Promise 14: `ack` when the receiver acks; not per attempt."""
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        await planner.send("coder", 1, id="m", requires_ack=True)
        await (await coder.receive(timeout=5)).nack("not yet", delay_ms=0)
        assert await planner.receive_many(10) == []
        await (await coder.receive(timeout=5)).ack()
        word = await planner.receive(timeout=5)
        assert (word.type, word.content["originalMessageId"], word.content["success"]) == ("ack", "m", True)
        assert word.sender == "default/coder"


async def test_a_sender_that_asked_for_it_hears_of_the_end(worlds: Worlds) -> None:
    """Promise 14: `nack` when the message is finally refused or dead."""
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        await planner.send("coder", 1, id="m", requires_ack=True)
        await (await coder.receive(timeout=5)).nack("malformed", code="invalid")
        word = await planner.receive(timeout=5)
        assert (word.type, word.content["success"]) == ("nack", False)
        assert word.content["error"] == {"code": "invalid", "message": "malformed"}


async def test_higher_tiers_go_first_but_lower_ones_are_not_starved(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        batch = [{"to": "coder", "content": p, "priority": p} for p in (5, 3, 1) for _ in range(20)]
        await planner.send_many(batch)
        order = [each.content for each in await coder.receive_many(12)]
        assert (order.count(1), order.count(3), order.count(5)) == (8, 3, 1)


async def test_a_strict_mailbox_lets_one_lower_entry_through_now_and_then(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner = await mesh.agent("planner")
        coder = await mesh.agent("coder", schedule="strict", max_consecutive_high=3)
        batch = [{"to": "coder", "content": p, "priority": p} for p in (4, 1) for _ in range(6)]
        await planner.send_many(batch)
        assert [each.content for each in await coder.receive_many(8)] == [1, 1, 1, 4, 1, 1, 1, 4]
        assert (await mesh.stats()).mailboxes["default/coder"].low_starvation_count == 2


async def test_pending_messages_can_be_given_another_priority(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder", schedule="strict")
        for n in range(4):
            await planner.send("coder", n, id=f"m{n}")
        assert await mesh.reprioritise("coder", "critical", ids=["m2", "unknown"]) == 1
        assert await mesh.reprioritise("coder", 5, ids=["m0"]) == 1
        assert [each.content for each in await coder.receive_many(10)] == [2, 1, 3, 0]


async def test_what_an_agent_publishes_is_in_its_name(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner = await mesh.agent("planner")
        listener = await mesh.subscribe("news", "listener")
        await planner.publish("news", 1, id="n-1")
        delivery = await listener.receive(timeout=5)
        assert (delivery.sender, delivery.id) == ("default/planner", "n-1")
