"""Payload files: large content is a file, written before its record, and comes back as it was."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import msgspec
import pytest

from relaymesh import AsyncMesh, DiskFloor, InvalidValue, JournalDamaged, Mesh, UnknownRecipient
from relaymesh.journal import Mirror, restore_from, verify
from relaymesh.kernel.commands import OpenMailbox, Send
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.payload import reference_to
from relaymesh.kernel.tasks.commands import Finish
from relaymesh.node.local import LocalSession
from relaymesh.node.node import Node
from relaymesh.node.settings import MeshSettings
from relaymesh.testing import AsyncManualMesh, ManualClock, ManualMesh
from relaymesh.testing.disk import Fault, Keep, MemoryDisk

LARGE: dict[str, Any] = {"text": "x" * 1_000_000}
BYTES = b"\x01" * 100_000


def files(path: Path) -> list[Path]:
    return sorted(each for each in (path / "payloads").rglob("*") if each.is_file())


def test_large_content_is_a_file_and_comes_back_after_a_restart(tmp_path: Path) -> None:
    with Mesh(tmp_path) as mesh:
        mesh.agent("b")
        for content in (LARGE, BYTES, "small"):
            mesh.agent("a").send("b", content)
        sizes = {each.stat().st_size for each in files(tmp_path)}
        assert sizes == {1_000_011, 100_000}
        assert all(each.name[:2] == each.parent.name for each in files(tmp_path))
        assert mesh.stats().mailboxes["default/b"].bytes == 1_000_011 + 100_000 + 7
    with Mesh(tmp_path) as mesh:
        for content in (LARGE, BYTES, "small"):
            delivery = mesh.agent("b").receive()
            assert delivery.content == content
            delivery.ack()


def test_the_same_content_is_one_file_and_a_repeated_id_is_a_duplicate(tmp_path: Path) -> None:
    with Mesh(tmp_path) as mesh:
        mesh.agent("b")
        first = mesh.agent("a").send("b", LARGE, id="one")
        again = mesh.agent("a").send("b", LARGE, id="one")
        assert (first.duplicate, again.duplicate, again.sequence) == (False, True, first.sequence)
        mesh.agent("a").send("b", LARGE)
        assert len(files(tmp_path)) == 1
        for _ in range(2):
            mesh.agent("b").receive().ack()
        assert mesh.agent("a").send("b", LARGE, id="one").duplicate


def test_an_event_loop_sends_and_receives_it_too(tmp_path: Path) -> None:
    async def play() -> None:
        async with AsyncMesh(tmp_path) as mesh:
            a, b = await mesh.agent("a"), await mesh.agent("b")
            await a.send("b", LARGE)
            delivery = await b.receive()
            assert delivery.content == LARGE
            await delivery.ack()
            assert len(files(tmp_path)) == 1

    asyncio.run(play())


def test_a_missing_or_changed_file_is_named_and_stops_no_other_message(tmp_path: Path) -> None:
    with Mesh(tmp_path) as mesh:
        mesh.agent("b")
        mesh.agent("a").send("b", LARGE)
        mesh.agent("a").send("b", "small")
    [file] = files(tmp_path)
    file.write_bytes(file.read_bytes()[:-1])
    with Mesh(tmp_path) as mesh:
        with pytest.raises(JournalDamaged, match=f"{file.name} is damaged: it has 1000010 bytes"):
            mesh.agent("b").receive()
        delivery = mesh.agent("b").receive()
        assert delivery.content == "small"
        delivery.ack()
        [pending] = mesh.agent("b").peek(10)
        assert pending.failures is not None
        assert pending.failures[0].code == "payload_damaged"


def test_a_full_disk_refuses_the_send_whose_payload_it_cannot_take_and_no_other() -> None:
    disk = MemoryDisk()
    with ManualMesh(disk=disk) as mesh:
        mesh.agent("b")
        disk.faults.append(Fault("write_at", error=errno.ENOSPC, within="payloads/", keep_bytes=10))
        with pytest.raises(DiskFloor, match="no room for content of 1000011 bytes"):
            mesh.agent("a").send("b", LARGE)
        assert not [name for name in disk.files() if name.startswith("payloads/")]
        mesh.agent("a").send("b", "small")
        mesh.agent("a").send("b", LARGE)
        assert [mesh.agent("b").receive().content for _ in range(2)] == ["small", LARGE]


@pytest.mark.parametrize("keep", list(Keep))
def test_a_receipt_means_that_the_content_is_back_after_power_loss(keep: Keep) -> None:
    disk = MemoryDisk()
    mesh = ManualMesh(disk=disk)
    mesh.agent("b")
    mesh.agent("a").send("b", LARGE)
    with ManualMesh(disk=disk.crash(keep, seed=7)) as mesh:
        assert mesh.agent("b").receive().content == LARGE


STEPS = {
    "make": {"agent": "a", "input": "${{ input }}"},
    "use": {"agent": "a", "needs": ["make"], "input": {"made": "${{ steps.make.output }}"}},
}
TEN_MIB = "y" * (10_485_760 - 2)


def test_ten_mebibytes_go_through_a_workflow_of_two_steps(tmp_path: Path) -> None:
    with Mesh(tmp_path) as mesh:
        a = mesh.agent("a")
        task = mesh.submit({"workflow": "w", "steps": STEPS}, "i" * 1_000_000)
        first = a.receive()
        assert first.input == "i" * 1_000_000
        first.finish(TEN_MIB[:-100])
        second = a.receive()
        assert second.input == {"made": TEN_MIB[:-100]}
        second.finish(TEN_MIB)
        assert task.result(timeout=60) == TEN_MIB
        assert max(each.stat().st_size for each in tmp_path.rglob("*.rmj")) < 20_000_000
    with Mesh(tmp_path) as mesh:
        assert mesh.task(task.id).result(timeout=1) == TEN_MIB


def test_an_event_loop_leaves_files_of_a_workflow_to_another_thread(tmp_path: Path) -> None:
    async def play() -> None:
        async with AsyncMesh(tmp_path) as mesh:
            a = await mesh.agent("a")
            task = await mesh.submit({"workflow": "w", "steps": STEPS}, "i" * 100_000)
            for size in (200_000, 300_000):
                delivery = await a.receive(timeout=30)
                await delivery.finish("z" * size)
            assert await task.result(timeout=30) == "z" * 300_000

    asyncio.run(play())


def test_a_mesh_on_a_manual_clock_does_it_in_one_thread(tmp_path: Path) -> None:
    async def play() -> None:
        async with AsyncManualMesh(tmp_path) as mesh:
            a = await mesh.agent("a")
            task = await mesh.submit({"workflow": "w", "steps": STEPS}, "i" * 100_000)
            for size in (200_000, 300_000):
                await (await a.receive()).finish("z" * size)
            assert await task.result() == "z" * 300_000

    asyncio.run(play())


def test_results_of_a_fan_in_are_joined_with_those_that_are_in_files(tmp_path: Path) -> None:
    steps = {"each": {"agent": "a", "for_each": "${{ input }}", "input": "${{ item }}"}}
    with ManualMesh(tmp_path) as mesh:
        a = mesh.agent("a")
        task = mesh.submit({"workflow": "w", "steps": steps}, [1, 2, 3])
        for _ in range(3):
            delivery = a.receive()
            number = delivery.input
            delivery.finish(number if number == 2 else [number, "z" * 70_000])
        assert task.result() == [[1, "z" * 70_000], 2, [3, "z" * 70_000]]
        assert len(files(tmp_path)) == 2
        again = mesh.submit({"workflow": "w", "steps": steps}, [1, 2, 3])
        assert (again.id, again.result()) == (task.id, task.result())


def test_a_result_cannot_be_a_reference(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="control character"):
        Finish(1, reference_to(b"x" * 70_000).encode())


def test_a_sweep_removes_what_nothing_names_and_nothing_else() -> None:
    clock = ManualClock()
    disk = MemoryDisk()
    disk.wall_ns = lambda: clock.wall_ms() * 1_000_000
    settings = MeshSettings(archive_days=1)
    with ManualMesh(disk=disk, clock=clock, settings=settings) as mesh:
        mesh.agent("b")
        mesh.agent("a").send("b", LARGE, ttl=0)
        with pytest.raises(UnknownRecipient):
            mesh.agent("a").send("nobody", BYTES)
        assert len(payloads(disk)) == 2
        node = mesh._node
        assert node.sweep_payloads() == []
        mesh.advance(3_601)
        assert len(node.sweep_payloads()) == 1
        [kept] = payloads(disk)
        delivery = mesh.agent("b").receive()
        assert delivery.content == LARGE
        delivery.ack()
    assert payloads(disk) == [kept]
    pass_days(disk, clock, settings)
    assert "000000000001-00000000000000000001.rmj" not in str(disk.files().keys())
    assert payloads(disk) == []


def test_a_checkpoint_names_the_files_of_what_still_waits() -> None:
    clock = ManualClock()
    disk = MemoryDisk()
    disk.wall_ns = lambda: clock.wall_ms() * 1_000_000
    settings = MeshSettings(archive_days=1)
    with ManualMesh(disk=disk, clock=clock, settings=settings) as mesh:
        mesh.agent("b")
        mesh.agent("a").send("b", LARGE, ttl=0)
    pass_days(disk, clock, settings)
    assert "000000000001-00000000000000000001.rmj" not in str(disk.files().keys())
    with ManualMesh(disk=disk.crash(), clock=clock) as mesh:
        assert mesh.agent("b").receive().content == LARGE


def test_a_mirror_has_the_files_before_the_records_that_name_them() -> None:
    disk, other = MemoryDisk(), MemoryDisk(seed=1)
    session = mirrored(disk, other)
    content = msgspec.json.encode(LARGE)
    session.execute(Send([("default/b", [Envelope("one", "default/a", content)])]))
    assert payloads(other) == payloads(disk) != []
    for each in (disk, other):
        found = verify(each.crash(), records=True)
        assert [x for x in found.damage if x.segment != "mark"] == []  # no caller waited for the mark
        assert len(found.payloads) == 1


def test_a_damaged_file_is_taken_from_a_required_mirror_and_written_anew() -> None:
    disk, other = MemoryDisk(), MemoryDisk(seed=1)
    session = mirrored(disk, other)
    session.execute(Send([("default/b", [Envelope("one", "default/a", BYTES, 1)])]))
    session.close()
    [path] = payloads(disk)
    disk.flip(path, 5, 1)
    session = mirrored(disk, other)
    [row] = session.receive("default/b", 1, 0).rows()
    assert row.envelope.content == BYTES
    assert disk.content(path) == BYTES


def test_verify_names_a_payload_file_that_is_missing_cut_or_changed() -> None:
    disk = MemoryDisk()
    with ManualMesh(disk=disk) as mesh:
        mesh.agent("b")
        mesh.agent("a").send("b", LARGE)
        mesh._node.checkpoint()
    [path] = payloads(disk)
    whole = disk.content(path)
    assert whole is not None
    flipped = bytearray(whole)
    flipped[500_000] ^= 8
    for harmed, why in (
        (None, "it is missing"),
        (whole[:-1], "it has 1000010 bytes, not 1000011"),
        (whole + b" ", "it has more bytes, not 1000011"),
        (bytes(flipped), "its bytes are not those that its name stands for"),
    ):
        disk.lose(path)
        if harmed is not None:
            disk.put(path, harmed)
        assert [(each.segment, each.why) for each in verify(disk).damage] == [(path, why)]


def test_a_restore_brings_missing_and_damaged_files_back() -> None:
    disk, other = MemoryDisk(), MemoryDisk(seed=1)
    session = mirrored(disk, other)
    for content, encoding in ((msgspec.json.encode(LARGE), 0), (BYTES, 1)):
        session.execute(Send([("default/b", [Envelope(f"{encoding}", "default/a", content, encoding)])]))
    session.close()
    one, two = payloads(disk)
    disk.lose(one)
    disk.flip(two, 10, 1)
    restore_from(other, disk, "set-aside-20261118T000000", lambda _: None)
    assert verify(disk, records=True).damage == []
    with ManualMesh(disk=disk) as mesh:
        assert [mesh.agent("b").receive().content for _ in range(2)] == [LARGE, BYTES]


def pass_days(disk: MemoryDisk, clock: ManualClock, settings: MeshSettings) -> None:
    """Several starts, days apart, each with a checkpoint: the first segments are archived and dropped."""
    for _ in range(4):
        with ManualMesh(disk=disk, clock=clock, settings=settings) as mesh:
            mesh.advance(2 * 86_400)
            mesh.agent("a").send("b", "small")
            mesh._node.checkpoint()
            mesh._node._drop_old()


def mirrored(disk: MemoryDisk, other: MemoryDisk) -> LocalSession:
    mirror = Mirror(other, syncing="primary first")
    session = LocalSession(Node(None, MeshSettings(), disk=disk, mirror=mirror, background=False))
    session.execute(OpenMailbox("default/b"))
    return session


def payloads(disk: MemoryDisk) -> list[str]:
    return sorted(name for name in disk.files() if name.startswith("payloads/"))
