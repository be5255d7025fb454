"""Receiving and settling: queues that raise `Empty`, leases, acks and nacks."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from relaymesh import Drop, Empty, LeaseLost, Reject, Retry, UnknownRecipient
from relaymesh.kernel.commands import Extend, ExtendAll
from relaymesh.kernel.request import Request
from tests.sdk.uniform import START, Uniform, World, Worlds
from tests.waiting import until_async


async def pair(mesh: World, **options: object) -> tuple[Uniform, Uniform]:
    return await mesh.agent("planner"), await mesh.agent("coder", **options)


async def test_nothing_within_the_timeout_raises_empty_as_a_queue_does(worlds: Worlds) -> None:
    async with worlds() as mesh:
        _, coder = await pair(mesh)
        for timeout in (0, 0.01):
            with pytest.raises(Empty, match="coder"):
                await coder.receive(timeout=timeout)
        assert issubclass(Empty, queue.Empty)


async def test_receive_many_gives_a_list_that_may_be_empty(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await pair(mesh)
        assert await coder.receive_many(5) == []
        assert await coder.receive_many(5, timeout=0.01) == []
        await planner.send_many([{"to": "coder", "content": n} for n in range(7)])
        assert [each.content for each in await coder.receive_many(5)] == [0, 1, 2, 3, 4]
        assert [each.content for each in await coder.receive_many(5, timeout=5)] == [5, 6]


async def test_a_receiver_waits_for_what_comes(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await pair(mesh)
        waiting = asyncio.create_task(coder.receive())
        await until_async(lambda: mesh.node.core.kernel.state.mailboxes["default/coder"].waiters)
        await planner.send("coder", "at last")
        assert (await waiting).content == "at last"


async def test_receivers_are_served_in_the_order_they_came(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await pair(mesh)
        waiters = mesh.node.core.kernel.state.mailboxes["default/coder"].waiters
        tasks = []

        def reached(count: int) -> bool:
            return len(waiters) == count

        for n in range(3):
            tasks.append(asyncio.create_task(coder.receive(timeout=30)))
            await until_async(partial(reached, n + 1))
        for n in range(3):
            await planner.send("coder", n)
        assert [(await task).content for task in tasks] == [0, 1, 2]


async def test_an_ack_ends_it(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await pair(mesh)
        await planner.send("coder", 1)
        delivery = await coder.receive(timeout=5)
        assert not delivery.settled
        await delivery.ack()
        assert delivery.settled
        await delivery.ack()  # once more is no harm
        await mesh.pass_time(120)
        assert await coder.receive_many(10) == []
        assert (await mesh.stats()).mailboxes["default/coder"].acked == 1


async def test_a_durable_ack_answers_after_the_sync(durable_worlds: Worlds) -> None:
    """Promise 7: `ack()` answers after the write, `ack(durable=True)` after the sync."""
    async with durable_worlds() as mesh:
        planner, coder = await pair(mesh)
        await planner.send("coder", 1)
        await (await coder.receive(timeout=5)).ack(durable=True)
        assert mesh.node.core.synced == mesh.sequence
        assert mesh.node.core.journal.synced == mesh.sequence


async def test_a_nack_is_a_retry_after_the_backoff(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await pair(mesh, backoff_jitter=0.0)
        await planner.send("coder", 1)
        for pause in (1, 2, 4):
            delivery = await coder.receive(timeout=5)
            assert await delivery.nack("again") == "retrying"
            await mesh.pass_time(pause - 0.001)
            assert await coder.receive_many(1) == []
            await mesh.pass_time(0.001)
        delivery = await coder.receive(timeout=5)
        assert delivery.attempt == 4
        assert await delivery.nack("again") == "dead_letter"
        assert [each.reason for each in await mesh.dead_letters()] == ["retries_exhausted"]


async def test_a_nack_may_say_when(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await pair(mesh)
        await planner.send("coder", 1)
        assert await (await coder.receive(timeout=5)).nack(delay_ms=90_000) == "retrying"
        await mesh.pass_time(89)
        assert await coder.receive_many(1) == []
        await mesh.pass_time(1)
        assert (await coder.receive(timeout=5)).attempt == 2


async def test_a_nack_until_burns_no_attempt_but_not_for_ever(worlds: Worlds) -> None:
    """Section 3: `nack(until=…)` burns no attempt (capped, then dead letter)."""
    async with worlds() as mesh:
        planner, coder = await pair(mesh, max_deferrals=2)
        await planner.send("coder", 1)
        later = START + timedelta(days=1)
        for _ in range(2):
            delivery = await coder.receive(timeout=5)
            assert delivery.attempt == 1
            later = delivery.deadline + timedelta(seconds=60)
            assert await delivery.nack("rate limit resets later", until=later) == "deferred"
            assert await coder.receive_many(1) == []
            await mesh.pass_time(90)
        assert await (await coder.receive(timeout=5)).nack(until=later) == "dead_letter"
        (letter,) = await mesh.dead_letters()
        assert letter.reason == "deferred_too_often"


async def test_a_nack_that_is_not_retryable_is_a_dead_letter(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await pair(mesh)
        await planner.send("coder", 1)
        assert await (await coder.receive(timeout=5)).nack("never", retryable=False) == "dead_letter"
        (letter,) = await mesh.dead_letters()
        assert (letter.reason, letter.attempts, letter.error) == ("not_retryable", 1, "never")


@pytest.mark.parametrize(
    ("code", "attempts", "end"),
    [
        ("timeout", 4, "dead_letter"),
        ("invalid", 1, "dead_letter"),
        ("rate_limited", 6, "dead_letter"),
        ("fatal", 1, "dead_letter"),
        ("something else", 4, "dead_letter"),
        ("conflict", 1, "success"),
        ("duplicate", 1, "success"),
    ],
)
async def test_the_default_contract_goes_by_the_error_code(
    worlds: Worlds, code: str, attempts: int, end: str
) -> None:
    """Section 3: which errors retry."""
    async with worlds() as mesh:
        planner, coder = await pair(mesh)
        await planner.send("coder", 1)
        for attempt in range(1, attempts + 1):
            state = await (await coder.receive(timeout=5)).nack("why", code=code, delay_ms=0)
            assert state == ("retrying" if attempt < attempts else end)
        assert len(await mesh.dead_letters()) == (end == "dead_letter")


async def test_a_message_s_own_retries_win_over_the_mailbox_s(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await pair(mesh, max_retries=5)
        await planner.send("coder", 1, max_retries=1)
        assert await (await coder.receive(timeout=5)).nack(delay_ms=0) == "retrying"
        assert await (await coder.receive(timeout=5)).nack(delay_ms=0) == "dead_letter"


async def test_a_clean_block_acks(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await pair(mesh)
        await planner.send("coder", 1)
        async with await coder.receive(timeout=5) as delivery:
            assert delivery.content == 1
        assert delivery.settled
        assert (await mesh.stats()).mailboxes["default/coder"].acked == 1


async def test_an_exception_nacks_and_goes_on_its_way(worlds: Worlds) -> None:
    """Promise 12: nothing swallows an exception and acks."""
    async with worlds() as mesh:
        planner, coder = await pair(mesh)
        await planner.send("coder", 1)
        with pytest.raises(ZeroDivisionError):
            async with await coder.receive(timeout=5):
                _ = 1 / 0
        stats = (await mesh.stats()).mailboxes["default/coder"]
        assert (stats.acked, stats.retried, stats.pending) == (0, 1, 1)


@pytest.mark.parametrize(
    ("outcome", "counted"),
    [(Retry("later", after=5), "retried"), (Reject("no"), "dead"), (Drop(), "dropped")],
)
async def test_an_outcome_ends_its_block_quietly(worlds: Worlds, outcome: Exception, counted: str) -> None:
    async with worlds() as mesh:
        planner, coder = await pair(mesh)
        await planner.send("coder", 1)
        async with await coder.receive(timeout=5):
            raise outcome
        stats = (await mesh.stats()).mailboxes["default/coder"]
        assert getattr(stats, counted) == 1
        assert (stats.acked, stats.retried + stats.dead + stats.dropped) == (0, 1)


async def test_retry_until_in_a_block_burns_no_attempt(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await pair(mesh)
        await planner.send("coder", 1)
        async with await coder.receive(timeout=5) as delivery:
            raise Retry("reset", until=delivery.deadline + timedelta(seconds=10))
        await mesh.pass_time(45)
        assert (await coder.receive(timeout=5)).attempt == 1


async def test_what_was_settled_inside_a_block_stays_so(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await pair(mesh)
        await planner.send_many([{"to": "coder", "content": n} for n in range(2)])
        async with await coder.receive(timeout=5) as delivery:
            await delivery.nack("by hand", retryable=False)

        async def fail() -> None:
            async with await coder.receive(timeout=5) as delivery:
                await delivery.ack()
                raise ValueError("too late")

        with pytest.raises(ValueError, match="too late"):
            await fail()
        stats = (await mesh.stats()).mailboxes["default/coder"]
        assert (stats.dead, stats.acked, stats.retried) == (1, 1, 0)


async def test_a_settle_with_a_stale_token_is_refused(worlds: Worlds) -> None:
    """Promise 4."""
    async with worlds() as mesh:
        planner, coder = await pair(mesh, lease_ms=1000, backoff_ms_base=0)
        await planner.send("coder", 1)
        stale = await coder.receive(timeout=5)
        await mesh.pass_time(1)
        fresh = await coder.receive(timeout=5)
        assert fresh.token != stale.token
        for settle in (stale.ack, stale.nack, stale.drop, lambda: stale.extend(1000)):
            with pytest.raises(LeaseLost):
                await settle()
        assert stale.lost
        await fresh.ack()
        assert (await mesh.stats()).mailboxes["default/coder"].acked == 1


def interrupt(session: Any, kind: type[Request[Any]], once: Callable[[], Any]) -> None:
    """Between the next answer to a request of this kind and its caller something else happens."""
    original = session.execute

    async def awaited(request: Request[Any], **options: Any) -> Any:
        answer = await original(request, **options)
        if isinstance(request, kind):
            session.execute = original
            await once()
        return answer

    def plain(request: Request[Any], **options: Any) -> Any:
        answer = original(request, **options)
        if isinstance(request, kind):
            session.execute = original
            once()
        return answer

    session.execute = awaited if hasattr(session, "give_back") else plain


async def test_an_extend_that_is_answered_late_moves_no_deadline_back(worlds: Worlds) -> None:
    """Promise 6: the node alone says when a lease ends, and it does end then."""
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        await planner.send("coder", 1)
        delivery = await coder.receive(timeout=5)
        granted = delivery.deadline
        interrupt(mesh.inner._session, Extend, lambda: delivery.inner.extend(120_000))
        assert await delivery.extend(40_000) == delivery.deadline == granted + timedelta(seconds=90)
        assert await delivery.extend(1) == delivery.deadline == granted + timedelta(seconds=90)
        await mesh.pass_time(119)
        assert await coder.receive_many(1, timeout=0) == []
        await mesh.pass_time(10)
        again = await coder.receive(timeout=5)
        assert again.attempt == 2


async def test_a_renewal_that_is_answered_late_moves_no_deadline_back(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        await planner.send("coder", 1)
        async with await coder.receive(timeout=5) as delivery:
            granted = delivery.deadline
            interrupt(mesh.inner._session, ExtendAll, lambda: delivery.inner.extend(120_000))
            await mesh.pass_time(20)
            assert delivery.deadline > granted + timedelta(seconds=90)


async def test_a_lease_is_held_as_long_as_it_was_extended_last(worlds: Worlds) -> None:
    """Also by a client far away, which forgets leases that ended."""
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        await planner.send("coder", 1)
        delivery = await coder.receive(timeout=5)
        await delivery.extend(600_000)
        await mesh.pass_time(300)
        await planner.send("coder", 2)
        await (await coder.receive(timeout=5)).ack()
        assert delivery.inner._held
        await delivery.ack()


async def test_extend_holds_the_lease_and_writes_nothing(worlds: Worlds) -> None:
    """Promise 6: `extend` writes no record."""
    async with worlds() as mesh:
        planner, coder = await pair(mesh, lease_ms=1000)
        await planner.send("coder", 1)
        delivery = await coder.receive(timeout=5)
        before, first = mesh.sequence, delivery.deadline
        assert await delivery.extend(60_000) == delivery.deadline == first + timedelta(seconds=59)
        assert mesh.sequence == before
        await mesh.pass_time(59)
        await delivery.ack()


async def test_ack_many_acks_in_one_step(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await pair(mesh)
        await planner.send_many([{"to": "coder", "content": n} for n in range(5)])
        deliveries = await coder.receive_many(10)
        await mesh.ack_many(deliveries)
        await mesh.ack_many(deliveries, durable=True)  # once more is no harm
        assert (await mesh.stats()).mailboxes["default/coder"].acked == 5


async def test_ack_many_names_the_leases_that_were_lost_and_acks_the_rest(worlds: Worlds) -> None:
    """Promise 4."""
    async with worlds() as mesh:
        planner, coder = await pair(mesh, lease_ms=1000, backoff_ms_base=0)
        await planner.send("coder", 0, id="late")
        (late,) = await coder.receive_many(1)
        await mesh.pass_time(0.9)
        await planner.send("coder", 1, id="early")
        (early,) = await coder.receive_many(1)
        await mesh.pass_time(0.2)
        with pytest.raises(LeaseLost, match="1 of 2 leases were lost: late"):
            await mesh.ack_many([late, early])
        assert (late.settled, late.lost, early.settled, early.lost) == (False, True, True, False)
        assert (await coder.receive(timeout=5)).id == "late"


async def test_peek_shows_what_is_pending_and_takes_nothing(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await pair(mesh)
        await planner.send_many([{"to": "coder", "content": n, "id": f"m{n}"} for n in range(3)])
        assert [entry.envelope.id for entry in await coder.peek(2)] == ["m0", "m1"]
        assert len(await coder.receive_many(10)) == 3


async def test_messages_of_one_task_are_handed_to_one_holder_at_a_time_in_order(worlds: Worlds) -> None:
    """Promise 3: a lane keeps acceptance order, also across retries."""
    async with worlds() as mesh:
        planner, coder = await pair(mesh)
        for n in range(3):
            await planner.send("coder", n, task="release", priority=5 - n)
        await planner.send("coder", "other")
        first = await coder.receive(timeout=5)
        assert first.content == 0
        assert (await coder.receive(timeout=5)).content == "other"
        assert await coder.receive_many(5) == []
        await first.nack("again", delay_ms=1000)
        assert await coder.receive_many(5) == []
        await mesh.pass_time(1)
        run = await coder.receive_many(5)
        assert [each.content for each in run] == [0, 1, 2]


async def test_a_nack_in_a_run_returns_the_later_ones_unburned(worlds: Worlds) -> None:
    """Promise 3."""
    async with worlds() as mesh:
        planner, coder = await pair(mesh)
        await planner.send_many([{"to": "coder", "content": n, "key": "k"} for n in range(3)])
        first, second, third = await coder.receive_many(5)
        await first.ack()
        await second.nack("again", delay_ms=0)
        with pytest.raises(LeaseLost):
            await third.ack()
        again = await coder.receive_many(5)
        assert [(each.content, each.attempt) for each in again] == [(1, 2), (2, 1)]


async def test_after_a_dead_letter_the_lane_goes_on(worlds: Worlds) -> None:
    """Promise 3."""
    async with worlds() as mesh:
        planner, coder = await pair(mesh)
        for n in range(2):
            await planner.send("coder", n, key="k")
        await (await coder.receive(timeout=5)).nack("no", retryable=False)
        assert (await coder.receive(timeout=5)).content == 1


async def test_a_lane_may_halt_at_a_dead_letter_until_it_is_dealt_with(worlds: Worlds) -> None:
    """Promise 3: `halt` is optional; a redrive goes to the tail."""
    async with worlds() as mesh:
        planner, coder = await pair(mesh, halt_on_dead_letter=True)
        for n in range(2):
            await planner.send("coder", n, key="k", id=f"m{n}")
        await (await coder.receive(timeout=5)).nack("no", retryable=False)
        assert await coder.receive_many(5) == []
        await mesh.redrive("m0")
        assert [each.content for each in await coder.receive_many(5)] == [1, 0]


async def test_receiving_from_a_subscription_that_ended_is_an_error(worlds: Worlds) -> None:
    async with worlds() as mesh:
        listener = await mesh.subscribe("news", "listener")
        await mesh.publish("news", 1)
        assert await mesh.unsubscribe("news", "listener") == 1
        with pytest.raises(UnknownRecipient):
            await listener.receive(timeout=1)
        assert (await mesh.publish("news", 2)).targets == 0


async def test_a_settled_message_is_acked_for_its_sender_only_once(worlds: Worlds) -> None:
    """A message redelivered after its work was done is settled without being seen again."""
    async with worlds() as mesh:
        planner, coder = await pair(mesh, lease_ms=1000, backoff_ms_base=0)
        await planner.send("coder", 1)
        delivery = await coder.receive(timeout=5)
        await mesh.pass_time(1)  # a bare receive is not renewed
        with pytest.raises(LeaseLost):
            async with delivery:
                pass
        assert await coder.receive_many(10) == []
        stats = (await mesh.stats()).mailboxes["default/coder"]
        assert (stats.acked, stats.pending, stats.delivered) == (1, 0, 1)
