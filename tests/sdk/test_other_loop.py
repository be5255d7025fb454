"""An `AsyncMesh` belongs to the event loop it was opened on: calls from another are refused."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relaymesh import AsyncMesh, Closed, Mesh
from tests.sdk.uniform import Worlds


async def on_another_loop(work: Callable[[], Any]) -> Any:
    """What the coroutine of `work` returns, or raises, on a loop in a thread of its own."""

    async def inside() -> Any:
        return await work()

    return await asyncio.wait_for(asyncio.to_thread(asyncio.run, inside()), 30)


async def test_every_call_from_another_loop_is_refused_before_anything_is_accepted(worlds: Worlds) -> None:
    if not worlds.awaited:
        pytest.skip("Mesh is for any thread")
    async with worlds() as world:
        mesh: AsyncMesh = world.inner
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        await planner.send("coder", 1)
        delivery = await coder.receive(timeout=5)
        before = world.sequence

        async def inside_a_block() -> None:
            async with delivery:
                pass

        async def handling() -> None:
            coder.handle(print)

        async def on_a_topic() -> None:
            mesh.on("topic", "name")(print)

        calls: list[Callable[[], Any]] = [
            lambda: planner.send("coder", 2),
            lambda: planner.send_many([{"to": "coder", "content": 2}]),
            lambda: planner.ask("coder", 2, timeout=1),
            lambda: planner.answer(delivery, 2),
            lambda: mesh.publish("topic", 2),
            lambda: mesh.agent("new"),
            lambda: mesh.subscribe("topic", "name"),
            lambda: coder.receive(timeout=1),
            lambda: coder.receive_many(1),
            delivery.ack,
            lambda: delivery.nack("no"),
            lambda: delivery.extend(1000),
            lambda: mesh.ack_many([delivery]),
            mesh.dead_letters,
            mesh.stats,
            lambda: mesh.run(1),
            mesh.close,
            inside_a_block,
            handling,
            on_a_topic,
        ]
        for call in calls:
            with pytest.raises(Closed, match="event loop") as caught:
                await on_another_loop(call)
            assert "Mesh" in caught.value.hint
        assert world.sequence == before
        await delivery.ack()
        assert await coder.receive_many(5) == []


async def test_a_mesh_whose_loop_has_ended_can_be_closed_and_frees_its_directory(tmp_path: Path) -> None:
    mesh = AsyncMesh(tmp_path)

    async def forget_to_close() -> None:
        await mesh.open()
        agent = await mesh.agent("coder")
        agent.handle(print)
        await agent.send("coder", 1)

    thread = threading.Thread(target=lambda: asyncio.run(forget_to_close()))
    thread.start()
    await asyncio.to_thread(thread.join, 30)
    with pytest.raises(Closed, match="event loop"):
        await mesh.stats()
    await mesh.close()
    with Mesh(tmp_path) as again:
        assert "default/coder" in again.stats().mailboxes
