"""`AsyncManualMesh`: the twin of `ManualMesh`, on an event loop."""

from __future__ import annotations

import asyncio
import re
import textwrap
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from relaymesh import Closed, Empty, InvalidSettings, InvalidValue, MailboxFull, NoAnswer, Retry
from relaymesh.testing import AsyncManualMesh, Keep, ManualClock, MemoryDisk


async def test_the_example_in_its_docstring_runs() -> None:
    text = textwrap.dedent(AsyncManualMesh.__doc__ or "")
    (example,) = [block for block in re.findall(r"\n\n((?:        .*\n|\n)+)", text) if "def test_" in block]
    names: dict[str, Any] = {"AsyncManualMesh": AsyncManualMesh}
    exec(textwrap.dedent(example), names)
    (test,) = [value for name, value in names.items() if name.startswith("test_")]
    await test()


async def test_it_needs_no_threads_and_no_real_time() -> None:
    before = threading.active_count()
    async with AsyncManualMesh() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder", max_retries=100)

        @coder.handle
        async def late(delivery: Any) -> None:
            raise Retry(after=600)

        await planner.send("coder", 1, ttl=0)
        assert await mesh.advance(86_400) == 101
        assert threading.active_count() == before


async def test_a_plain_function_handles_too_and_runs_in_the_caller_s_thread() -> None:
    async with AsyncManualMesh() as mesh:
        coder = await mesh.agent("coder")
        threads: list[int] = []
        coder.handle(lambda delivery: threads.append(threading.get_ident()))
        await coder.send("coder", 1)
        await mesh.advance()
        assert threads == [threading.get_ident()]


async def test_receive_lets_time_pass_only_as_far_as_it_must() -> None:
    async with AsyncManualMesh() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        began = mesh.now
        await planner.send("coder", 1, delay_ms=3000)
        async with await coder.receive(timeout=5) as delivery:
            assert delivery.content == 1
        assert mesh.now - began == timedelta(seconds=3)
        with pytest.raises(Empty):
            await coder.receive(timeout=5)
        assert mesh.now - began == timedelta(seconds=8)
        with pytest.raises(Empty):
            await coder.receive()


async def test_tasks_that_wait_at_once_share_the_time() -> None:
    async with AsyncManualMesh() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        began = mesh.now

        async def gives_up() -> timedelta:
            with pytest.raises(Empty):
                await planner.receive(timeout=5)
            return mesh.now - began

        asking = asyncio.create_task(planner.ask("coder", "?", timeout=60))
        waiting = asyncio.create_task(gives_up())
        question = await coder.receive(timeout=30)
        assert mesh.now == began, "the question was there before time had to move"
        assert await waiting == timedelta(seconds=5)
        await coder.answer(question, "!")
        assert (await asking).content == "!"
        assert mesh.now - began == timedelta(seconds=5)


async def test_a_handler_says_how_long_it_takes_and_keeps_its_lease() -> None:
    async with AsyncManualMesh() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")

        @coder.handle
        async def work(delivery: Any) -> None:
            await mesh.advance(600)

        await planner.send_many([{"to": "coder", "content": n, "key": "k"} for n in range(3)])
        assert await mesh.advance() == 3
        stats = (await mesh.stats()).mailboxes["default/coder"]
        assert (stats.acked, stats.delivered, stats.retried) == (3, 3, 0)


async def test_ask_lets_handlers_answer() -> None:
    async with AsyncManualMesh() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")

        @coder.handle
        async def work(delivery: Any) -> None:
            await asyncio.sleep(0.001)  # real work of the test's own
            if delivery.attempt == 1:
                raise Retry(after=20)
            await coder.answer(delivery, delivery.content * 2)

        assert (await planner.ask("coder", 21, timeout=60)).content == 42
        with pytest.raises(NoAnswer):
            await planner.ask("coder", 21, timeout=10)


async def test_a_subscription_s_handler_runs_and_may_end() -> None:
    async with AsyncManualMesh() as mesh:
        seen: list[Any] = []

        @mesh.on("orders")
        async def note(delivery: Any) -> None:
            seen.append(delivery.content)

        await mesh.publish("orders", 1)
        await mesh.advance()
        await mesh.unsubscribe("orders", "note")
        await mesh.publish("orders", 2)
        await mesh.advance()
        assert seen == [1]


async def test_a_sender_that_waits_for_room_lets_the_handlers_make_it() -> None:
    async with AsyncManualMesh() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder", capacity=1)
        await planner.send("coder", 1)
        with pytest.raises(MailboxFull):
            await planner.send("coder", 2, timeout=10)
        coder.handle(lambda delivery: None)
        await planner.send("coder", 2, timeout=10)
        await mesh.advance()
        assert (await mesh.stats()).mailboxes["default/coder"].acked == 2


async def test_a_receive_that_is_cancelled_loses_nothing() -> None:
    async with AsyncManualMesh() as mesh:
        coder = await mesh.agent("coder")
        waiting = asyncio.create_task(coder.receive(timeout=5))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await coder.send("coder", 1)
        assert (await coder.receive(timeout=0.001)).attempt == 1


async def test_it_survives_what_the_disk_survives() -> None:
    disk, clock = MemoryDisk(), ManualClock()
    mesh = AsyncManualMesh(disk=disk, clock=clock)
    planner, _ = await mesh.agent("planner"), await mesh.agent("coder")
    receipt = await planner.send("coder", "synced before the power went")
    disk = disk.crash(Keep.NOTHING)
    async with AsyncManualMesh(disk=disk, clock=clock) as mesh:
        assert (await (await mesh.agent("coder")).receive(timeout=0.001)).id == receipt.id


async def test_it_lives_in_a_directory_too(tmp_path: Path) -> None:
    for n in range(2):
        async with AsyncManualMesh(tmp_path) as mesh:
            coder = await mesh.agent("coder")
            assert len(await coder.peek()) == n
            await coder.send("coder", n)
            assert await mesh.checkpoint() is not None


async def test_it_takes_no_notice_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAYMESH_URL", "http://127.0.0.1:1")
    async with AsyncManualMesh() as mesh:
        assert mesh.path is None


async def test_a_closed_one_stays_closed() -> None:
    mesh = AsyncManualMesh()
    await mesh.close()
    with pytest.raises(Closed):
        await mesh.open()
    with pytest.raises(Closed):
        await mesh.agent("coder")


async def test_what_it_is_given_must_be_sound() -> None:
    async with AsyncManualMesh() as mesh:
        for seconds in (-1, float("nan")):
            with pytest.raises(InvalidValue, match="seconds must lie between 0"):
                await mesh.advance(seconds)
    wrong: list[dict[str, Any]] = [{"clock": 1}, {"durability": "synced"}, {"disk": 1}, {"workers": (0, 0)}]
    for each in wrong:
        with pytest.raises(InvalidSettings):
            AsyncManualMesh(**each)
    with pytest.raises(InvalidValue, match="raise_errors"):
        AsyncManualMesh(raise_errors="yes")  # type: ignore[arg-type]
