"""The disk fails, fills up, or belongs to somebody else: clear errors, and the host lives on."""

from __future__ import annotations

import asyncio
import errno
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from relaymesh import AsyncMesh, DiskFloor, JournalPoisoned, Mesh, MeshSettings, StoreLagging
from relaymesh.node.node import Node
from relaymesh.testing import Fault, ManualClock, ManualMesh, MemoryDisk
from tests.node.doubles import LIGHT, gated, mesh_on
from tests.node.inside import node_of
from tests.waiting import until

SEGMENT = "journal/"


@pytest.mark.parametrize("call", ["write_at", "sync"])
def test_a_failed_write_or_sync_poisons_the_journal(call: str) -> None:
    """Section 7: never retried; pending sends get "outcome unknown", every later call raises."""
    disk = MemoryDisk()
    mesh = mesh_on(disk)
    planner, coder = mesh.agent("planner"), mesh.agent("coder")
    planner.send("coder", 1, id="receipted")
    delivery = coder.receive(timeout=5)
    with ThreadPoolExecutor(9) as threads:
        waiting = threads.submit(mesh.agent("tester").receive, 30)
        until(lambda: node_of(mesh).core.kernel.state.mailboxes["default/tester"].waiters)
        disk.faults.append(Fault(call, error=errno.EIO, within=SEGMENT))
        sends = [threads.submit(planner.send, "coder", n, id=f"m{n}") for n in range(8)]
        futures: list[Future[Any]] = [*sends, waiting]
        for future in futures:
            with pytest.raises(JournalPoisoned) as caught:
                future.result(10)
            assert "recovery keeps everything receipted" in caught.value.hint
    syncs = disk.calls["sync"]
    calls: list[Any] = [
        partial(planner.send, "coder", 2),
        partial(planner.send, "coder", 1, id="receipted"),
        partial(coder.receive, timeout=1),
        delivery.ack,
        delivery.nack,
        partial(mesh.agent, "new"),
        partial(mesh.publish, "topic", 1),
        mesh.stats,
        mesh.dead_letters,
        mesh.checkpoint,
    ]
    for act in calls:
        with pytest.raises(JournalPoisoned):
            act()
    assert disk.calls["sync"] == syncs, "a failed sync is never tried again"
    mesh.close()
    mesh.close()
    disk.faults.clear()
    with ManualMesh(disk=disk.crash(), settings=MeshSettings(journal=LIGHT)) as again:
        assert "receipted" in [entry.envelope.id for entry in again.agent("coder").peek()]
        for n in range(8):  # the outcome was unknown; the same id settles it
            again.agent("planner").send("coder", n, id=f"m{n}")
        assert len(again.agent("coder").peek()) == 9


@pytest.mark.parametrize("call", ["write_at", "sync"])
def test_nor_does_an_event_loop_wait_for_ever(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = MemoryDisk()
    monkeypatch.setattr("relaymesh.sdk.opening.Node", partial(Node, disk=disk))

    async def run() -> None:
        mesh = await AsyncMesh(tmp_path, settings=MeshSettings(journal=LIGHT)).open()
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        ran: list[Any] = []
        (await mesh.agent("handled")).handle(ran.append)
        waiting = asyncio.create_task(coder.receive())
        asking = asyncio.create_task(planner.ask("handled", 1, timeout=30))
        await asyncio.to_thread(until, lambda: ran)
        disk.faults.append(Fault(call, error=errno.EIO, within=SEGMENT))
        sends = [asyncio.create_task(planner.send("coder", n)) for n in range(20)]
        for task in [*sends, waiting, asking]:
            with pytest.raises(JournalPoisoned):
                await asyncio.wait_for(task, 10)
        for _ in range(3):
            with pytest.raises(JournalPoisoned):
                await asyncio.wait_for(planner.send("coder", 1), 10)
            with pytest.raises(JournalPoisoned):
                await asyncio.wait_for(coder.receive(), 10)
        await asyncio.wait_for(mesh.close(), 20)

    asyncio.run(run())


@pytest.mark.parametrize("nth", [1, 2])
def test_a_directory_whose_first_write_fails_is_given_free_again(nth: int) -> None:
    disk = MemoryDisk()
    disk.faults.append(Fault("write_at", nth=nth, error=errno.EIO, within="journal/"))
    settings = MeshSettings(journal=LIGHT)
    with pytest.raises((JournalPoisoned, OSError)):
        ManualMesh(disk=disk, settings=settings)
    assert not disk.locked
    ManualMesh(disk=disk, settings=settings).close()


def test_at_the_disk_floor_sends_are_refused_and_the_rest_goes_on() -> None:
    """Section 7: publishes are refused before the disk is full; acks, reads and checkpoint still work."""
    disk = MemoryDisk()
    mesh = mesh_on(disk, journal=replace(LIGHT, room_refresh_bytes=0))
    planner, coder = mesh.agent("planner"), mesh.agent("coder")
    planner.send_many([{"to": "coder", "content": n, "id": f"m{n}"} for n in range(4)])
    disk.free = 5_000
    before = mesh.stats().sequence
    for act in (partial(planner.send, "coder", 1), partial(mesh.publish, "topic", 1)):
        with pytest.raises(DiskFloor) as caught:
            act()
        assert (caught.value.code, caught.value.retryable) == ("DISK_FLOOR", True)
        assert "sends resume by themselves" in caught.value.hint
    assert mesh.stats().sequence == before
    a, b, c, d = coder.receive_many(4)
    a.ack(durable=True)
    b.nack("later")
    c.nack("dead", retryable=False)
    assert len(mesh.dead_letters()) == 1
    assert mesh.checkpoint()
    disk.free = 10**9
    planner.send("coder", "there is room again")
    d.ack()
    mesh.close()


def test_a_store_too_far_behind_refuses_sends_until_it_has_caught_up(tmp_path: Path) -> None:
    with Mesh(tmp_path, settings=MeshSettings(store_lag_max=5, journal=LIGHT)) as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        node = node_of(mesh)
        assert node.projector is not None
        assert node.projector.drain(5)
        gate, project = threading.Event(), node.store.project  # type: ignore[union-attr]

        def slow(batch: Any) -> None:
            assert gate.wait(10)
            project(batch)

        node.store.project = slow  # type: ignore[union-attr, method-assign]
        planner.send_many([{"to": "coder", "content": n} for n in range(10)])
        with pytest.raises(StoreLagging, match="events behind the journal") as caught:
            planner.send("coder", 1)
        assert (caught.value.code, caught.value.retryable) == ("STORE_LAGGING", True)
        for delivery in coder.receive_many(10):
            delivery.ack()
        assert mesh.stats().store_lag >= 10
        gate.set()
        assert node.projector.drain(5)
        planner.send("coder", "caught up")


def test_a_store_that_is_down_refuses_sends_and_loses_nothing(tmp_path: Path) -> None:
    with Mesh(tmp_path, settings=MeshSettings(journal=LIGHT)) as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        node = node_of(mesh)

        def broken(batch: Any) -> None:
            raise OSError(errno.EIO, "the store's disk is gone")

        node.store.project = broken  # type: ignore[union-attr, method-assign]
        planner.send("coder", 1)
        assert node.projector is not None
        projector = node.projector
        until(lambda: projector.failed)
        with pytest.raises(StoreLagging):
            planner.send("coder", 2)
        coder.receive(timeout=5).ack()
    with Mesh(tmp_path, settings=MeshSettings(journal=LIGHT)) as mesh:
        mesh.agent("planner").send("coder", 2)
        assert mesh.stats().mailboxes["default/coder"].acked == 1


FORK = """
import os, sys, threading
from relaymesh import Closed, Mesh
with Mesh(sys.argv[1]) as mesh:
    planner, coder = mesh.agent("planner"), mesh.agent("coder")
    coder.handle(lambda delivery: None)
    stop = threading.Event()
    def busy():
        while not stop.is_set():
            planner.send("coder", 1)
    threads = [threading.Thread(target=busy) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        child = os.fork()
        if child == 0:
            refused = 0
            for call in (lambda: planner.send("coder", 2), lambda: coder.receive(timeout=1), mesh.stats,
                         lambda: mesh.agent("new"), mesh.dead_letters):
                try:
                    call()
                except Closed as error:
                    refused += "forked" in str(error)
            mesh.close()
            os._exit(refused)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 5, status
    stop.set()
    for thread in threads:
        thread.join()
    receipt = planner.send("tester" if mesh.agent("tester") else "", "the parent's still works")
print(receipt.id)
"""


def test_the_child_of_a_fork_cannot_write_and_does_not_hang(tmp_path: Path) -> None:
    """Section 7: after `fork()` the child's Mesh is dead; the parent's is not."""
    done = subprocess.run(
        [sys.executable, "-c", FORK, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    with Mesh(tmp_path) as mesh:
        assert [entry.envelope.id for entry in mesh.agent("tester").peek()] == [done.stdout.strip()]


HOLD = """
import sys
from relaymesh import Mesh
mesh = Mesh(sys.argv[1])
mesh.agent("coder").send("coder", 1, id="from the first")
print("open", flush=True)
sys.stdin.read()
"""

SECOND = """
import sys
from relaymesh import DirectoryInUse, Mesh
try:
    Mesh(sys.argv[1])
except DirectoryInUse as error:
    print(error.code, error)
"""


def test_two_processes_never_have_one_directory(tmp_path: Path) -> None:
    """Section 7: the second stops with a clear error; after a kill the directory is free."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "open\n"
        second = subprocess.run(
            [sys.executable, "-c", SECOND, str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        assert "DIRECTORY_IN_USE" in second.stdout
        assert f"process {first.pid} is using" in second.stdout
        assert "stop the other process" in second.stdout
        first.send_signal(signal.SIGKILL)
        first.wait(10)
    with Mesh(tmp_path) as mesh:
        assert [entry.envelope.id for entry in mesh.agent("coder").peek()] == ["from the first"]


def test_a_suspend_skips_one_round_of_reclaiming_and_raises_an_alert(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Promise 9: holders that slept too get a chance to speak up; whoever calls first does not decide."""
    with ManualMesh() as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder", backoff_ms_base=0)
        planner.send("coder", 1)
        held = coder.receive(timeout=0)
        mesh.clock.suspend(3600)
        planner.send("coder", 2, id="the first call after the sleep")
        assert "the machine was suspended for 3600.0 s" in caplog.text
        assert [record.name for record in caplog.records] == ["relaymesh.alert"]
        mesh.advance(4)
        held.extend(30_000)
        mesh.advance(20)
        held.ack()

        coder.receive(timeout=0).ack()
        planner.send("coder", 3, ttl=0)
        coder.receive(timeout=0)
        mesh.clock.suspend(3600)
        mesh.advance(6)  # one round, not more
        assert coder.receive(timeout=0).attempt == 2


@pytest.mark.parametrize("jump", [-86_400, 86_400])
def test_a_wall_clock_that_jumps_changes_nothing_but_raises_an_alert(
    jump: float, caplog: pytest.LogCaptureFixture
) -> None:
    """Promise 9."""
    with ManualMesh() as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder", backoff_ms_base=0)
        before = mesh.now
        planner.send("coder", "delayed", delay_ms=60_000, ttl=0)
        planner.send("coder", "held")
        coder.receive(timeout=0)
        mesh.clock.jump_wall(jump)
        assert mesh.now == before
        mesh.advance(30)
        assert f"the wall clock jumped by {jump:+.1f} s" in caplog.text
        assert coder.receive(timeout=0).attempt == 2
        mesh.advance(29)
        assert mesh.delayed_count() == 1
        mesh.advance(1)
        assert mesh.delayed_count() == 0


def test_a_jump_does_not_shorten_a_lease_by_even_one_round(caplog: pytest.LogCaptureFixture) -> None:
    with ManualMesh() as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder", backoff_ms_base=0)
        planner.send("coder", 1)
        coder.receive(timeout=0)
        mesh.advance(29)
        mesh.clock.jump_wall(3600)
        mesh.advance(2)  # the lease is over, but this round is skipped
        assert coder.receive_many(1) == []
        mesh.advance(4)
        assert coder.receive(timeout=0).attempt == 2


def test_mesh_time_never_goes_back_over_a_restart() -> None:
    """Promise 9: anchored at start to max(wall, last record)."""
    disk, clock = MemoryDisk(), ManualClock()
    settings = MeshSettings(journal=LIGHT)
    with ManualMesh(disk=disk, clock=clock, settings=settings) as mesh:
        mesh.advance(3600)
        mesh.agent("coder").send("coder", 1, delay_ms=10_000, ttl=0)
        last = mesh.now
    clock.jump_wall(-86_400)
    with ManualMesh(disk=disk, clock=clock, settings=settings) as mesh:
        assert mesh.now >= last
        mesh.advance(10)
        assert len(mesh.agent("coder").receive_many(5)) == 1


def test_a_mesh_that_closes_while_a_send_is_synced_waits_for_it(tmp_path: Path) -> None:
    mesh = Mesh(tmp_path, settings=MeshSettings(journal=LIGHT))
    planner, _ = mesh.agent("planner"), mesh.agent("coder")
    journal = gated(mesh)
    journal.gate.clear()
    with ThreadPoolExecutor(2) as threads:
        sending = threads.submit(planner.send, "coder", 1)
        assert journal.waiting.wait(5)
        closing = threads.submit(mesh.close)
        journal.gate.set()
        receipt = sending.result(10)
        closing.result(10)
    with Mesh(tmp_path) as again:
        assert [entry.envelope.id for entry in again.agent("coder").peek()] == [receipt.id]
