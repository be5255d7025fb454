"""Circuit breaker and rate limit as users meet them."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from relaymesh import Empty, InvalidSettings, Mesh
from relaymesh.testing import ManualMesh
from tests.sdk.uniform import Worlds

CODER = "default/coder"


def sick(mesh: ManualMesh, ran: list[Any], **options: Any) -> None:
    """A coder that fails as long as `ran` holds no "well"; twenty messages wait for it."""
    coder = mesh.agent("coder", max_retries=20, backoff_ms_base=0, breaker_failures=5, **options)

    @coder.handle
    def work(delivery: Any) -> None:
        ran.append(delivery.content)
        if "well" not in ran:
            raise RuntimeError("the model does not answer")

    mesh.agent("planner").send_many([{"to": "coder", "content": n, "key": "one"} for n in range(20)])


def test_a_sick_handler_is_left_alone_and_tried_again_later(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "relaymesh.alert")
    ran: list[Any] = []
    with ManualMesh() as mesh:
        sick(mesh, ran)
        mesh.advance(29)
        assert ran == [0] * 5
        stats = mesh.stats().mailboxes[CODER]
        opened_at = (mesh.now - timedelta(seconds=29)).strftime("%Y-%m-%dT%H:%M")
        assert stats.breaker.startswith(f"open until {opened_at}")
        assert stats.breaker.endswith(": 5 deliveries failed in a row")
        assert (stats.breaker_opened, stats.recent_retry_rate) == (1, 1.0)
        mesh.advance(61)
        assert ran == [0] * 7
        ran.append("well")
        mesh.advance(600)
        assert ran[8:] == list(range(20))
        assert mesh.stats().mailboxes[CODER].breaker == "closed"
        assert mesh.dead_letters() == []
    alerts = [record for record in caplog.records if record.name == "relaymesh.alert"]
    opened = alerts[0]
    assert opened.levelname == "WARNING"
    assert "mailbox=default/coder breaker=open why=5 deliveries failed in a row" in opened.getMessage()
    assert "retry_rate=1.0 threshold=0.05" in opened.getMessage()
    assert [getattr(record, "breaker", "") for record in alerts] == [
        *("open", "half-open", "open", "half-open", "open", "half-open", "closed"),
    ]


def test_after_a_restart_it_is_closed(tmp_path: Path) -> None:
    ran: list[Any] = []
    with ManualMesh(tmp_path) as mesh:
        sick(mesh, ran)
        mesh.advance(1)
        assert mesh.stats().mailboxes[CODER].breaker != "closed"
    with ManualMesh(tmp_path, clock=mesh.clock) as mesh:
        stats = mesh.stats().mailboxes[CODER]
        assert (stats.breaker, stats.breaker_opened, stats.pending) == ("closed", 0, 20)
        assert mesh.agent("coder").receive(timeout=0).attempt == 6


def test_a_rate_limited_handler_runs_so_often() -> None:
    moments: list[Any] = []
    with ManualMesh() as mesh:
        coder = mesh.agent("coder", rate_per_s=2, rate_burst=1)

        @coder.handle
        def work(delivery: Any) -> None:
            moments.append(mesh.now)

        mesh.agent("planner").send_many([{"to": "coder", "content": n} for n in range(10)])
        start = mesh.now
        mesh.advance(60)
        assert [(moment - start).total_seconds() for moment in moments] == [n / 2 for n in range(10)]
        assert mesh.stats().mailboxes[CODER].rate_limited == 9


def test_a_question_to_a_limited_agent_waits_for_its_turn() -> None:
    with ManualMesh() as mesh:
        planner, coder = mesh.agent("planner", rate_per_s=0.01), mesh.agent("coder", rate_per_s=0.1)

        @coder.handle
        def work(delivery: Any) -> None:
            coder.answer(delivery, delivery.content + 1)

        start = mesh.now
        assert [planner.ask("coder", n).content for n in range(3)] == [1, 2, 3]
        assert mesh.now - start == timedelta(seconds=20)


async def test_a_hand_opens_and_closes_it(worlds: Worlds) -> None:
    async with worlds() as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        await coder.open_breaker()
        await planner.send("coder", "hello")
        with pytest.raises(Empty):
            await coder.receive(timeout=0)
        stats = (await mesh.stats()).mailboxes[CODER]
        assert stats.breaker == "open until closed: by hand"
        assert (stats.pending, stats.delivered) == (1, 0)
        receiving = asyncio.create_task(coder.receive(timeout=30))
        await asyncio.sleep(0.05)
        assert not receiving.done()
        await coder.close_breaker()
        assert (await receiving).content == "hello"
        assert (await mesh.stats()).mailboxes[CODER].breaker == "closed"


async def test_a_subscription_has_its_own_limits(worlds: Worlds) -> None:
    async with worlds() as mesh:
        slow = await mesh.subscribe("order.*", "slow", rate_per_s=0.5, rate_burst=2)
        fast = await mesh.subscribe("order.*", "fast")
        for n in range(5):
            await mesh.publish("order.created", n)
        assert len(await fast.receive_many(9)) == 5
        assert len(await slow.receive_many(9)) == 2
        assert await slow.receive_many(9) == []
        assert (await mesh.stats()).mailboxes["default/order.*:slow"].rate_limited == 1


def test_whoever_waits_in_real_time_is_woken_for_a_token() -> None:
    with Mesh(durability="memory") as mesh:
        coder = mesh.agent("coder", rate_per_s=50, rate_burst=1)
        mesh.agent("planner").send_many([{"to": "coder", "content": n} for n in range(10)])
        assert [coder.receive(timeout=5).content for _ in range(10)] == list(range(10))
        assert mesh.stats().mailboxes[CODER].rate_limited == 9


async def test_a_setting_that_makes_no_sense_is_refused(worlds: Worlds) -> None:
    async with worlds() as mesh:
        with pytest.raises(InvalidSettings, match="rate_per_s"):
            await mesh.agent("coder", rate_per_s=-1)
        with pytest.raises(InvalidSettings, match="breaker_retry_rate"):
            await mesh.agent("coder", breaker_retry_rate=5)


@pytest.mark.parametrize("rate", [3, 3.0])
async def test_a_whole_number_is_a_rate(worlds: Worlds, rate: float) -> None:
    async with worlds() as mesh:
        coder = await mesh.agent("coder", rate_per_s=rate)
        planner = await mesh.agent("planner")
        await planner.send_many([{"to": "coder", "content": n} for n in range(9)])
        assert len(await coder.receive_many(9)) == 3
