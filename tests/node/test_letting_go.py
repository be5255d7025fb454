"""What is over is let go of: structures the collector does not look into must not hold a circle together."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

from relaymesh import AsyncMesh, LeaseLost, MailboxFull, Mesh, MeshError


def left_behind(act: Callable[[], object], refusal: type[MeshError]) -> int:
    """How many of fifty refusals are still there when nobody looks at them any more."""
    refused = []
    for _ in range(50):
        try:
            act()
        except refusal as error:
            refused.append(weakref.ref(error))
    assert len(refused) == 50
    gc.collect()
    return sum(each() is not None for each in refused)


def test_a_refused_send_leaves_nothing_behind() -> None:
    with Mesh(durability="memory") as mesh:
        planner = mesh.agent("planner")
        mesh.agent("coder", capacity=1)
        planner.send("coder", 1)
        assert left_behind(lambda: planner.send("coder", 2), MailboxFull) == 0


def test_a_stale_settle_leaves_nothing_behind() -> None:
    with Mesh(durability="memory") as mesh:
        coder = mesh.agent("coder")
        mesh.agent("planner").send("coder", 1)
        delivery = coder.receive(timeout=5)
        delivery.ack()
        assert left_behind(lambda: delivery.extend(1000), LeaseLost) == 0


@pytest.mark.parametrize("messages", [0, 50])
def test_a_closed_mesh_with_a_handler_is_let_go(messages: int) -> None:
    def use() -> weakref.ref[Mesh]:
        mesh = Mesh(durability="memory")
        mesh.agent("coder").handle(lambda delivery: None)
        for number in range(messages):
            mesh.agent("planner").send("coder", number, task="release")
        mesh.close()
        return weakref.ref(mesh)

    mesh = use()
    gc.collect()
    assert mesh() is None


@pytest.mark.parametrize("messages", [0, 50])
def test_a_closed_async_mesh_with_a_handler_is_let_go(messages: int, tmp_path: Path) -> None:
    async def use() -> weakref.ref[AsyncMesh]:
        mesh = await AsyncMesh(tmp_path).open()

        async def handle(delivery: object) -> None:
            pass

        (await mesh.agent("coder")).handle(handle)
        planner = await mesh.agent("planner")
        for number in range(messages):
            await planner.send("coder", number, task="release")
        await mesh.close()
        return weakref.ref(mesh)

    mesh = asyncio.run(use())
    gc.collect()
    assert mesh() is None
