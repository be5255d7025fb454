"""The end: graceful, forced, interrupted; and what the next start finds."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from relaymesh import AsyncMesh, Closed, DirectoryInUse, InvalidSettings, Mesh, MeshSettings
from relaymesh.node.clock import Latch
from relaymesh.testing import ManualClock
from tests.node.doubles import gated
from tests.node.inside import node_of
from tests.sdk.uniform import SteppedClock, Uniform, Worlds
from tests.waiting import until_async


async def test_closing_twice_is_closing_once(worlds: Worlds) -> None:
    mesh = await worlds.open()
    await mesh.close()
    await mesh.close()


async def test_every_call_on_a_closed_mesh_says_so(worlds: Worlds) -> None:
    mesh = await worlds.open()
    planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
    await planner.send("coder", 1)
    delivery = await coder.receive(timeout=5)
    await mesh.close()
    calls: list[Any] = [
        lambda: mesh.agent("new"),
        lambda: mesh.subscribe("topic", "name"),
        lambda: planner.send("coder", 1),
        lambda: planner.send_many([{"to": "coder", "content": 1}]),
        lambda: planner.ask("coder", 1, timeout=1),
        lambda: coder.receive(timeout=1),
        lambda: coder.receive_many(1),
        lambda: coder.answer(delivery, 1),
        delivery.ack,
        delivery.nack,
        lambda: delivery.extend(1000),
        lambda: mesh.ack_many([delivery]),
        lambda: mesh.publish("topic", 1),
        lambda: mesh.publish_many("topic", [{"content": 1}]),
        mesh.dead_letters,
        lambda: mesh.redrive("id"),
        mesh.stats,
        mesh.delayed_count,
        mesh.deliver_due,
        mesh.force_deliver_delayed,
        lambda: mesh.reprioritise("coder", 1),
    ]
    for call in calls:
        with pytest.raises(Closed) as caught:
            await call()
        assert caught.value.hint


async def test_whoever_waits_is_told_when_the_mesh_closes(worlds: Worlds) -> None:
    mesh = await worlds.open()
    coder = await mesh.agent("coder")
    waiting = asyncio.create_task(coder.receive())
    await until_async(lambda: mesh.node.core.kernel.state.mailboxes["default/coder"].waiters)
    await mesh.close()
    with pytest.raises(Closed):
        await waiting


async def test_a_graceful_stop_returns_deliveries_unburned(durable_worlds: Worlds) -> None:
    """Promise 6."""
    mesh = await durable_worlds.open()
    planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
    await planner.send("coder", 1)
    held = await coder.receive(timeout=5)
    assert held.attempt == 1
    await mesh.close()
    with pytest.raises(Closed):
        await held.ack()
    async with durable_worlds() as mesh:
        assert (await (await mesh.agent("coder")).receive(timeout=5)).attempt == 1


async def test_a_restart_after_a_crash_counts_the_attempt(durable_worlds: Worlds) -> None:
    """Promises 5 and 6: leases of in-process holders are void, the attempt counted."""
    if durable_worlds.remote:
        pytest.skip("a remote holder keeps its lease over a restart: tests/client/test_restart.py")
    mesh = await durable_worlds.open()
    planner, coder = await mesh.agent("planner"), await mesh.agent("coder", max_retries=1)
    await planner.send("coder", 1)
    stale = (await coder.receive(timeout=5)).token
    await mesh.close(force=True)  # nothing is returned: as after a crash
    async with durable_worlds() as mesh:
        coder = await mesh.agent("coder")
        again = await coder.receive(timeout=5)
        assert (again.attempt, again.token != stale) == (2, True)
        await mesh.close(force=True)
    async with durable_worlds() as mesh:
        coder = await mesh.agent("coder")
        assert await coder.receive_many(5) == []
        (letter,) = await mesh.dead_letters()
        assert (letter.reason, letter.attempts) == ("retries_exhausted", 2)


async def test_a_graceful_stop_lets_running_handlers_finish(durable_worlds: Worlds) -> None:
    mesh = await durable_worlds.open(workers=(1, 1))
    planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
    inside, go_on = threading.Event(), threading.Event()
    done: list[Any] = []

    def work(delivery: Any) -> None:
        inside.set()
        assert go_on.wait(10)
        done.append(delivery.content)

    await planner.send_many([{"to": "coder", "content": n, "key": "k"} for n in range(3)])
    coder.handle(work)
    await until_async(inside.is_set)
    closing = asyncio.create_task(mesh.close())
    await until_async(lambda: mesh.inner._pool._closing)
    go_on.set()
    await closing
    assert done[0] == 0
    async with durable_worlds() as mesh:
        left = await (await mesh.agent("coder")).receive_many(5)
        assert done + [each.content for each in left] == [0, 1, 2]
        assert {each.attempt for each in left} <= {1}


async def test_a_handler_that_does_not_finish_has_its_delivery_returned_unburned(
    durable_worlds: Worlds,
) -> None:
    """Promise 6."""
    mesh = await durable_worlds.open()
    planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
    inside, go_on = threading.Event(), threading.Event()

    def stuck(delivery: Any) -> None:
        inside.set()
        go_on.wait(10)

    async def stuck_awaited(delivery: Any) -> None:
        inside.set()
        await asyncio.sleep(10)

    await planner.send("coder", 1)
    coder.handle(stuck_awaited if durable_worlds.awaited else stuck)
    await until_async(inside.is_set)
    await mesh.close(timeout=0.05)
    go_on.set()
    async with durable_worlds() as mesh:
        delivery = await (await mesh.agent("coder")).receive(timeout=5)
        assert delivery.attempt == 1


async def test_delayed_messages_stay_delayed_over_a_stop(durable_worlds: Worlds) -> None:
    """Section 3: `delayed_on_stop` is `keep` by default: the journal has them."""
    async with durable_worlds() as mesh:
        planner, _ = await mesh.agent("planner"), await mesh.agent("coder")
        await planner.send("coder", 1, delay_ms=60_000)
    async with durable_worlds() as mesh:
        assert await mesh.delayed_count("coder") == 1


async def test_or_go_out_at_the_stop(durable_worlds: Worlds, caplog: pytest.LogCaptureFixture) -> None:
    """Section 3: `deliver`."""
    with caplog.at_level(logging.INFO, "relaymesh"):
        async with durable_worlds(delayed_on_stop="deliver") as mesh:
            planner, _ = await mesh.agent("planner"), await mesh.agent("coder")
            for n in range(3):
                await planner.send("coder", n, delay_ms=60_000 - n)
    assert "delivered 3 delayed messages at the stop" in caplog.text
    async with durable_worlds() as mesh:
        assert await mesh.delayed_count() == 0
        assert [each.content for each in await (await mesh.agent("coder")).receive_many(5)] == [0, 1, 2]


async def test_a_mesh_in_memory_delivers_them_at_the_stop(
    kind: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    worlds = Worlds(kind, "memory", tmp_path, SteppedClock())
    with caplog.at_level(logging.INFO, "relaymesh"):
        async with worlds() as mesh:
            planner, _ = await mesh.agent("planner"), await mesh.agent("coder")
            await planner.send("coder", 1, delay_ms=60_000)
    assert "delivered 1 delayed messages at the stop" in caplog.text


async def test_a_forced_exit_of_memory_says_how_many_it_dropped(
    kind: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Section 3."""
    mesh = await Worlds(kind, "memory", tmp_path, SteppedClock()).open()
    planner, _ = await mesh.agent("planner"), await mesh.agent("coder")
    for n in range(4):
        await planner.send("coder", n, delay_ms=60_000)
    await mesh.close(force=True)
    assert "forced exit: 4 delayed messages are dropped" in caplog.text


async def test_nothing_receipted_is_lost_over_a_forced_exit(durable_worlds: Worlds) -> None:
    """Promise 1."""
    mesh = await durable_worlds.open()
    planner, _ = await mesh.agent("planner"), await mesh.agent("coder")
    receipts = [await planner.send("coder", n) for n in range(20)]
    await mesh.close(force=True)
    async with durable_worlds() as mesh:
        back = await (await mesh.agent("coder")).receive_many(100)
        assert [(each.id, each.sequence) for each in back] == [(r.id, r.sequence) for r in receipts]


async def test_an_error_inside_the_block_still_closes_the_mesh(durable_worlds: Worlds) -> None:
    world = await durable_worlds.open()
    with pytest.raises(ZeroDivisionError):
        async with Uniform(world.inner):
            _ = 1 / 0
    with pytest.raises(Closed):
        await world.stats()
    await world.close()  # a remote one has a node, which goes on
    await (await durable_worlds.open()).close()


async def test_one_directory_has_one_mesh(durable_worlds: Worlds) -> None:
    async with durable_worlds():
        with pytest.raises(DirectoryInUse, match="is using"):
            await durable_worlds.open()


async def test_an_async_mesh_must_be_opened_first(tmp_path: Path) -> None:
    mesh = AsyncMesh(tmp_path)
    with pytest.raises(Closed, match="not open"):
        await mesh.agent("coder")
    await mesh.open()
    await mesh.close()
    with pytest.raises(Closed):
        await mesh.open()


def test_durability_is_said_once() -> None:
    with pytest.raises(InvalidSettings, match="durability"):
        Mesh(settings=MeshSettings(durability="memory"), durability="synced")


@pytest.mark.parametrize("served", [False, True])
async def test_a_cancelled_receive_gives_its_grant_back_unburned(tmp_path: Path, served: bool) -> None:
    """Promise 5: a grant whose receiver went away before getting it burns nothing."""
    async with Worlds("async", "synced", tmp_path / "mesh", SteppedClock())() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        box = mesh.node.core.kernel.state.mailboxes["default/coder"]
        waiting = asyncio.create_task(coder.receive())
        await until_async(lambda: box.waiters)
        journal = gated(mesh.inner)
        sending: list[asyncio.Task[Any]] = []
        if served:
            journal.gate.clear()
            sending.append(asyncio.create_task(planner.send("coder", 1)))
            await until_async(journal.waiting.is_set)  # granted, but not yet handed over
            assert box.leased == 1
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not box.waiters
        journal.gate.set()
        await (sending[0] if served else planner.send("coder", 1))
        delivery = await coder.receive(timeout=5)
        assert delivery.attempt == 1


async def test_a_receive_under_a_timeout_of_the_loop_loses_nothing(tmp_path: Path) -> None:
    """Whatever moment the cancellation meets, each message arrives exactly once, on its first attempt."""
    async with Worlds("async", "memory", tmp_path, SteppedClock())() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        got: list[Any] = []

        async def consume() -> None:
            while len(got) < 200:
                try:
                    async with asyncio.timeout(0.0005):
                        delivery = await coder.receive()
                except TimeoutError:
                    continue
                await delivery.ack()
                got.append((delivery.content, delivery.attempt))

        consuming = asyncio.create_task(consume())
        for n in range(200):
            await planner.send("coder", n)
            if n % 3 == 0:
                await asyncio.sleep(0.0005)
        await asyncio.wait_for(consuming, 20)
        assert sorted(got) == [(n, 1) for n in range(200)]


@pytest.mark.parametrize("after_grant", [False, True])
def test_an_interrupted_receive_gives_its_grant_back_unburned(after_grant: bool) -> None:
    """Promise 5, for Ctrl-C."""

    class Interrupting(ManualClock):
        def wait(self, latch: Latch, seconds: float | None) -> bool:
            if after_grant:
                planner.send("coder", 1)
            raise KeyboardInterrupt

    with Mesh(durability="memory", clock=Interrupting()) as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        with pytest.raises(KeyboardInterrupt):
            coder.receive(timeout=5)
        assert not node_of(mesh).core.kernel.state.mailboxes["default/coder"].waiters
        if not after_grant:
            planner.send("coder", 1)
        (delivery,) = coder.receive_many(5)
        assert delivery.attempt == 1


def test_ctrl_c_while_a_send_is_written_stays_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Mesh(tmp_path) as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        journal = node_of(mesh).core.journal
        sync = journal.sync

        def interrupted() -> int:
            monkeypatch.setattr(journal, "sync", sync)
            raise KeyboardInterrupt

        monkeypatch.setattr(journal, "sync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            planner.send("coder", 1, id="m")
    with Mesh(tmp_path) as mesh:  # the outcome was unknown; the same id settles it
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        planner.send("coder", 1, id="m")
        assert len(coder.receive_many(5)) == 1
