"""Handlers: run by a bounded pool, renewed while they live, and never acked when they raise."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import Any

import pytest

from relaymesh import Drop, InvalidEnvelope, InvalidSettings, Reject, Retry, UnknownRecipient
from relaymesh.sdk import pool
from relaymesh.testing import ManualMesh
from tests.sdk.uniform import World, Worlds
from tests.waiting import until_async


class Gate:
    """A handler of either kind that waits inside until it is let go, and tells how many are inside."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.inside = 0
        self.most = 0
        self.seen: list[Any] = []
        self._lock = threading.Lock()

    def __call__(self, delivery: Any) -> None:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        assert self.open.wait(10)
        with self._lock:
            self.inside -= 1
            self.seen.append(delivery.content)

    async def awaited(self, delivery: Any) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        await until_async(self.open.is_set, 10)
        self.inside -= 1
        self.seen.append(delivery.content)


@pytest.mark.parametrize("awaited", [False, True])
async def test_a_handler_runs_for_every_message(worlds: Worlds, awaited: bool) -> None:
    """Plain functions on either twin, and coroutine functions on either twin."""
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        gate = Gate()
        gate.open.set()
        coder.handle(gate.awaited if awaited else gate.__call__)
        for n in range(10):
            await planner.send("coder", n)
        await until_async(lambda: len(gate.seen) == 10)
        assert sorted(gate.seen) == list(range(10))
        await acked(mesh, "default/coder", 10)


async def acked(mesh: World, mailbox: str, count: int) -> None:
    counters = mesh.node.core.kernel.state.mailboxes[mailbox].counters
    await until_async(lambda: counters.acked == count)


async def test_an_object_that_returns_a_coroutine_is_awaited(worlds: Worlds) -> None:
    class Caller:
        __name__ = "caller"
        done = 0

        def __call__(self, delivery: Any) -> Any:
            async def work() -> None:
                await asyncio.sleep(0)
                Caller.done += 1

            return work()

    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        coder.handle(Caller())
        await planner.send("coder", 1)
        await acked(mesh, "default/coder", 1)
        assert Caller.done == 1


async def test_on_subscribes_under_the_function_s_name(worlds: Worlds) -> None:
    async with worlds() as mesh:
        seen: list[Any] = []

        @mesh.on("builds.*", max_retries=5)
        def build(delivery: Any) -> None:
            seen.append(delivery.content)

        assert (await mesh.publish("builds.main", 1)).targets == 1
        await until_async(lambda: seen == [1])
        await acked(mesh, "default/builds.*:build", 1)
        assert build.__name__ == "build"


async def test_on_with_a_bad_topic_or_setting_says_so_at_once(worlds: Worlds) -> None:
    async with worlds() as mesh:
        with pytest.raises(InvalidEnvelope):
            mesh.on("not a topic")(lambda delivery: None)
        with pytest.raises(InvalidEnvelope):
            mesh.on("builds", "")(lambda delivery: None)
        with pytest.raises(InvalidSettings):
            mesh.on("builds", "build", no_such_setting=1)(lambda delivery: None)


@pytest.mark.parametrize(
    ("error", "counted"),
    [
        (ZeroDivisionError("x"), "retried"),
        (Retry("later"), "retried"),
        (Reject("never"), "dead"),
        (Drop("nothing to do"), "dropped"),
        (UnknownRecipient("raised by a send inside the handler"), "retried"),
        (MemoryError(), "dead"),
        (RecursionError(), "dead"),
    ],
)
async def test_a_handler_that_raises_has_failed_and_its_worker_goes_on(
    worlds: Worlds, error: Exception, counted: str
) -> None:
    """Promise 12; section 3's failure table."""
    async with worlds(workers=(1, 1)) as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        seen: list[Any] = []

        @coder.handle
        def work(delivery: Any) -> None:
            seen.append(delivery.content)
            if delivery.content == 0:
                raise error

        await planner.send("coder", 0)
        await until_async(lambda: seen == [0])
        await planner.send("coder", 1)
        await acked(mesh, "default/coder", 1)
        assert seen == [0, 1]
        stats = (await mesh.stats()).mailboxes["default/coder"]
        assert getattr(stats, counted) == 1


async def test_a_failure_is_recorded_with_its_stack(worlds: Worlds) -> None:
    """Promise 11: the dead letter has every attempt with code, reason and stack trace."""
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder", max_retries=0)

        @coder.handle
        def explode(delivery: Any) -> None:
            raise LookupError("no such branch")

        await planner.send("coder", 1, id="m")
        await until_async(lambda: mesh.node.core.kernel.state.letters.count)
        (letter,) = await mesh.dead_letters()
        (failure,) = letter.failures
        assert (failure.attempt, failure.code, failure.reason) == (1, "other", "LookupError: no such branch")
        assert "in explode" in failure.stack
        assert "LookupError: no such branch" in failure.stack


async def test_the_pool_is_bounded(worlds: Worlds) -> None:
    """It grows core → max under backlog, and no further."""
    async with worlds(workers=(1, 3)) as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        gate = Gate()
        coder.handle(gate.awaited if worlds.awaited else gate)
        await planner.send_many([{"to": "coder", "content": n} for n in range(12)])
        await until_async(lambda: gate.inside == 3)
        if not worlds.awaited:
            assert mesh.inner._pool.threads == 3
        assert (await mesh.stats()).mailboxes["default/coder"].leased <= 6
        gate.open.set()
        await acked(mesh, "default/coder", 12)
        assert gate.most == 3


async def test_threads_that_idle_beyond_the_core_end(worlds: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    if worlds.awaited:
        pytest.skip("tasks cost nothing while they idle")
    monkeypatch.setattr(pool, "IDLE_S", 0.02)
    async with worlds(workers=(1, 4)) as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        gate = Gate()
        coder.handle(gate)
        await planner.send_many([{"to": "coder", "content": n} for n in range(4)])
        await until_async(lambda: gate.inside == 4)
        gate.open.set()
        await until_async(lambda: mesh.inner._pool.threads == 1)
        await planner.send("coder", "still served")
        await until_async(lambda: "still served" in gate.seen)


async def test_a_flood_on_one_topic_does_not_stop_another(worlds: Worlds) -> None:
    """Promise 10."""
    async with worlds(workers=(2, 4)) as mesh:
        slow, quick = Gate(), Gate()
        quick.open.set()
        mesh.on("a", "slow")(slow.awaited if worlds.awaited else slow)
        await mesh.publish_many("a", [{"content": n} for n in range(3)])
        await until_async(lambda: slow.inside == 3)
        mesh.on("b", "quick")(quick.awaited if worlds.awaited else quick)
        await mesh.publish("b", "through")
        await until_async(lambda: quick.seen == ["through"])
        slow.open.set()


async def test_messages_of_one_key_are_handled_one_after_the_other_in_order(worlds: Worlds) -> None:
    """Promise 3, with a full pool."""
    async with worlds(workers=(4, 8)) as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        seen: dict[str, list[int]] = {}
        inside: set[str] = set()

        @coder.handle
        def work(delivery: Any) -> None:
            assert delivery.key not in inside
            inside.add(delivery.key)
            time.sleep(0.0005)
            seen.setdefault(delivery.key, []).append(delivery.content)
            inside.discard(delivery.key)

        batch = [{"to": "coder", "content": n, "key": f"k{n % 3}"} for n in range(60)]
        await planner.send_many(batch)
        await acked(mesh, "default/coder", 60)
        assert seen == {f"k{k}": [n for n in range(60) if n % 3 == k] for k in range(3)}


async def test_a_failure_in_a_run_does_not_strand_what_came_with_it(worlds: Worlds) -> None:
    """The lane goes on after a dead letter: at once, not when leases end."""
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder", max_retries=0)
        seen: list[Any] = []

        def work(delivery: Any) -> None:
            seen.append(delivery.content)
            if delivery.content == 0:
                raise ValueError("poison")

        await planner.send_many([{"to": "coder", "content": n, "key": "k"} for n in range(4)])
        coder.handle(work)
        await acked(mesh, "default/coder", 3)
        assert seen == [0, 1, 2, 3]


async def test_a_retry_holds_its_lane(worlds: Worlds) -> None:
    """Promise 3."""
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder", backoff_ms_base=500)
        seen: list[tuple[Any, int]] = []

        def work(delivery: Any) -> None:
            seen.append((delivery.content, delivery.attempt))
            if delivery.content == 0 and delivery.attempt == 1:
                raise ValueError("once")

        await planner.send_many([{"to": "coder", "content": n, "key": "k"} for n in range(3)])
        coder.handle(work)
        await until_async(
            lambda: mesh.node.core.kernel.state.mailboxes["default/coder"].counters.retried == 1
        )
        await mesh.pass_time(1)
        await acked(mesh, "default/coder", 3)
        assert seen == [(0, 1), (0, 2), (1, 1), (2, 1)]


async def test_a_lease_is_renewed_while_its_handler_lives(worlds: Worlds) -> None:
    """Section 3: a long model call never runs twice because it is long."""
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        gate = Gate()
        coder.handle(gate.awaited if worlds.awaited else gate)
        await planner.send("coder", "think")
        await until_async(lambda: gate.inside == 1)
        await mesh.pass_time(300)
        gate.open.set()
        await acked(mesh, "default/coder", 1)
        stats = (await mesh.stats()).mailboxes["default/coder"]
        assert (stats.delivered, stats.retried) == (1, 0)


async def test_what_waits_behind_a_long_handler_keeps_its_lease_and_its_attempts(worlds: Worlds) -> None:
    """What came in one run, or waits for a worker, is not timed out for being patient."""
    async with worlds(workers=(1, 1)) as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        gate = Gate()
        await planner.send_many([{"to": "coder", "content": n, "key": "k"} for n in range(3)])
        await planner.send_many([{"to": "coder", "content": n} for n in range(3, 5)])
        coder.handle(gate.awaited if worlds.awaited else gate)
        await until_async(lambda: gate.inside == 1)
        await mesh.pass_time(300)
        assert await mesh.dead_letters() == []
        gate.open.set()
        await acked(mesh, "default/coder", 5)
        assert (await mesh.stats()).mailboxes["default/coder"].retried == 0


async def test_a_lease_is_renewed_inside_a_block(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        await planner.send("coder", 1)
        async with await coder.receive(timeout=5):
            await mesh.pass_time(300)
        assert (await mesh.stats()).mailboxes["default/coder"].acked == 1


async def test_a_bare_receive_is_not_renewed(worlds: Worlds) -> None:
    """Promise 5: an attempt that ends in silence is counted."""
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder", backoff_ms_base=0)
        await planner.send("coder", 1)
        await coder.receive(timeout=5)
        await mesh.pass_time(29.9)
        assert await coder.receive_many(1) == []
        await mesh.pass_time(0.1)
        assert (await coder.receive(timeout=5)).attempt == 2


async def test_work_that_was_acked_inside_its_handler_is_not_mourned(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        await planner.send("coder", 1)
        async with await coder.receive(timeout=5) as delivery:
            await delivery.ack()
            await mesh.pass_time(300)
            assert not delivery.lost
        assert "lost" not in caplog.text


async def test_a_handler_that_lost_its_lease_has_its_result_refused_and_is_not_run_again(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    """Promise 4; the consumer's ledger: a completed message is acked without running the handler."""
    async with worlds(workers=(1, 1)) as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder", backoff_ms_base=0)
        gate = Gate()
        coder.handle(gate.awaited if worlds.awaited else gate)
        await planner.send("coder", 1, id="m")
        await until_async(lambda: gate.inside == 1)
        mesh.clock.advance(31)  # nobody renewed: the process was stopped, say
        await mesh.deliver_due()
        with caplog.at_level(logging.WARNING, "relaymesh.sdk"):
            gate.open.set()
            await acked(mesh, "default/coder", 1)
        await until_async(lambda: "the lease of m on default/coder was lost" in caplog.text)
        stats = (await mesh.stats()).mailboxes["default/coder"]
        assert gate.seen == [1]
        assert (stats.pending, stats.delivered, stats.retried) == (0, 1, 1)


async def test_a_block_that_fails_under_a_lost_lease_shows_its_own_error(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        await planner.send("coder", 1)

        async def fail() -> None:
            async with await coder.receive(timeout=5):
                mesh.clock.advance(31)
                await mesh.deliver_due()
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()


async def test_a_handler_of_at_most_once_runs_once_whatever_it_does(worlds: Worlds) -> None:
    """Promise 13."""
    async with worlds() as mesh:
        seen: list[Any] = []

        def work(delivery: Any) -> None:
            seen.append(delivery.content)
            raise ValueError("never again")

        listener = await mesh.subscribe("news", "once", delivery_semantics="at_most_once", ordered=True)
        await mesh.publish_many("news", [{"content": n} for n in range(3)])
        listener.handle(work)
        await until_async(lambda: len(seen) == 3)
        await mesh.pass_time(100)
        assert sorted(seen) == [0, 1, 2]


def test_a_subscription_that_ends_takes_no_other_handler_with_it() -> None:
    with ManualMesh() as mesh:
        planner, coder, handled = mesh.agent("planner"), mesh.agent("coder"), []
        mesh.subscribe("news", "reader").handle(lambda _: mesh.unsubscribe("news", "reader") and None)
        coder.handle(lambda delivery: handled.append(delivery.content))
        mesh.publish("news", "the last one")
        planner.send("coder", 1)
        mesh.advance(1)
        planner.send("coder", 2)
        mesh.advance(1)
        assert handled == [1, 2]
