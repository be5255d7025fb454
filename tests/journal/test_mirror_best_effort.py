"""A best-effort mirror follows as well as it can, and never holds the journal up."""

from __future__ import annotations

import errno
import logging
import threading
from pathlib import Path

import pytest

from relaymesh.journal import (
    JournalSettings,
    Mirror,
    MirrorMode,
    recover,
    verify,
)
from relaymesh.journal.trailing import Change, without_repeats
from relaymesh.node.disk import RealDisk
from relaymesh.testing.disk import Fault
from tests.journal.mirrored import Pair, same_trees
from tests.waiting import until


@pytest.mark.parametrize("call", ["write_at", "sync", "create", "rename", "sync_folder", "lock", "list"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_best_effort_mirror_that_fails_is_lost_and_comes_back(
    call: str, error: int, caplog: pytest.LogCaptureFixture
) -> None:
    for nth in (1, 3, 9):
        pair = Pair(mode="best_effort")
        pair.mirror.faults.append(Fault(call, nth=nth, error=error, lasting=True))
        with caplog.at_level(logging.WARNING, "relaymesh.journal"):
            caplog.clear()
            pair.start()
            pair.fill(6)
            pair.fill(6)
        state = pair.writer.mirror_state
        assert state is not None
        if pair.mirror.faults[0].nth <= 0:
            assert state.startswith("lost: "), state
            assert [r.message for r in caplog.records if "is lost" in r.message].__len__() == 1
        pair.mirror.faults.clear()
        pair.checkpoint()
        pair.fill(1)
        assert pair.writer.mirror_state == "in step"
        pair.check_same()
        pair.check_mirror_alone()


class SlowDisk(RealDisk):
    """A disk whose syncs wait until somebody lets them go on."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.go_on = threading.Event()

    def sync_folder(self, folder: str) -> None:
        assert self.go_on.wait(30)
        super().sync_folder(folder)


def test_a_slow_best_effort_mirror_does_not_hold_up_the_journal(tmp_path: Path) -> None:
    primary, slow = RealDisk(tmp_path / "primary"), SlowDisk(tmp_path / "mirror")
    slow.go_on.set()
    mirror = Mirror(slow, "best_effort", queue_bytes_max=50_000)
    recovery = recover(primary, JournalSettings(allocate_bytes=0), mirror)
    writer = recovery.open_writer(1)
    until(lambda: writer.mirror_state == "in step")
    slow.go_on.clear()
    recovery.disk.sync_folder("journal")  # now the mirror hangs
    for _ in range(20):
        writer.append(b"x" * 1000, 1, 2)
        writer.sync()
    behind = writer.mirror_state
    assert behind is not None
    assert behind.startswith("behind ")
    for _ in range(60):
        writer.append(b"x" * 1000, 1, 2)
        writer.sync()
    assert writer.mirror_state == "lost: too slow: more than 50000 bytes behind"
    assert writer.synced == 81
    slow.go_on.set()
    recovery.disk.rename("mark", "mark")  # what a rotation or a checkpoint does
    until(lambda: writer.mirror_state == "in step")
    writer.append(b"last", 1, 3)
    writer.close()
    assert same_trees(tmp_path)


@pytest.mark.parametrize("mode", ["required", "best_effort"])
def test_with_threads_and_real_directories_the_bytes_are_the_same(tmp_path: Path, mode: MirrorMode) -> None:
    settings = JournalSettings(segment_bytes_max=20_000, allocate_bytes=4096)
    for _ in range(3):
        mirror = Mirror(RealDisk(tmp_path / "mirror"), mode)
        recovery = recover(RealDisk(tmp_path / "primary"), settings, mirror)
        writer = recovery.open_writer(1)
        for number in range(150):
            writer.append(b"frame %d" % number * 20, 1, 2)
            if number % 3 == 0:
                writer.sync()
        writer.close()
        assert same_trees(tmp_path)
    assert verify(RealDisk(tmp_path / "mirror")).events == 450


def test_a_mirror_comes_back_while_the_journal_is_written(tmp_path: Path) -> None:
    """Lost and brought back again and again under load: in the end the bytes are the same."""
    settings = JournalSettings(segment_bytes_max=30_000, allocate_bytes=4096)
    mirror = Mirror(RealDisk(tmp_path / "mirror"), "best_effort", queue_bytes_max=400_000)
    recovery = recover(RealDisk(tmp_path / "primary"), settings, mirror)
    writer = recovery.open_writer(1)
    side = recovery.disk._side  # type: ignore[attr-defined]
    came_back = 0
    for number in range(3000):
        writer.append(b"frame %d" % number * 10, 1, 2)
        if number % 10 == 0:
            writer.sync()
        if number % 500 == 499:
            until(lambda: not writer.mirror_state.startswith(("lost", "catching")))  # type: ignore[union-attr]
            came_back += 1
            side.lose("tried out")
            recovery.disk.rename("mark", "mark")
    until(lambda: not writer.mirror_state.startswith(("lost", "catching")))  # type: ignore[union-attr]
    writer.close()
    assert came_back == 6
    assert same_trees(tmp_path)


def test_a_late_mirror_skips_syncs_and_marks_that_later_ones_cover() -> None:
    def change(kind: str, name: str) -> Change:
        return Change(kind, name, lambda: None)

    commit = [change("write", "journal/1"), change("sync", "journal/1"), change("write", "mark")]
    told = [(each.kind, each.name) for each in without_repeats(commit * 3)]
    write = ("write", "journal/1")
    assert told == [write, write, write, ("sync", "journal/1"), ("write", "mark")]
    cut = [(each.kind, each.name) for each in without_repeats([*commit * 2, *commit[:2]])]
    sync, mark = ("sync", "journal/1"), ("write", "mark")
    assert cut == [write, write, sync, mark, write, sync], "no mark before the sync it speaks of"
