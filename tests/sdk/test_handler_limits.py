"""Limits of one handler: how many runs at once, and how long each may take."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from relaymesh import AsyncMesh, InvalidValue, LeaseLost, Mesh, Reject
from relaymesh.testing import AsyncManualMesh, ManualMesh
from tests.sdk.uniform import World, Worlds
from tests.waiting import until_async


class Gate:
    """A handler of either kind that waits inside until it is let go."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.lock = threading.Lock()
        self.inside = 0
        self.most = 0
        self.begun = 0
        self.done = 0
        self.cancelled = 0

    def _enter(self) -> None:
        with self.lock:
            self.begun += 1
            self.inside += 1
            self.most = max(self.most, self.inside)

    def _leave(self) -> None:
        with self.lock:
            self.inside -= 1
            self.done += 1

    def __call__(self, delivery: Any) -> None:
        self._enter()
        assert self.open.wait(10)
        self._leave()

    async def awaited(self, delivery: Any) -> None:
        self._enter()
        try:
            await until_async(self.open.is_set, 10)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self._leave()


def counters(mesh: World, mailbox: str = "default/coder") -> Any:
    return mesh.node.core.kernel.state.mailboxes[mailbox].counters


# -- the forms


async def test_a_handler_is_given_in_any_of_four_forms(worlds: Worlds) -> None:
    async with worlds(workers=(4, 8)) as mesh:
        planner, seen = await mesh.agent("planner"), []

        def work(delivery: Any) -> None:
            seen.append(delivery.receiver)

        agents = [await mesh.agent(name) for name in "abcd"]
        assert agents[0].handle(work) is work
        assert agents[1].handle()(work) is work
        assert agents[2].handle(concurrency=2, time_limit=30)(work) is work
        assert agents[3].handle(work, concurrency=1) is work
        mesh.on("news", "e", concurrency=2, time_limit=30)(work)
        await mesh.publish("news", 1)
        await planner.send_many([{"to": name, "content": 1} for name in "abcd"])
        wanted = ["default/a", "default/b", "default/c", "default/d", "default/news:e"]
        await until_async(lambda: sorted(seen) == wanted)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("concurrency", 0),
        ("concurrency", -1),
        ("concurrency", 10_001),
        ("concurrency", 1.5),
        ("concurrency", True),
        ("concurrency", "2"),
        ("time_limit", 0),
        ("time_limit", -1),
        ("time_limit", float("nan")),
        ("time_limit", float("inf")),
        ("time_limit", "30"),
        ("time_limit", True),
    ],
)
async def test_a_bad_limit_is_refused_by_its_name_at_once(worlds: Worlds, name: str, value: Any) -> None:
    async with worlds() as mesh:
        coder = await mesh.agent("coder")
        with pytest.raises(InvalidValue, match=f"^{name} "):
            coder.handle(**{name: value})
        with pytest.raises(InvalidValue, match=f"^{name} "):
            coder.handle(lambda delivery: None, **{name: value})
        with pytest.raises(InvalidValue, match=f"^{name} "):
            mesh.on("news", "reader", **{name: value})


# -- how many at once


@pytest.mark.parametrize("others", [False, True])
async def test_no_more_runs_of_a_handler_than_its_concurrency(worlds: Worlds, others: bool) -> None:
    """Alone in the pool, and beside another handler, which has its own."""
    async with worlds(workers=(4, 8)) as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        gate, free = Gate(), Gate()
        if others:
            planner.handle(free.awaited if worlds.awaited else free)
        coder.handle(gate.awaited if worlds.awaited else gate, concurrency=2)
        await planner.send_many([{"to": "coder", "content": n} for n in range(6)])
        await planner.send_many([{"to": "planner", "content": n} for n in range(3)])
        await until_async(lambda: gate.inside == 2 and (not others or free.inside == 3))
        assert (await mesh.stats()).mailboxes["default/coder"].leased == 2, "the others wait for anyone"
        gate.open.set()
        free.open.set()
        await until_async(lambda: counters(mesh).acked == 6)
        assert gate.most == 2


async def test_a_concurrency_above_the_pool_is_the_pool_s(worlds: Worlds) -> None:
    async with worlds(workers=(1, 2)) as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        gate = Gate()
        coder.handle(concurrency=50)(gate.awaited if worlds.awaited else gate)
        await planner.send_many([{"to": "coder", "content": n} for n in range(6)])
        await until_async(lambda: gate.inside == 2)
        gate.open.set()
        await until_async(lambda: counters(mesh).acked == 6)
        assert gate.most == 2


# -- how long


async def test_a_coroutine_beyond_its_time_is_cancelled_and_tried_again(worlds: Worlds) -> None:
    """Also on `Mesh`, which runs it on a loop of its own."""
    async with worlds() as mesh:
        planner = await mesh.agent("planner")
        coder = await mesh.agent("coder", max_retries=1, backoff_ms_base=0)
        gate = Gate()
        coder.handle(time_limit=100)(gate.awaited)
        await planner.send("coder", 1)
        for attempt in (1, 2):
            await until_async(lambda attempt=attempt: gate.begun == attempt)  # type: ignore[misc]
            await mesh.pass_time(99)
            assert gate.cancelled == attempt - 1, "its lease is renewed until then"
            await mesh.pass_time(1)
            await until_async(lambda attempt=attempt: gate.cancelled == attempt)  # type: ignore[misc]
        await until_async(lambda: mesh.node.core.kernel.state.letters.count)
        (letter,) = await mesh.dead_letters()
        assert [failure.code for failure in letter.failures] == ["timeout", "timeout"]
        assert letter.error == "TimeoutError: the handler took longer than its time limit of 100 s"


async def test_a_plain_function_beyond_its_time_is_nacked_and_its_late_result_ignored(worlds: Worlds) -> None:
    async with worlds(workers=(1, 1)) as mesh:
        planner = await mesh.agent("planner")
        coder = await mesh.agent("coder", backoff_ms_base=0)
        gate = Gate()
        coder.handle(gate, time_limit=100)
        await planner.send("coder", 1)
        await until_async(lambda: gate.begun == 1)
        await mesh.pass_time(99)
        assert counters(mesh).retried == 0
        await mesh.pass_time(1)
        await until_async(lambda: counters(mesh).retried == 1)
        assert gate.begun == 1, "it still has its worker, and there is no other"
        gate.open.set()
        await until_async(lambda: gate.done == 2)
        await until_async(lambda: counters(mesh).acked == 1)
        assert (gate.begun, counters(mesh).retried) == (2, 1), "the late result was no ack"


async def test_a_plain_function_that_fails_after_its_time_fails_once(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder", max_retries=0)
        gate = Gate()

        @coder.handle(time_limit=100)
        def work(delivery: Any) -> None:
            gate(delivery)
            raise ValueError("late")

        await planner.send("coder", 1)
        await until_async(lambda: gate.begun == 1)
        await mesh.pass_time(100)
        await until_async(lambda: mesh.node.core.kernel.state.letters.count)
        gate.open.set()
        await until_async(lambda: gate.done == 1)
        await planner.send("coder", 2)
        await until_async(lambda: mesh.node.core.kernel.state.letters.count == 2)
        first, second = await mesh.dead_letters()
        assert [failure.code for failure in first.failures] == ["timeout"]
        assert [failure.code for failure in second.failures] == ["other"]


async def test_what_a_function_does_with_its_delivery_after_its_time_is_refused(worlds: Worlds) -> None:
    """Promise 4: it sends nothing, and acks nothing."""
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder", max_retries=0)
        gate, loop, refused = Gate(), asyncio.get_running_loop(), []

        @coder.handle(time_limit=100)
        def work(delivery: Any) -> None:
            gate(delivery)
            assert delivery.lost
            try:
                sending = delivery.ack_and_send("planner", "late")
                if worlds.awaited:
                    asyncio.run_coroutine_threadsafe(sending, loop).result(5)
            except LeaseLost as error:
                refused.append(error)

        await planner.send("coder", 1)
        await until_async(lambda: gate.begun == 1)
        await mesh.pass_time(100)
        await until_async(lambda: mesh.node.core.kernel.state.letters.count)
        gate.open.set()
        await until_async(lambda: refused)
        assert await planner.receive_many(5) == []


async def test_a_run_within_its_time_is_acked(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        gate = Gate()
        coder.handle(gate.awaited if worlds.awaited else gate, time_limit=100)
        await planner.send("coder", 1)
        await until_async(lambda: gate.begun == 1)
        await mesh.pass_time(99)
        gate.open.set()
        await until_async(lambda: counters(mesh).acked == 1)
        await mesh.pass_time(100)
        assert (counters(mesh).retried, counters(mesh).dead) == (0, 0)


async def test_a_coroutine_that_ignores_its_cancellation_has_failed_all_the_same(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder", max_retries=0)
        gate = Gate()

        @coder.handle(time_limit=100)
        async def stubborn(delivery: Any) -> None:
            try:
                await gate.awaited(delivery)
            except asyncio.CancelledError:
                await asyncio.sleep(0)

        await planner.send("coder", 1)
        await until_async(lambda: gate.begun == 1)
        await mesh.pass_time(100)
        await until_async(lambda: mesh.node.core.kernel.state.letters.count)
        (letter,) = await mesh.dead_letters()
        assert letter.code == "timeout"
        await planner.send("coder", 2)
        gate.open.set()
        await until_async(lambda: counters(mesh).acked == 1)


async def test_an_at_most_once_coroutine_is_cancelled_and_not_tried_again(worlds: Worlds) -> None:
    """Promise 13."""
    async with worlds() as mesh:
        planner = await mesh.agent("planner")
        coder = await mesh.agent("coder", delivery_semantics="at_most_once")
        gate = Gate()
        coder.handle(gate.awaited, time_limit=100)
        await planner.send("coder", 1)
        await until_async(lambda: gate.begun == 1)
        await mesh.pass_time(100)
        await until_async(lambda: gate.cancelled == 1)
        await mesh.pass_time(100)
        assert gate.begun == 1


async def test_the_contract_decides_what_a_timeout_is(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner = await mesh.agent("planner")
        coder = await mesh.agent("coder", contract={TimeoutError: Reject})
        gate = Gate()
        coder.handle(gate.awaited, time_limit=100)
        await planner.send("coder", 1)
        await until_async(lambda: gate.begun == 1)
        await mesh.pass_time(100)
        await until_async(lambda: mesh.node.core.kernel.state.letters.count)
        (letter,) = await mesh.dead_letters()
        assert (letter.attempts, letter.code) == (1, "TimeoutError")


def test_a_short_limit_is_not_late() -> None:
    """On the real clock: the watch wakes for a limit below its usual pause."""
    with Mesh(durability="memory") as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder", max_retries=0)
        coder.handle(lambda delivery: None)
        planner.send("coder", "starts the watch")
        gate = Gate()
        slow = mesh.agent("slow", max_retries=0)
        slow.handle(gate, time_limit=0.05)
        begun = time.monotonic()
        planner.send("slow", 1)
        while not mesh.dead_letters():
            assert time.monotonic() - begun < 5
            time.sleep(0.005)
        took = time.monotonic() - begun
        gate.open.set()
        assert 0.05 <= took < 0.45


async def test_a_short_limit_is_not_late_on_a_loop() -> None:
    async with AsyncMesh(durability="memory") as mesh:
        planner, slow = await mesh.agent("planner"), await mesh.agent("slow", max_retries=0)
        gate = Gate()
        slow.handle(gate.awaited, time_limit=0.05)
        begun = time.monotonic()
        await planner.send("slow", 1)
        while not await mesh.dead_letters():
            assert time.monotonic() - begun < 5
            await asyncio.sleep(0.005)
        assert 0.05 <= time.monotonic() - begun < 0.45


def test_virtual_time_counts_in_a_manual_mesh() -> None:
    with ManualMesh() as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder", max_retries=0)

        @coder.handle(time_limit=600)
        def work(delivery: Any) -> None:
            mesh.advance(delivery.content)

        planner.send("coder", 599)
        planner.send("coder", 601)
        mesh.advance(2_000)
        (letter,) = mesh.dead_letters()
        assert (letter.content, letter.code, len(letter.failures)) == (601, "timeout", 1)
        assert mesh.stats().mailboxes["default/coder"].acked == 1


async def test_virtual_time_counts_in_an_async_manual_mesh() -> None:
    async with AsyncManualMesh() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder", max_retries=0)
        ended: list[Any] = []

        @coder.handle(time_limit=600)
        async def work(delivery: Any) -> None:
            await mesh.advance(delivery.content)
            ended.append(delivery.content)

        await planner.send("coder", 599)
        await planner.send("coder", 601)
        await mesh.advance(2_000)
        (letter,) = await mesh.dead_letters()
        assert (letter.content, letter.code, len(letter.failures)) == (601, "timeout", 1)
        assert ended == [599]


async def test_a_mesh_that_raises_errors_raises_the_timeout() -> None:
    async with AsyncManualMesh(raise_errors=True) as mesh:
        coder = await mesh.agent("coder")

        @coder.handle(time_limit=1)
        async def work(delivery: Any) -> None:
            await mesh.advance(2)

        await coder.send("coder", 1)
        with pytest.raises(TimeoutError, match="time limit of 1 s"):
            await mesh.advance(0)
