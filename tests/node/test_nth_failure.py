"""Every call a node makes to its disk fails once, and fails for good, with EIO and with ENOSPC.

Call 1 fails, then call 2, then call 3 …, until the whole life runs clean. Each time: an error of the
documented tree or none, no lock kept, no file left open, nothing receipted lost, and a journal that works.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import apsw
import pytest

from relaymesh import MeshError, MeshSettings
from relaymesh.errors import DirectoryError, Refused
from relaymesh.journal import Disk, JournalSettings, verify
from relaymesh.journal.layout import LOCK
from relaymesh.node.opening import STORE_FILE
from relaymesh.testing import Fault, ManualClock, ManualMesh, MemoryDisk
from relaymesh.testing.disk import MemoryFile

pytestmark = pytest.mark.slow

SETTINGS = MeshSettings(
    archive_days=1,
    journal=JournalSettings(
        segment_bytes_max=900, allocate_bytes=300, checkpoint_reserve_bytes=1_000, room_refresh_bytes=200
    ),
)


Life = Callable[["FailingDisk", ManualClock, "Promised"], None]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)  # every failure is logged, thousands of times
    yield
    logging.disable(logging.NOTSET)


class FailingDisk(MemoryDisk):
    """Fails call number `nth` of any kind, counted over everything, and with `lasting` all that follow."""

    def __init__(self, nth: int, error: int, lasting: bool, files: Mapping[str, bytes] | None = None) -> None:
        super().__init__(files)
        self.nth = nth
        self.error = error
        self.lasting = lasting
        self.made = 0
        self.struck: tuple[str, str] | None = None
        self.opened: list[MemoryFile] = []

    def enter(self, call: str, name: str) -> Fault | None:
        fault = super().enter(call, name)
        self.made += 1
        if self.made == self.nth or (self.lasting and self.made > self.nth > 0):
            self.struck = self.struck or (call, name)
            return Fault(call, error=self.error)
        return fault

    def heal(self) -> None:
        self.nth = 0

    def after_power_loss(self) -> MemoryDisk:
        """What would be left if the power went now; this disk goes on."""
        left = self.crash()
        self._power_left = None
        return left

    def open(self, name: str, *, create: bool = False, write: bool = True) -> MemoryFile:
        file = super().open(name, create=create, write=write)
        if (
            name != LOCK
        ):  # a lock of this disk opens its file itself; a real one has only the descriptor it holds
            self.opened.append(file)
        return file

    @property
    def left_open(self) -> int:
        return sum(file._open for file in self.opened)


@dataclass
class Promised:
    """What the mesh answered, and what it was asked and may or may not have done."""

    receipts: set[str] = field(default_factory=set)
    acking: set[str] = field(default_factory=set)
    acked: set[str] = field(default_factory=set)
    errors: list[Exception] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)

    def ask(self, act: object, *arguments: object, **named: object) -> object:
        """Do it; a refusal is an answer, and life goes on."""
        assert callable(act)
        try:
            return act(*arguments, **named)
        except Refused as error:
            self.refused.append(error)
            return None


def two_starts(disk: Disk, clock: ManualClock, promised: Promised) -> None:
    """Two starts with everything in between: rotation, checkpoints, archive, retention, a clean stop."""
    for run in ("a", "b"):
        one_start(disk, clock, promised, run)
        clock.advance(2 * 86_400)  # retention has something to drop


def one_start(disk: Disk, clock: ManualClock, promised: Promised, run: str) -> None:
    mesh = ManualMesh(disk=disk, clock=clock, settings=SETTINGS)
    try:
        planner = mesh.agent("planner")
        coder = mesh.agent("coder", max_retries=1000, backoff_ms_base=10, backoff_ms_cap=10)
        for n in range(5):
            receipt = promised.ask(planner.send, "coder", "x" * 60, id=f"{run}{n}", ttl=0)
            if receipt is not None:
                promised.receipts.add(f"{run}{n}")
            if n in (2, 4):
                promised.ask(mesh.checkpoint)
        deliveries = coder.receive_many(3)
        for delivery in deliveries[:2]:
            promised.acking.add(delivery.id)
            delivery.ack(durable=True)
            promised.acked.add(delivery.id)
        for delivery in deliveries[2:]:
            delivery.nack("again")
        mesh.advance(1)
        promised.ask(mesh.checkpoint)
    finally:
        mesh.close()


def live_until_it_fails(disk: FailingDisk, life: Life, before: Promised) -> tuple[ManualClock, Promised]:
    clock = ManualClock()
    promised = Promised(set(before.receipts), set(before.acking), set(before.acked))
    try:
        life(disk, clock, promised)
    except MeshError as error:
        promised.errors.append(error)
    return clock, promised


def check(disk: MemoryDisk, clock: ManualClock, promised: Promised) -> None:
    """Start again, see that everything is there, and use it."""
    with ManualMesh(disk=disk, clock=clock, settings=SETTINGS) as mesh:
        coder = mesh.agent("coder", max_retries=1000, backoff_ms_base=10, backoff_ms_cap=10)
        there = {entry.envelope.id for entry in coder.peek(limit=1000)}
        assert promised.receipts - promised.acking <= there, "receipted and lost"
        assert not there & promised.acked, "durably acked and back"
        assert mesh.agent("planner").send("coder", 1, id="after").id == "after"
        mesh.checkpoint()
    assert verify(disk).damage == []


def fail_every_call(
    life: Life, error: int, lasting: bool, files: Mapping[str, bytes], before: Promised
) -> list[tuple[tuple[str, str], Promised]]:
    seen: list[tuple[tuple[str, str], Promised]] = []
    nth = 0
    while True:
        nth += 1
        disk = FailingDisk(nth, error, lasting, files)
        clock, promised = live_until_it_fails(disk, life, before)
        disk.heal()
        if disk.struck is None:
            assert not promised.errors
            return seen
        place = f"call {nth}, {disk.struck}: {promised.errors}"
        assert not disk.locked, f"the lock is still held after {place}"
        assert disk.left_open == 0, f"{disk.left_open} files are left open after {place}"
        seen.append((disk.struck, promised))
        check(disk.after_power_loss(), clock, promised)
        check(disk, clock, promised)  # the same process opens it again, and sees what was never synced
        assert disk.left_open == 0
        check(disk.after_power_loss(), clock, promised)


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_any_call_may_fail(error: int, lasting: bool) -> None:
    seen = fail_every_call(two_starts, error, lasting, {}, Promised())
    calls = {call for (call, _), _ in seen}
    assert calls >= {
        "write_at", "sync", "allocate", "truncate", "create", "open", "rename", "remove", "sync_folder",
        "make_folder", "list", "exists", "read_at", "size", "lock",
    }  # fmt: skip
    assert len(seen) > 300
    assert any(promised.errors for _, promised in seen)
    if lasting:
        quiet = [place for place, promised in seen[:-30] if not promised.errors and not promised.refused]
        assert quiet == [], "a disk that fails for good was never noticed"


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_any_call_of_a_recovery_may_fail(error: int, lasting: bool) -> None:
    """The directory of a killed node: unsynced frames at the end, a checkpoint and a file half made."""
    disk, clock, before = MemoryDisk(), ManualClock(), Promised()
    mesh = ManualMesh(disk=disk, clock=clock, settings=SETTINGS)
    planner, coder = mesh.agent("planner"), mesh.agent("coder")
    for n in range(5):
        before.receipts.add(planner.send("coder", "x" * 60, id=f"k{n}", ttl=0).id)
        if n == 2:
            mesh.checkpoint()
    coder.receive_many(1)
    files = {
        **disk.files(),
        "journal/room.new": b"half made",
        "checkpoints/00000000000000000099.rmc.new": b"x",
    }
    files["mark"] = files["mark"][:20]
    seen = fail_every_call(only_start, error, lasting, files, before)
    assert {call for (call, _), _ in seen} >= {"remove", "rename", "write_at", "sync", "read_at", "size"}
    assert len(seen) > 50


def only_start(disk: Disk, clock: ManualClock, promised: Promised) -> None:
    ManualMesh(disk=disk, clock=clock, settings=SETTINGS).close()


def test_a_start_that_fails_at_the_store_gives_the_directory_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ManualMesh(tmp_path, settings=SETTINGS) as mesh:
        mesh.agent("coder").send("coder", 1, id="kept")
    (tmp_path / STORE_FILE).write_bytes(b"no database " * 1000)

    def fails(disk: Disk, path: Path) -> int:
        raise apsw.FullError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("relaymesh.node.opening.rebuild_store", fails)
        with pytest.raises(DirectoryError, match="database or disk is full"):
            ManualMesh(tmp_path, settings=SETTINGS)
    with ManualMesh(tmp_path, settings=SETTINGS) as mesh:
        assert [entry.envelope.id for entry in mesh.agent("coder").peek()] == ["kept"]
