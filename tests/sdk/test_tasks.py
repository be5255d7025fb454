"""Tasks over every session: submit, results, failures, cancels."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from relaymesh import Conflict, Empty, Failed, LeaseLost, MeshError, NoAnswer, NotFound, TaskFailed
from tests.sdk.uniform import Uniform, Worlds

CHAIN: dict[str, Any] = {
    "workflow": "chain",
    "steps": {
        "one": {"agent": "a", "input": 1},
        "two": {"agent": "b", "needs": ["one"], "input": {"from": "${{ steps.one.output }}"}},
    },
}
ALONE: dict[str, Any] = {"workflow": "alone", "steps": {"one": {"agent": "a"}}}


async def test_a_chain_runs_to_its_result(worlds: Worlds) -> None:
    async with worlds() as mesh:
        a, b = await mesh.agent("a"), await mesh.agent("b")
        task = Uniform(await mesh.submit(CHAIN, {"x": 1}))
        with pytest.raises(NoAnswer):
            await task.result(0.05)
        first = await a.receive(timeout=5)
        await first.report("half done")
        assert (await task.show()).step("one").progress == "half done"
        await first.finish({"n": 7})
        assert (await task.show()).step("one").progress == ""
        second = await b.receive(timeout=5)
        await second.finish("done")
        assert await task.result(5) == "done"
        assert [each.id for each in await mesh.tasks()] == [task.id]
        assert await mesh.tasks(workflow="other") == []
        assert await mesh.tasks(status="RUNNING") == []


async def test_the_same_submit_is_the_same_task(worlds: Worlds) -> None:
    async with worlds() as mesh:
        await mesh.agent("a")
        first = await mesh.submit(ALONE, 1, key="k")
        again = await mesh.submit(ALONE, 1, key="k")
        assert (again.id, first.duplicate, again.duplicate) == (first.id, False, True)
        with pytest.raises(Conflict):
            await mesh.submit(ALONE, 2, key="k")


async def test_a_task_that_ended_is_found_after_a_restart_and_its_repeated_submit_runs_nothing(
    worlds: Worlds,
) -> None:
    if worlds.durability == "memory":
        pytest.skip("a mesh in memory ends with its process")
    async with worlds() as mesh:
        a = await mesh.agent("a")
        first = Uniform(await mesh.submit(ALONE, 1))
        await (await a.receive(timeout=5)).finish("done")
        assert await first.result(5) == "done"
    async with worlds() as mesh:
        a = await mesh.agent("a")
        again = Uniform(await mesh.submit(ALONE, 1))
        assert (again.id, again.duplicate) == (first.id, True)
        assert await again.result(5) == "done"
        assert (await again.show()).step("one").status == "SUCCESS"
        with pytest.raises(Empty):
            await a.receive(timeout=0)


async def test_a_failed_step_fails_the_task(worlds: Worlds) -> None:
    async with worlds() as mesh:
        a = await mesh.agent("a")
        task = Uniform(await mesh.submit(ALONE))
        await (await a.receive(timeout=5)).fail("no such file", code="missing")
        with pytest.raises(TaskFailed, match="FAILED"):
            await task.result(5)
        raised = Uniform(await mesh.submit(ALONE, 2))
        async with await a.receive(timeout=5):
            raise Failed("it cannot be done")
        assert await raised.status() == "FAILED"


@pytest.mark.parametrize("hard", [False, True])
async def test_a_cancelled_task(worlds: Worlds, hard: bool) -> None:
    async with worlds() as mesh:
        a = await mesh.agent("a")
        task = Uniform(await mesh.submit(ALONE))
        delivery = await a.receive(timeout=5)
        await task.cancel("not wanted", hard=hard)
        if hard:
            with pytest.raises(LeaseLost):
                await delivery.finish(1)
        else:
            await delivery.finish(1)
        assert await task.status() == "CANCELLED"


async def test_a_late_result_counts_until_another_holder_has_the_step(worlds: Worlds) -> None:
    async with worlds() as mesh:
        a = await mesh.agent("a", lease_ms=1000)
        task = Uniform(await mesh.submit(ALONE))
        delivery = await a.receive(timeout=5)
        await mesh.pass_time(1)
        await delivery.finish("late")
        assert await task.result(5) == "late"
        await mesh.submit(ALONE, 2)
        delivery = await a.receive(timeout=5)
        await mesh.pass_time(60)
        other = await a.receive(timeout=5)
        with pytest.raises(LeaseLost):
            await delivery.finish("too late")
        await other.finish("in time")


async def test_an_unknown_task_is_not_found(worlds: Worlds) -> None:
    async with worlds() as mesh:
        task = Uniform(mesh.inner.task("nothing"))
        with pytest.raises(NotFound):
            await task.show()
        with pytest.raises(NotFound):
            await task.result(1)
        with pytest.raises(NotFound):
            await task.cancel()


async def test_a_watch_misses_no_change_of_the_same_millisecond(worlds: Worlds) -> None:
    async with worlds() as mesh:
        a = await mesh.agent("a")
        task = Uniform(await mesh.submit(ALONE))
        states = task.inner.watch()
        assert (await _next(states)).status == "PENDING"
        delivery = await a.receive(timeout=5)
        assert (await _next(states)).status == "RUNNING"
        await delivery.report("half done")
        assert (await _next(states)).step("one").progress == "half done"
        await delivery.nack("no", retryable=False)
        assert (await _next(states)).status == "DEAD_LETTER"


async def _next(states: Any) -> Any:
    found = anext(states) if hasattr(states, "__anext__") else asyncio.to_thread(next, states)
    return await asyncio.wait_for(found, 10)


async def test_a_step_by_capability_waits_for_an_agent_that_has_it(worlds: Worlds) -> None:
    by_capability = {"workflow": "any", "steps": {"one": {"agent": {"capability": "code"}}}}
    async with worlds() as mesh:
        task = Uniform(await mesh.submit(by_capability))
        assert (await task.show()).step("one").waiting == (
            "no agent with the capability 'code' can take a step now"
        )
        coder = await mesh.agent("coder")
        await coder.register(capabilities=["text", "code"])
        await mesh.pass_time(6)  # a waiting step is tried again within 5 s
        await (await coder.receive(timeout=10)).finish("done")
        assert await task.result(5) == "done"
        assert (await task.show()).step("one").agent == "coder"


async def test_a_task_that_memory_forgot_is_found_in_the_store(worlds: Worlds) -> None:
    async with worlds() as mesh:
        a = await mesh.agent("a")
        first = await mesh.submit(ALONE, 1)
        await (await a.receive(timeout=5)).finish("done")
        await asyncio.to_thread(mesh.node.catch_up, 10)
        applied = None if mesh.node.projector is None else mesh.node.core.synced
        mesh.node.core.read(lambda kernel: kernel.state.board.forget(applied, 0))
        again = await mesh.submit(ALONE, 1)
        assert (again.id, again.duplicate) == (first.id, True)
        assert not (await mesh.submit(ALONE, 2)).duplicate


async def test_the_story_of_a_task_tells_every_attempt_and_who_made_each_outcome(worlds: Worlds) -> None:
    async with worlds() as mesh:
        a, b = await mesh.agent("a"), await mesh.agent("b")
        task = Uniform(await mesh.submit(CHAIN))
        await (await a.receive(timeout=5)).nack("the model is busy", retryable=True)
        await mesh.pass_time(60)
        lost = await a.receive(timeout=5)
        await mesh.pass_time(60)  # its holder is silent for longer than the lease
        held = await a.receive(timeout=5)
        with pytest.raises(LeaseLost):
            await lost.finish("too late")
        await held.finish(1)
        await (await b.receive(timeout=5)).fail("no such file", code="missing")
        assert await task.status() == "FAILED"
        story = await task.story()
    told = [(event.event, event.step, event.status or event.code) for event in story]
    if worlds.durability == "memory":
        assert told == [("submitted", "", ""), ("ended", "", "FAILED")]
        return
    assert told == [
        ("submitted", "", ""),
        ("sent", "one", ""),
        ("granted", "one", ""),
        ("failed", "one", "other"),
        ("granted", "one", ""),
        ("abandoned", "one", "timeout"),
        ("granted", "one", ""),
        ("step_ended", "one", "SUCCESS"),
        ("sent", "two", ""),
        ("granted", "two", ""),
        ("step_ended", "two", "FAILED"),
        ("ended", "", "FAILED"),
    ]
    tokens = [event.token for event in story if event.event == "granted" and event.step == "one"]
    (ended,) = [event for event in story if event.event == "step_ended" and event.step == "one"]
    assert (ended.token, len(set(tokens))) == (tokens[-1], 3)
    assert [event.sequence for event in story] == sorted(event.sequence for event in story)


async def test_a_result_that_is_no_json_is_refused_and_the_step_is_still_held(worlds: Worlds) -> None:
    async with worlds() as mesh:
        a = await mesh.agent("a")
        task = Uniform(await mesh.submit(ALONE))
        delivery = await a.receive(timeout=5)
        for bad in (object(), float("nan"), b"bytes", "\ud800", {1: object()}):
            with pytest.raises(MeshError):
                await delivery.finish(bad)
        await delivery.finish("good")
        assert await task.result(5) == "good"
        with pytest.raises(NotFound, match="has no step 'two'"):
            (await task.show()).step("two")
