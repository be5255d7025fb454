"""Delayed messages: never early, in send order, forced out on demand."""

from __future__ import annotations

import asyncio
import logging
import math
from datetime import timedelta

import pytest

from relaymesh.testing import ManualMesh
from tests.sdk.uniform import START, Worlds
from tests.waiting import until_async

FAR_BELOW = pytest.param(-(10**5000), id="far below")  # too long to be printed
FAR_AHEAD = pytest.param(10**5000, id="far ahead")


async def test_a_delayed_message_is_not_visible_before_its_time(worlds: Worlds) -> None:
    """Promise 8."""
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        receipt = await planner.send("coder", 1, delay_ms=5000)
        assert receipt.scheduled_at == START + timedelta(seconds=5)
        await mesh.pass_time(4.999)
        assert await coder.receive_many(1) == []
        await mesh.pass_time(0.001)
        assert (await coder.receive(timeout=5)).content == 1


async def test_somebody_who_waits_gets_it_when_it_is_due(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        await planner.send("coder", 1, delay_ms=60_000)
        waiting = asyncio.create_task(coder.receive())
        await until_async(lambda: mesh.node.core.kernel.state.mailboxes["default/coder"].waiters)
        await mesh.pass_time(60)
        assert (await waiting).content == 1


async def test_equal_times_keep_the_order_of_sending(worlds: Worlds) -> None:
    """Promise 8."""
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        for n in range(5):
            await planner.send("coder", n, delay_ms=100)
        await mesh.pass_time(0.1)
        assert [each.content for each in await coder.receive_many(10)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("delay", [-1, -0.5, -math.inf, math.nan, "x", True, [], {}, object(), FAR_BELOW])
async def test_an_odd_delay_counts_as_none_and_the_receipt_says_so(worlds: Worlds, delay: object) -> None:
    """Promise 8."""
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        receipt = await planner.send("coder", 1, delay_ms=delay)
        assert receipt.scheduled_at is None
        assert "counts as 0" in receipt.notes[0]
        assert (await coder.receive(timeout=5)).content == 1


@pytest.mark.parametrize("delay", [0, 0.0, None])
async def test_no_delay_is_no_note(worlds: Worlds, delay: object) -> None:
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        assert (await planner.send("coder", 1, delay_ms=delay)).notes == ()
        assert len(await coder.receive_many(1)) == 1


@pytest.mark.parametrize("delay", [math.inf, 1e300, 10**400, FAR_AHEAD, 1 << 53])
async def test_a_huge_delay_is_accepted_and_its_shown_time_saturates(worlds: Worlds, delay: float) -> None:
    """Section 3."""
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        receipt = await planner.send("coder", 1, delay_ms=delay)
        assert receipt.scheduled_at is not None
        assert receipt.scheduled_at.year == 9999
        assert "cut to" in receipt.notes[0]
        assert await mesh.delayed_count() == 1
        assert await coder.receive_many(1) == []


async def test_the_delayed_are_counted_by_recipient(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, _, _ = [await mesh.agent(name) for name in ("planner", "coder", "tester")]
        for to in ("coder", "coder", "tester"):
            await planner.send(to, 1, delay_ms=1000)
        await planner.send("coder", 1)
        assert await mesh.delayed_count() == 3
        assert [await mesh.delayed_count(name) for name in ("coder", "tester", "planner")] == [2, 1, 0]
        await mesh.pass_time(1)
        assert await mesh.delayed_count() == 0


def test_deliver_due_answers_how_many_arrived() -> None:
    with ManualMesh() as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        for n in range(3):
            planner.send("coder", n, delay_ms=1000 + n)
        assert mesh.deliver_due() == 0
        mesh.clock.advance(1.001)
        assert (mesh.deliver_due(), mesh.deliver_due()) == (2, 0)
        assert (mesh.delayed_count(), len(coder.receive_many(5))) == (1, 2)


async def test_force_deliver_delayed_brings_them_in_send_order_and_says_so(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        for n, delay in enumerate((9000, 3000, 6000)):
            await planner.send("coder", n, id=f"m{n}", delay_ms=delay)
        with caplog.at_level(logging.INFO, "relaymesh.delivery"):
            assert await mesh.force_deliver_delayed() == 3
        assert [each.content for each in await coder.receive_many(10)] == [0, 1, 2]
        lines = [
            record for record in caplog.records if record.message.startswith("delayed message delivered")
        ]
        assert [(line.id, line.to, line.forced) for line in lines] == [  # type: ignore[attr-defined]
            (f"m{n}", "default/coder", True) for n in range(3)
        ]
        assert [line.delay_drift_ms for line in lines] == [-9000, -3000, -6000]  # type: ignore[attr-defined]
        assert lines[0].scheduled_at == "2026-01-01T00:00:09.000Z"  # type: ignore[attr-defined]
        assert lines[0].actual_delivery_at == "2026-01-01T00:00:00.000Z"  # type: ignore[attr-defined]
        (total,) = [record for record in caplog.records if record.message.startswith("forced all delayed")]
        assert total.count == 3  # type: ignore[attr-defined]


async def test_force_deliver_delayed_may_mean_one_agent(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder, _ = [await mesh.agent(name) for name in ("planner", "coder", "tester")]
        for to in ("coder", "tester"):
            await planner.send(to, 1, delay_ms=1000)
        assert await mesh.force_deliver_delayed("coder") == 1
        assert await mesh.delayed_count("tester") == 1
        assert len(await coder.receive_many(10)) == 1


async def test_a_late_arrival_is_logged_with_its_drift(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        with caplog.at_level(logging.INFO, "relaymesh.delivery"):
            await planner.send("coder", 1, delay_ms=1000)
            mesh.clock.advance(1.25)
            await coder.receive(timeout=5)
        (line,) = [record for record in caplog.records if "delayed message delivered" in record.message]
        assert (line.delay_drift_ms, line.forced) == (250, False)  # type: ignore[attr-defined]


async def test_a_delayed_message_joins_its_lane_when_due(worlds: Worlds) -> None:
    """Promise 3."""
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        await planner.send("coder", "delayed", key="k", delay_ms=1000)
        await planner.send("coder", "first", key="k")
        await mesh.pass_time(1)
        await planner.send("coder", "last", key="k")
        assert [each.content for each in await coder.receive_many(5)] == ["first", "delayed", "last"]


async def test_the_delayed_are_back_after_a_restart(durable_worlds: Worlds) -> None:
    async with durable_worlds() as mesh:
        planner, _ = await mesh.agent("planner"), await mesh.agent("coder")
        await planner.send("coder", 1, delay_ms=10_000)
        await planner.send("coder", 0, delay_ms=1_000)
    durable_worlds.clock.advance(5)
    async with durable_worlds() as mesh:
        coder = await mesh.agent("coder")
        assert [each.content for each in await coder.receive_many(5)] == [0]
        assert await mesh.delayed_count("coder") == 1
        await mesh.pass_time(5)
        assert [each.content for each in await coder.receive_many(5)] == [1]
