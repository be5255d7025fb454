"""Schedules over every session: put, look, fire, pause, remove; and every bad value refused."""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, datetime
from typing import Any

import pytest

from relaymesh import Conflict, InvalidPlan, InvalidValue, MeshError, NotFound, UnknownRecipient, Workflow
from tests.sdk.uniform import Uniform, World, Worlds

WORK = {
    "workflow": "work",
    "input": {"n": "integer"},
    "steps": {"one": {"agent": "a", "input": "${{ input.n }}"}},
}


async def fire(mesh: World, seconds: float) -> None:
    """Time passes, and housekeeping does what is due by then."""
    mesh.clock.advance(seconds)
    await asyncio.to_thread(mesh.node.schedules.tend, mesh.node.time.now())


async def test_a_schedule_sends_at_its_ticks(worlds: Worlds) -> None:
    async with worlds() as mesh:
        a = await mesh.agent("a")
        made = await mesh.put_schedule(
            "nightly",
            "0 7 * * *",
            tz="Europe/Berlin",
            to="a",
            content={"go": [1]},
            type="wake",
            priority=1,
            ttl=60,
        )
        assert (made.name, made.cron, made.tz, made.missed) == (
            "nightly",
            "0 7 * * *",
            "Europe/Berlin",
            "one",
        )
        assert made.next_at == datetime(2026, 1, 1, 6, tzinfo=UTC)
        assert (made.to, made.content, made.workflow, made.duplicate) == ("a", {"go": [1]}, None, False)
        await fire(mesh, 6 * 3_600)
        delivery = await a.receive(timeout=5)
        assert (delivery.content, delivery.type, delivery.sender) == ({"go": [1]}, "wake", "default/mesh")
        await delivery.ack()
        shown = await mesh.schedule("nightly")
        assert (shown.runs, shown.last_run, shown.last_tick) == (1, delivery.id, made.next_at)
        assert shown.next_at == datetime(2026, 1, 2, 6, tzinfo=UTC)
        assert shown.content == {"go": [1]}
        assert [(each.name, each.content) for each in await mesh.schedules()] == [("nightly", None)]


async def test_a_schedule_runs_a_workflow(worlds: Worlds) -> None:
    async with worlds() as mesh:
        a = await mesh.agent("a")
        await mesh.put_workflow(WORK)
        stored = await mesh.put_schedule("by-name", "0 1 * * *", workflow="work@1", input={"n": 1})
        whole = await mesh.put_schedule("whole", "0 2 * * *", workflow=WORK, input={"n": 2})
        assert (stored.workflow, stored.document, stored.input) == ("work@1", None, {"n": 1})
        assert (whole.workflow, whole.document, whole.input) == ("work", WORK, {"n": 2})
        for n, name in enumerate(("by-name", "whole"), 1):
            await fire(mesh, 3_600)
            delivery = await a.receive(timeout=5)
            assert delivery.content["input"] == n
            await delivery.finish(n * 10)
            task = Uniform(mesh.inner.task((await mesh.schedule(name)).last_run))
            assert await task.result(5) == n * 10


async def test_the_same_put_again_changes_nothing_and_another_needs_a_word(worlds: Worlds) -> None:
    async with worlds() as mesh:
        await mesh.agent("a")
        await mesh.put_schedule("s", "0 7 * * *", to="a", content=1)
        before = mesh.sequence
        assert (await mesh.put_schedule("s", "0 7 * * *", to="a", content=1)).duplicate
        assert mesh.sequence == before
        with pytest.raises(Conflict) as refused:
            await mesh.put_schedule("s", "0 8 * * *", to="a", content=1)
        assert "replace" in refused.value.hint
        other = await mesh.put_schedule("s", "0 8 * * *", to="a", content=1, replace=True)
        assert (other.cron, other.duplicate) == ("0 8 * * *", False)


async def test_pause_resume_and_remove(worlds: Worlds) -> None:
    async with worlds() as mesh:
        await mesh.agent("a")
        await mesh.put_schedule("s", "0 * * * *", to="a")
        paused = await mesh.pause_schedule("s")
        assert (paused.paused, paused.next_at) == (True, None)
        await fire(mesh, 5 * 3_600 + 60)
        resumed = await mesh.resume_schedule("s")
        assert (resumed.paused, resumed.runs, resumed.skipped) == (False, 0, 0)
        assert resumed.next_at == datetime(2026, 1, 1, 6, tzinfo=UTC)
        assert await mesh.remove_schedule("s") is True
        assert await mesh.remove_schedule("s") is False
        for call in (mesh.schedule, mesh.pause_schedule, mesh.resume_schedule):
            with pytest.raises(NotFound, match="'s'"):
                await call("s")


async def test_why_a_tick_waits_is_shown(worlds: Worlds) -> None:
    async with worlds() as mesh:
        await mesh.agent("a", capacity=1)
        await mesh.put_schedule("s", "0 * * * *", to="a", ttl=0)
        await fire(mesh, 3_600)
        await fire(mesh, 3_600)
        shown = await mesh.schedule("s")
        assert (shown.runs, shown.tries) == (1, 1)
        assert "MAILBOX_FULL" in shown.waiting


async def test_schedules_survive_a_restart(worlds: Worlds) -> None:
    if worlds.durability == "memory":
        pytest.skip("a mesh in memory keeps nothing")
    async with worlds() as mesh:
        await mesh.agent("a")
        for name in ("c", "a", "b"):
            await mesh.put_schedule(name, "0 7 * * *", to="a", missed="none")
        await mesh.pause_schedule("b")
    async with worlds() as mesh:
        assert [(each.name, each.paused) for each in await mesh.schedules()] == [
            ("a", False), ("b", True), ("c", False),
        ]  # fmt: skip


async def test_many_schedules_are_listed_whole(worlds: Worlds) -> None:
    async with worlds() as mesh:
        await mesh.agent("a")
        for number in range(120):
            await mesh.put_schedule(f"s{number:03}", "0 7 * * *", to="a")
        assert [each.name for each in await mesh.schedules()] == [f"s{number:03}" for number in range(120)]
        assert len(await mesh.schedules(limit=7)) == 7
        assert await mesh.schedules(limit=0) == []


# -- bad values

NAMES: list[Any] = [
    "",
    "a b",
    "a/b",
    "a@1",
    "-a",
    "x" * 129,
    "\x00",
    "ü",
    None,
    7,
    True,
    b"s",
    ["s"],
    {},
    object(),
]
BAD: list[dict[str, Any]] = [
    *[{"cron": cron} for cron in ("", "x", "* * * *", "0 * * * * *", "61 * * * *", "* " * 80)],
    *[{"cron": cron} for cron in (None, 7, b"* * * * *")],
    *[{"tz": tz} for tz in ("", "Mars/Base", "../etc/passwd", "x" * 99, None, 7, b"UTC", "\ud800")],
    *[{"missed": missed} for missed in ("", "all", "ONE", None, 1, True, b"one")],
    *[{"replace": replace} for replace in (None, 1, "yes")],
    *[{"owner": owner} for owner in ("", "a b", 7, b"a", "x/y/z")],
    *[{"to": to} for to in ("", "a b", 7, b"a", ["a"], object())],
    *[{"content": content} for content in (b"bytes", math.nan, object(), "\ud800", "x" * 20_000_000)],
    *[{"type": type} for type in (7, "", None, "heartbeat", "x" * 999)],
    *[{"priority": priority} for priority in (0, 6, "soon", 1.5, b"1")],
    *[{"ttl": ttl} for ttl in ("1", math.nan, math.inf, b"1")],
    *[{"key": key} for key in (7, "x" * 999, b"k")],
    {"delay_ms": 5}, {"id": "m"}, {"unknown": 1}, {"input": 1}, {"workflow": "work"}, {"to": None},
    {"to": None, "content": None}, {"to": None, "content": None, "type": "x"},
]  # fmt: skip
BAD_WORK: list[dict[str, Any]] = [
    *[{"workflow": workflow} for workflow in ("", "no such", "work@", "work@9", 7, b"work", (), None)],
    {"workflow": object()},
    {"workflow": {"workflow": "w"}}, {"workflow": {"workflow": "w", "steps": {"one": {"agent": "a b"}}}},
    *[{"input": input} for input in (None, {"n": "x"}, b"1", math.nan, object())],
    {"content": 1}, {"type": "x"}, {"to": "a"},
]  # fmt: skip


async def test_a_bad_name_is_refused(worlds: Worlds) -> None:
    async with worlds() as mesh:
        await mesh.agent("a")
        before = mesh.sequence
        for name in NAMES:
            calls = [
                mesh.put_schedule(name, "0 7 * * *", to="a"),
                mesh.schedule(name),
                mesh.pause_schedule(name),
                mesh.resume_schedule(name),
                mesh.remove_schedule(name),
            ]
            for call in calls:
                with pytest.raises(MeshError) as refused:
                    await call
                assert refused.value.hint
        assert mesh.sequence == before


async def test_a_bad_value_is_refused_and_nothing_is_kept(worlds: Worlds) -> None:
    async with worlds() as mesh:
        await mesh.agent("a")
        await mesh.put_workflow(WORK)
        before = mesh.sequence
        for good, bads in (
            ({"to": "a", "content": 1}, BAD),
            ({"workflow": "work", "input": {"n": 1}}, BAD_WORK),
        ):
            for bad in bads:
                fields = {"cron": "0 7 * * *", **good, **bad}
                with pytest.raises(MeshError) as refused:
                    await mesh.put_schedule("s", **fields)
                assert refused.value.hint, bad
        for limit in (-1, 1.5, math.nan, "5", True, 2**64):
            with pytest.raises(MeshError):
                await mesh.schedules(limit=limit)
        assert await mesh.schedules() == []
        assert mesh.sequence == before


async def test_errors_say_what_to_do(worlds: Worlds) -> None:
    async with worlds() as mesh:
        await mesh.agent("a")
        with pytest.raises(InvalidValue) as refused:
            await mesh.put_schedule("s", "0 7 * * *", tz="Europe/Berln", to="a")
        assert refused.value.hint == "did you mean Europe/Berlin?"
        with pytest.raises(UnknownRecipient, match="nobody"):
            await mesh.put_schedule("s", "0 7 * * *", to="nobody")
        with pytest.raises(NotFound, match="'relase'"):
            await mesh.put_schedule("s", "0 7 * * *", workflow="relase")
        with pytest.raises(InvalidPlan):
            await mesh.put_schedule("s", "0 7 * * *", workflow=Workflow("empty"))
