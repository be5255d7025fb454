"""A large payload through a workflow of two steps, with the power cut at every change of the disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from relaymesh import Empty, Mesh, NotFound
from relaymesh.journal import Mirror, list_segments, read_frames, read_mark, restore_from, verify
from relaymesh.journal.payloads import read_payload
from relaymesh.kernel.payload import resolved
from relaymesh.kernel.records import TaskEnded
from relaymesh.node.node import Node
from relaymesh.node.settings import MeshSettings
from relaymesh.testing import Keep, ManualMesh, MemoryDisk, PowerLost, opening
from relaymesh.testing import mesh as manual
from relaymesh.wire.records import read_records

STEPS = {
    "make": {"agent": "a", "input": "${{ input }}"},
    "use": {"agent": "a", "needs": ["make"], "input": "${{ steps.make.output }}"},
}
WORKFLOW = {"workflow": "w", "steps": STEPS}


def drive(mesh: Mesh, disk: MemoryDisk, size: int) -> Any:
    """Submit the task, or find it, and work until it has its result."""
    agent = mesh.agent("a")
    task = mesh.submit(WORKFLOW, "i" * 70_000, key="one")
    while True:
        try:
            if task.status() == "SUCCESS":
                return task.result()
        except NotFound:  # it ended before the crash, and there is no store to show it
            return result_in_journal(disk)
        try:
            delivery = agent.receive(timeout=60)
        except Empty:
            continue
        assert delivery.input == ("i" * 70_000 if delivery.step == "make" else "m" * size)
        delivery.finish("m" * size if delivery.step == "make" else "u" * size)


def result_in_journal(disk: MemoryDisk) -> Any:
    records = [record for frame in read_frames(disk) for record in read_records(frame.payload)]
    [ended] = [record for record in records if isinstance(record, TaskEnded)]
    return msgspec.json.decode(resolved(ended.result, partial(read_payload, disk)))


def changes_of(size: int) -> int:
    disk = MemoryDisk()
    with ManualMesh(disk=disk) as mesh:
        assert drive(mesh, disk, size) == "u" * size
    return disk.changes


def cut(size: int, changes: int, keep: Keep, after: Callable[[MemoryDisk], MemoryDisk]) -> None:
    """Cut the power after so many changes, and go on with what `after` makes of the disk."""
    disk = MemoryDisk()
    disk.cut_power_after(changes)
    try:
        with ManualMesh(disk=disk) as mesh:
            drive(mesh, disk, size)
    except PowerLost:
        pass
    disk = after(disk.crash(keep, seed=changes))
    assert [each for each in verify(disk, records=True).damage if each.segment.startswith("payloads/")] == []
    with ManualMesh(disk=disk) as mesh:
        assert drive(mesh, disk, size) == "u" * size, (changes, keep)


@pytest.mark.parametrize(
    ("keep", "every"), [(Keep.NOTHING, 1), (Keep.EVERYTHING, 4), (Keep.SUBSET, 3), (Keep.TORN, 3)]
)
def test_the_result_is_the_same_wherever_the_power_goes(keep: Keep, every: int) -> None:
    for changes in range(0, changes_of(100_000), every):
        cut(100_000, changes, keep, lambda disk: disk)


def test_ten_mebibytes_come_through_a_crash_at_each_stage() -> None:
    size = 10_485_758
    for changes in range(3, changes_of(size), 9):
        cut(size, changes, Keep.TORN, lambda disk: disk)


@pytest.mark.parametrize(("size", "every"), [(100_000, 5), (10_485_758, 16)])
def test_the_result_is_the_same_from_the_mirror_alone(
    monkeypatch: pytest.MonkeyPatch, size: int, every: int
) -> None:
    mirrors: list[MemoryDisk] = []
    plain = opening.manual_node

    def with_mirror(path: Any, disk: Any, *rest: Any) -> Node:
        if not mirrors:
            return plain(path, disk, *rest)
        _, settings, _, clock = rest
        mirror = Mirror(mirrors[0], syncing="primary first")
        settings = settings or MeshSettings()
        return Node(None, settings, disk=disk, mirror=mirror, clock=clock, background=False)

    monkeypatch.setattr(manual, "manual_node", with_mirror)
    for changes in range(3, changes_of(size), every):
        mirrors[:] = [MemoryDisk(seed=1)]
        disk = MemoryDisk()
        disk.cut_power_after(changes)
        try:
            with ManualMesh(disk=disk) as mesh:
                drive(mesh, disk, size)
        except PowerLost:
            pass
        [mirror] = mirrors
        mirrors.clear()
        mirror, restored = mirror.crash(Keep.NOTHING, seed=changes), MemoryDisk(seed=2)
        if read_mark(mirror) is None:
            mirror.lose("mark")  # it was begun, and no caller waited for it
        if list_segments(mirror) and not mirror.exists("incomplete"):
            restore_from(mirror, restored, "set-aside-20261118T000000", lambda _: None)
        with ManualMesh(disk=restored) as mesh:
            assert drive(mesh, restored, size) == "u" * size, changes


def test_a_killed_process_loses_no_payload(tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        import sys
        from relaymesh import Mesh
        from tests.node.test_payload_crashes import WORKFLOW

        with Mesh(sys.argv[1]) as mesh:
            agent = mesh.agent("a")
            task = mesh.submit(WORKFLOW, "i" * 70_000, key="one")
            delivery = agent.receive(timeout=30)
            delivery.finish("m" * 10_485_758)
            print("finished", flush=True)
            agent.receive(timeout=30)
            print("received", flush=True)
            sys.stdin.read()
        """
    )
    for told in ("finished", "received"):
        path = tmp_path / told
        with subprocess.Popen(
            [sys.executable, "-c", program, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        ) as process:
            assert process.stdout is not None
            while process.stdout.readline().strip() != told:
                assert process.poll() is None
            process.send_signal(signal.SIGKILL)
        with Mesh(path) as mesh:
            delivery = mesh.agent("a").receive(timeout=30)
            assert delivery.input == "m" * 10_485_758
            delivery.finish("u" * 10_485_758)
            [task] = mesh.tasks()
            assert mesh.task(task.id).result(timeout=30) == "u" * 10_485_758
