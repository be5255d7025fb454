"""The commit: shared by all who wait, and nothing leaves before its marks."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from relaymesh import AsyncMesh, LeaseLost, Mesh, MeshSettings
from tests.node.doubles import LIGHT, GatedJournal, gated
from tests.node.inside import node_of
from tests.waiting import until

SETTINGS = MeshSettings(journal=LIGHT, idle_sync_ms=60_000)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as pool:
        yield pool


def never_while_closed(journal: GatedJournal, *futures: Future[Any]) -> None:
    assert journal.waiting.wait(5)
    time.sleep(0.02)
    assert not any(future.done() for future in futures)
    journal.gate.set()


def test_many_threads_share_one_sync(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    with Mesh(tmp_path, settings=SETTINGS) as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        core = node_of(mesh).core
        journal = gated(mesh)
        journal.gate.clear()
        through = core.written + 16
        futures = [threads.submit(planner.send, "coder", n) for n in range(16)]
        until(lambda: core.kernel.state.sequence == through)
        assert not any(future.done() for future in futures)
        journal.gate.set()
        assert len({future.result(5).sequence for future in futures}) == 16
        assert journal.syncs <= 2  # the one under way, and one for all who came meanwhile
        assert len(coder.receive_many(100)) == 16


def test_tasks_share_one_sync_too(tmp_path: Path) -> None:
    async def run() -> None:
        async with AsyncMesh(tmp_path, settings=SETTINGS) as mesh:
            planner, _ = await mesh.agent("planner"), await mesh.agent("coder")
            journal = gated(mesh, sync_s=0.005)
            await asyncio.gather(*[planner.send("coder", n) for n in range(500)])
            assert journal.syncs <= 10

    asyncio.run(run())


def test_no_receipt_leaves_before_its_sync(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    """Promise 1."""
    with Mesh(tmp_path, settings=SETTINGS) as mesh:
        planner, _ = mesh.agent("planner"), mesh.agent("coder")
        journal = gated(mesh)
        journal.gate.clear()
        first = threads.submit(planner.send, "coder", 1, id="m")
        assert journal.waiting.wait(5)
        again = threads.submit(planner.send, "coder", 1, id="m")  # a duplicate saw what is not durable yet
        published = threads.submit(mesh.publish, "nobody", 1)
        never_while_closed(journal, first, again, published)
        assert first.result(5).sequence == again.result(5).sequence
        published.result(5)


def test_no_delivery_leaves_before_its_message_is_synced(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    with Mesh(tmp_path, settings=SETTINGS) as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        box = node_of(mesh).core.kernel.state.mailboxes["default/coder"]
        journal = gated(mesh)
        waiting = threads.submit(coder.receive, 10)
        until(lambda: box.waiters)
        journal.gate.clear()
        sending = threads.submit(planner.send, "coder", 1)
        until(lambda: box.leased == 1)  # decided
        never_while_closed(journal, waiting, sending)
        assert waiting.result(5).content == 1


def test_nor_on_an_event_loop(tmp_path: Path) -> None:
    async def run() -> None:
        async with AsyncMesh(tmp_path, settings=SETTINGS) as mesh:
            planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
            journal = gated(mesh)
            waiting = asyncio.create_task(coder.receive())
            await asyncio.sleep(0)
            journal.gate.clear()
            sending = asyncio.create_task(planner.send("coder", 1))
            await asyncio.to_thread(journal.waiting.wait, 5)
            await asyncio.sleep(0.02)
            assert not waiting.done()
            assert not sending.done()
            began = time.perf_counter()
            await mesh.stats()  # the loop is not blocked by the disk
            assert time.perf_counter() - began < 1
            journal.gate.set()
            assert (await waiting).content == 1
            await sending

    asyncio.run(run())


@pytest.mark.parametrize("end", ["dead_letter", "answer", "durable ack", "at_most_once"])
def test_what_must_not_be_forgotten_answers_after_the_sync(
    tmp_path: Path, threads: ThreadPoolExecutor, end: str
) -> None:
    """Promise 7: every settle that sends or dead-letters, and a durable ack; promise 13 for at most once."""
    with Mesh(tmp_path, settings=SETTINGS) as mesh:
        planner = mesh.agent("planner")
        once = end == "at_most_once"
        coder = mesh.agent("coder", delivery_semantics="at_most_once" if once else "at_least_once")
        planner.send("coder", 1)
        journal = gated(mesh)
        if once:
            journal.gate.clear()
            never_while_closed(journal, threads.submit(coder.receive, 10))
            return
        delivery = coder.receive(timeout=5)
        journal.gate.clear()
        acts: dict[str, Any] = {
            "dead_letter": lambda: delivery.nack("no", retryable=False),
            "answer": lambda: coder.answer(delivery, 1),
            "durable ack": lambda: delivery.ack(durable=True),
        }
        never_while_closed(journal, threads.submit(acts[end]))


def test_an_ack_answers_after_the_write(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    """Promise 7; so does the next delivery: it needs its grant written, and its message is synced."""
    with Mesh(tmp_path, settings=SETTINGS) as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        planner.send_many([{"to": "coder", "content": n} for n in range(2)])
        journal = gated(mesh)
        journal.gate.clear()
        first = coder.receive(timeout=5)
        first.ack()
        assert coder.receive(timeout=5).content == 1
        first._settled = False
        with pytest.raises(LeaseLost):
            first.ack()
        assert not journal.waiting.is_set()
        journal.gate.set()


@pytest.mark.parametrize("durability", ["synced", "batched"])
def test_what_nobody_waits_for_is_synced_within_a_tenth_of_a_second(tmp_path: Path, durability: Any) -> None:
    """Promise 7: an idle sync follows an ack within 100 ms; promise 1: `batched` loses no more than that."""
    with Mesh(tmp_path, settings=MeshSettings(durability=durability, journal=LIGHT)) as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        core = node_of(mesh).core
        worst = 0.0
        for n in range(5):
            planner.send("coder", n)
            coder.receive(timeout=5).ack()
            began = time.monotonic()
            until(lambda: core.synced == core.kernel.state.sequence)
            worst = max(worst, time.monotonic() - began)
        assert worst < 0.1 + 0.15  # the rest is for a busy machine


def test_on_an_event_loop_too(tmp_path: Path) -> None:
    async def run() -> None:
        async with AsyncMesh(tmp_path, settings=MeshSettings(journal=LIGHT)) as mesh:
            planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
            core = node_of(mesh).core
            for n in range(3):
                await planner.send("coder", n)
                await (await coder.receive(timeout=5)).ack()
                await asyncio.to_thread(until, lambda: core.synced == core.kernel.state.sequence, 0.25)

    asyncio.run(run())


def test_grants_and_acks_are_written_by_the_loop_itself(tmp_path: Path) -> None:
    """No other thread is woken for a few kilobytes that go into memory. What must be synced is its work."""

    async def run() -> None:
        async with AsyncMesh(tmp_path, settings=MeshSettings(idle_sync_ms=60_000)) as mesh:
            planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
            journal, core = gated(mesh), node_of(mesh).core
            await planner.send("coder", 1)
            assert journal.appended_by != {threading.get_ident()}
            await asyncio.to_thread(until, lambda: not core._syncing.locked())  # its sync is just over
            journal.appended_by.clear()
            delivery = await coder.receive(timeout=5)
            assert core.written == core.kernel.state.sequence
            await delivery.ack()
            assert core.written == core.kernel.state.sequence
            assert journal.appended_by == {threading.get_ident()}
            await planner.send("coder", 2)
            assert journal.appended_by != {threading.get_ident()}

    asyncio.run(run())


def test_but_not_beside_a_sync(tmp_path: Path) -> None:
    """A disk that takes its time must not stop the loop."""

    async def run() -> None:
        async with AsyncMesh(tmp_path, settings=MeshSettings(idle_sync_ms=60_000)) as mesh:
            planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
            await planner.send("coder", 1)
            delivery = await coder.receive(timeout=5)
            journal = gated(mesh)
            journal.gate.clear()
            sending = asyncio.create_task(planner.send("coder", 2))
            await asyncio.to_thread(journal.waiting.wait, 5)
            acking = asyncio.create_task(delivery.ack())
            await asyncio.sleep(0.02)
            assert not acking.done()
            journal.gate.set()
            await acking
            await sending

    asyncio.run(run())


def test_an_idle_mesh_is_not_synced_again_and_again(tmp_path: Path) -> None:
    with Mesh(tmp_path, settings=MeshSettings(journal=LIGHT)) as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        journal = gated(mesh)
        for n in range(50):
            planner.send("coder", n)
            coder.receive(timeout=5).ack()
        until(lambda: node_of(mesh).core.unsynced == 0)
        before = journal.syncs
        time.sleep(0.25)
        assert journal.syncs == before


def test_a_delayed_message_wakes_the_housekeeping_in_time(tmp_path: Path) -> None:
    """Real time: a delay is not rounded up to the next look."""
    with Mesh(tmp_path, settings=SETTINGS) as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        for _ in range(3):
            began = time.monotonic()
            planner.send("coder", 1, delay_ms=50)
            coder.receive(timeout=5).ack()
            took = time.monotonic() - began
            assert 0.049 <= took < 0.35


def test_checkpoints_asked_for_at_once_are_taken_one_by_one(
    tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    with Mesh(tmp_path, settings=MeshSettings(journal=LIGHT)) as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        stop = threading.Event()

        def work() -> int:
            done = 0
            while not stop.is_set():
                planner.send("coder", done, key="k")
                coder.receive(timeout=5).ack()
                planner.send("coder", "left", delay_ms=10**9)
                done += 1
            return done

        working = threads.submit(work)
        for each in [threads.submit(mesh.checkpoint) for _ in range(12)]:
            assert each.result(30)
        stop.set()
        done = working.result(10)
    with Mesh(tmp_path) as mesh:
        stats = mesh.stats().mailboxes["default/coder"]
        assert (stats.acked, stats.delayed) == (done, done)


ALONE: dict[str, Any] = {"workflow": "alone", "steps": {"one": {"agent": "coder"}}}


def test_a_result_that_is_waited_for_is_told_by_the_sync_of_its_end(
    tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    with Mesh(tmp_path, settings=SETTINGS) as mesh:
        coder = mesh.agent("coder")
        task = mesh.submit(ALONE)
        delivery = coder.receive()
        assert delivery is not None
        core, journal = node_of(mesh).core, gated(mesh)
        waiting = threads.submit(task.result, 10)
        until(lambda: task.id in core._watchers)
        journal.gate.clear()
        ending = threads.submit(delivery.finish, "done")
        never_while_closed(journal, waiting, ending)
        assert waiting.result(5) == "done"
        ending.result(5)
        assert journal.syncs == 1


def test_a_watch_that_waits_on_a_loop_is_told_by_the_sync_too(tmp_path: Path) -> None:
    async def run() -> None:
        async with AsyncMesh(tmp_path, settings=SETTINGS) as mesh:
            coder = await mesh.agent("coder")
            task = await mesh.submit(ALONE)
            delivery = await coder.receive()
            assert delivery is not None
            core, journal = node_of(mesh).core, gated(mesh)
            waiting = asyncio.create_task(task.result(10))
            await asyncio.to_thread(until, lambda: task.id in core._watchers)
            journal.gate.clear()
            ending = asyncio.create_task(delivery.finish("done"))
            assert await asyncio.to_thread(journal.waiting.wait, 5)
            await asyncio.sleep(0.02)
            assert not any([waiting.done(), ending.done()])
            journal.gate.set()
            assert await waiting == "done"
            await ending
            assert journal.syncs == 1

    asyncio.run(run())


def test_a_watch_sees_a_change_that_writes_nothing_at_once(
    tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    with Mesh(tmp_path, settings=SETTINGS) as mesh:
        coder = mesh.agent("coder")
        task = mesh.submit(ALONE)
        delivery = coder.receive()
        assert delivery is not None
        core, states = node_of(mesh).core, task.watch()
        assert next(states).step("one").progress == ""
        following = threads.submit(next, states)
        until(lambda: task.id in core._watchers)
        delivery.report("half done")
        assert following.result(5).step("one").progress == "half done"


def test_the_result_of_a_task_that_has_ended_waits_for_no_other_sync(
    tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    with Mesh(tmp_path, settings=SETTINGS) as mesh:
        coder, live = mesh.agent("coder"), mesh.submit(ALONE, 2)
        ended = mesh.submit(ALONE, 1)
        for delivery in coder.receive_many(2):
            if delivery.task == ended.id:
                delivery.finish("done")
        journal = gated(mesh)
        journal.gate.clear()
        sending = threads.submit(coder.send, "coder", 1)
        assert journal.waiting.wait(5)
        assert ended.result(5) == "done"
        never_while_closed(journal, sending, threads.submit(live.show))
