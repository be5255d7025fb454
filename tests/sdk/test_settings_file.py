"""Each setting of a node and of a worker has its effect: in a mesh that runs while its file changes."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relaymesh import AsyncMesh, Empty, Mesh, PayloadTooLarge
from relaymesh.errors import InvalidSettings
from relaymesh.node.settings_file import SETTINGS_FILE
from relaymesh.sdk import following
from relaymesh.testing import ManualMesh
from relaymesh.testing.mesh import next_renewal
from relaymesh.wire.settings import ReloadSettings
from tests.waiting import until, until_async

DAY_S = 86_400
POLL_S = 6
_numbers = itertools.count()


def write(path: Path, **values: Any) -> None:
    (path / SETTINGS_FILE).write_text(json.dumps(values))


def submitted(mesh: ManualMesh, **step: Any) -> Any:
    """A step of the agent `a`, of a new task."""
    agent = mesh.agent("a")
    mesh.submit({"workflow": "w", "steps": {"one": {"agent": "a", **step}}}, next(_numbers))
    return agent


def status_after_a_failure(mesh: ManualMesh) -> str:
    agent = mesh.agent("a")
    task = mesh.submit({"workflow": "w", "steps": {"one": {"agent": "a"}}}, next(_numbers))
    agent.receive(timeout=0).nack()
    status = task.show().step("one").status
    task.cancel()
    return status


def is_retried_in_two_seconds(mesh: ManualMesh) -> bool:
    agent = submitted(mesh)
    agent.receive(timeout=0).nack()
    mesh.advance(2)
    return ends_one(agent)


def is_retried_in_three_seconds_after_five_failures(mesh: ManualMesh) -> bool:
    agent = submitted(mesh, retry={"max_attempts": 10})
    for _ in range(5):
        agent.receive(timeout=0).nack()
        mesh.advance(40 if _ < 4 else 3)
    return ends_one(agent)


def ends_one(agent: Any) -> bool:
    try:
        agent.receive(timeout=0).ack()
    except Empty:
        return False
    return True


def is_reclaimed_ten_seconds_after_a_suspend(mesh: ManualMesh) -> bool:
    box = mesh.agent(f"box{next(_numbers)}", lease_ms=1_000, backoff_ms_base=0)
    mesh.agent("planner").send(box.name, 1, ttl=0)
    mesh._session.receive(box.address, 1, 0)
    mesh.clock.suspend(3_600)
    mesh.advance(10)
    return ends_one(box)


def next_renewal_ms(mesh: ManualMesh) -> int:
    with submitted(mesh).receive(timeout=0):
        return next_renewal(mesh._renewing) - mesh._node.time.now() - 1


def lease_ms(mesh: ManualMesh) -> int:
    delivery = submitted(mesh).receive(timeout=0)
    length: int = delivery._deadline - mesh._node.time.now()
    delivery.ack()
    return length


def takes_a_hundred_bytes(mesh: ManualMesh) -> bool:
    mesh.agent("b")
    try:
        mesh.agent("planner").send("b", "x" * 100)
    except PayloadTooLarge:
        return False
    return True


def is_in_the_tables_after_two_days(mesh: ManualMesh) -> bool:
    box = mesh.agent("box")
    sent = mesh.agent("planner").send("box", 1)
    box.receive(timeout=0).ack()
    mesh.advance(2 * DAY_S)
    mesh._node.catch_up(10)
    store = mesh._node.store
    assert store is not None
    store.purge(mesh._node.time.now())
    return bool(store.message(sent.id))


def key_is_known_after_two_days(mesh: ManualMesh) -> bool:
    agent, key = mesh.agent("a"), f"key{next(_numbers)}"
    workflow = {"workflow": "w", "steps": {"one": {"agent": "a"}}}
    mesh.submit(workflow, 1, key=key)
    agent.receive(timeout=0).ack()
    mesh.advance(2 * DAY_S)
    mesh._node.catch_up(10)
    mesh.advance(2)
    task = mesh.submit(workflow, 1, key=key)
    if not task.duplicate:
        task.cancel()
    return task.duplicate


def messages_out(mesh: ManualMesh) -> int:
    mesh.agent("a")
    steps = {"one": {"agent": "a", "for_each": "${{ input }}"}}
    task = mesh.submit({"workflow": "w", "steps": steps}, [[next(_numbers)]] * 120)
    count = mesh.stats().mailboxes["default/a"].pending
    task.cancel()
    mesh.advance(1)
    return count


EFFECTS: dict[str, tuple[Any, Callable[[ManualMesh], Any], Any, Any]] = {
    "max_attempts": (1, status_after_a_failure, "RETRYING", "DEAD_LETTER"),
    "base_backoff_ms": (50_000, is_retried_in_two_seconds, True, False),
    "max_backoff_ms": (2_000, is_retried_in_three_seconds_after_five_failures, False, True),
    "reclaim_scan_interval_ms": (60_000, is_reclaimed_ten_seconds_after_a_suspend, True, False),
    "lease_heartbeat_ms": (500, next_renewal_ms, 2_000, 500),
    "lease_timeout_ms": (60_000, lease_ms, 15_000, 60_000),
    "payload_max_bytes": (50, takes_a_hundred_bytes, True, False),
    "done_retention_days": (1, is_in_the_tables_after_two_days, True, False),
    "idempotency_ttl_days": (1, key_is_known_after_two_days, True, False),
    "queue_capacity": (3, messages_out, 100, 3),
}
"""A value, what to look at, and what is seen before and after."""


@pytest.mark.parametrize("name", EFFECTS)
def test_a_running_node_takes_it(name: str, tmp_path: Path) -> None:
    value, look, before, after = EFFECTS[name]
    with ManualMesh(tmp_path) as mesh:
        assert look(mesh) == before
        write(tmp_path, **{name: value})
        mesh.advance(POLL_S)
        assert look(mesh) == after


@pytest.mark.parametrize("name", EFFECTS)
def test_a_start_takes_it(name: str, tmp_path: Path) -> None:
    value, look, _, after = EFFECTS[name]
    write(tmp_path, **{name: value})
    with ManualMesh(tmp_path) as mesh:
        assert look(mesh) == after


def test_what_a_mailbox_or_a_plan_says_itself_goes_before_the_file(tmp_path: Path) -> None:
    write(tmp_path, base_backoff_ms=50_000, max_attempts=1, lease_timeout_ms=60_000, lease_heartbeat_ms=50)
    with ManualMesh(tmp_path) as mesh:
        agent = mesh.agent("a", backoff_ms_base=10, backoff_jitter=0.0)
        step = {"agent": "a", "retry": {"max_attempts": 2}, "lease": "20s"}
        mesh.submit({"workflow": "w", "steps": {"one": step}}, 1)
        first = agent.receive(timeout=0)
        assert first._deadline - mesh._node.time.now() == 20_000
        first.nack()
        mesh.advance(0.02)
        agent.receive(timeout=0).ack()


def test_a_task_keeps_what_it_was_submitted_with_over_a_restart(tmp_path: Path) -> None:
    write(tmp_path, queue_capacity=3, max_attempts=1)
    workflow = {"workflow": "w", "steps": {"one": {"agent": "a", "for_each": "${{ input }}"}}}
    with ManualMesh(tmp_path) as mesh:
        mesh.agent("a")
        task = mesh.submit(workflow, [1, 2, 3, 4, 5]).id
        mesh.checkpoint()
    (tmp_path / SETTINGS_FILE).unlink()
    with ManualMesh(tmp_path) as mesh:
        agent = mesh.agent("a")
        mesh.advance(1)
        assert mesh.stats().mailboxes["default/a"].pending == 3
        agent.receive(timeout=0).nack()
        assert "DEAD_LETTER" in {step.status for step in mesh.task(task).show().steps}


def test_a_wrong_file_leaves_everything_in_force_and_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, queue_capacity=3)
    with ManualMesh(tmp_path) as mesh:
        write(tmp_path, queue_capacity=5, max_atempts=1)
        mesh.advance(POLL_S)
        mesh.advance(POLL_S)
        assert messages_out(mesh) == 3
        assert caplog.text.count("there is no setting 'max_atempts'") == 1
        assert mesh._node.tuning.shown().problem
        [refused, start] = mesh._node.tuning.history(10)
        assert (refused.cause, refused.refused, refused.changed_fields) == ("changed", True, ["max_atempts"])
        assert (start.cause, start.changed_fields) == ("start", ["queue_capacity"])
        write(tmp_path, queue_capacity=5)
        mesh.advance(POLL_S)
        assert messages_out(mesh) == 5
        assert mesh._node.tuning.shown().problem == ""
    with ManualMesh(tmp_path) as mesh:  # the history is durable, and holds no value
        causes = [load.cause for load in mesh._node.tuning.history(10)]
        assert causes == ["start", "changed", "changed", "start"]
        kept = json.loads((tmp_path / "settings-history.json").read_text())
        assert {key for load in kept for key in load} == {"at", "cause", "changed_fields", "refused", "by"}


def test_nothing_starts_on_a_wrong_file(tmp_path: Path) -> None:
    write(tmp_path, max_attempts="3")
    with pytest.raises(InvalidSettings, match="max_attempts") as refused:
        ManualMesh(tmp_path)
    assert refused.value.hint
    write(tmp_path)
    ManualMesh(tmp_path).close()


# -- threads


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "FOLLOW_S", 0.02)


THREADED = ("thread_pool_core", "thread_pool_max", "llm_parallel_limit")


@pytest.mark.usefixtures("quick")
def test_thread_pool_max_is_how_many_handlers_run(tmp_path: Path) -> None:
    go, running = threading.Event(), []
    with Mesh(tmp_path) as mesh:
        box = mesh.agent("box")

        @box.handle
        def wait(delivery: Any) -> None:
            running.append(delivery.id)
            go.wait(20)

        mesh.agent("planner").send_many([{"to": "box", "content": number} for number in range(15)])
        until(lambda: len(running) == 8)
        write(tmp_path, thread_pool_max=11)
        mesh._session.execute(ReloadSettings())
        until(lambda: len(running) == 11)
        go.set()
        until(lambda: len(running) == 15)


@pytest.mark.usefixtures("quick")
def test_thread_pool_core_is_how_many_threads_there_are_at_first(tmp_path: Path) -> None:
    write(tmp_path, thread_pool_core=6)
    with Mesh(tmp_path) as mesh:
        box, done = mesh.agent("box"), threading.Event()
        box.handle(lambda _: done.set())
        until(lambda: mesh._pool._core == 6)
        mesh.agent("planner").send("box", 1)
        assert done.wait(20)
        assert mesh._pool.threads == 6
        write(tmp_path, thread_pool_core=7)
        mesh._session.execute(ReloadSettings())
        until(lambda: mesh._pool.threads == 7)


@pytest.mark.usefixtures("quick")
def test_what_a_program_chose_itself_goes_before_the_file(tmp_path: Path) -> None:
    write(tmp_path, thread_pool_core=6, lease_heartbeat_ms=500)
    with Mesh(tmp_path, workers=(1, 2)) as mesh:
        mesh.agent("box").handle(lambda _: None)
        until(lambda: mesh._renewer.beat.ms == 500)
        assert (mesh._pool._core, mesh._pool._max) == (1, 2)


@pytest.mark.usefixtures("quick")
def test_llm_parallel_limit_is_how_many_model_calls_run(tmp_path: Path) -> None:
    go, running = threading.Event(), []

    def call(mesh: Mesh) -> None:
        with mesh.model_call():
            running.append(1)
            go.wait(20)

    with Mesh(tmp_path) as mesh:
        threads = [threading.Thread(target=call, args=(mesh,)) for _ in range(7)]
        for thread in threads:
            thread.start()
        until(lambda: len(running) == 4)
        write(tmp_path, llm_parallel_limit=6)
        mesh._session.execute(ReloadSettings())
        until(lambda: len(running) == 6)
        go.set()
        for thread in threads:
            thread.join(20)
        assert len(running) == 7


@pytest.mark.usefixtures("quick")
async def test_an_async_mesh_follows_too(tmp_path: Path) -> None:
    go, running, calls = asyncio.Event(), [], []
    async with AsyncMesh(tmp_path) as mesh:
        box = await mesh.agent("box")

        async def wait(delivery: Any) -> None:
            running.append(delivery.id)
            async with mesh.model_call():
                calls.append(1)
                await go.wait()

        box.handle(wait)
        planner = await mesh.agent("planner")
        await planner.send_many([{"to": "box", "content": number} for number in range(14)])

        await until_async(lambda: (len(running), len(calls)) == (8, 4))
        write(tmp_path, thread_pool_max=11, llm_parallel_limit=6)
        await mesh._session.execute(ReloadSettings())
        await until_async(lambda: (len(running), len(calls)) == (11, 6))
        write(tmp_path, thread_pool_max=4, llm_parallel_limit=1)
        await mesh._session.execute(ReloadSettings())
        await until_async(lambda: mesh._pool._max == 4)
        go.set()
        await until_async(lambda: (len(running), len(calls)) == (14, 14))
