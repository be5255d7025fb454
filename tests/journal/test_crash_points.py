"""The power goes between any two disk calls. What was synced is back; the rest wholly or not at all.

One life of a journal (start, appends, rotations, checkpoints, archive, retention, clean stop, restart) is run
again and again, each time cut one call later; each cut is followed by every kind of crash. Then the
recovery itself is cut at each of its calls, and a second recovery must still find everything.
"""

from __future__ import annotations

import contextlib
import errno

import pytest

from relaymesh.errors import JournalPoisoned, MeshError
from relaymesh.journal import archive_behind, drop_archived, read_frames, verify
from relaymesh.testing.disk import Fault, Keep, MemoryDisk, PowerLost
from tests.journal.small import Ledger, state_of

CRASHES = [
    (Keep.NOTHING, 0),
    (Keep.EVERYTHING, 0),
    *[(keep, seed) for keep in (Keep.PREFIX, Keep.SUBSET, Keep.TORN) for seed in range(4)],
]

pytestmark = pytest.mark.slow


def life(disk: MemoryDisk, ledger: Ledger) -> None:
    """Everything a journal does, in one deterministic run."""
    writer = ledger.start(disk)
    for _ in range(2):
        for _ in range(2):
            for _ in range(3):
                ledger.append(writer)
            ledger.sync(writer)
        ledger.checkpoint(disk, writer)
        archive_behind(disk, writer.synced)
    ledger.append(writer)
    writer.close()
    ledger.promised = len(ledger.tried)
    writer = ledger.start(disk)
    ledger.append(writer)
    ledger.checkpoint(disk, writer)
    archive_behind(disk, writer.synced)
    drop_archived(disk, before_ns=1006)
    ledger.append(writer)
    ledger.append(writer)


def cut(changes: int) -> tuple[MemoryDisk, Ledger, bool]:
    """The life until the power goes after that many changes; True when it ended before."""
    disk, ledger = MemoryDisk(), Ledger()
    disk.cut_power_after(changes)
    try:
        life(disk, ledger)
    except PowerLost:
        return disk, ledger, False
    return disk, ledger, True


def check_and_go_on(disk: MemoryDisk, ledger: Ledger) -> None:
    """Recover, append, and recover once more: the journal must be fully usable."""
    ledger = Ledger(list(ledger.tried), ledger.promised, list(ledger.epochs))
    writer = ledger.start(disk)
    ledger.append(writer)
    ledger.sync(writer)
    report = verify(disk)
    assert report.damage == []
    assert report.next_sequence == writer.synced
    synced = [frame.payload for frame in read_frames(disk)]
    assert synced == ledger.tried[len(ledger.tried) - len(synced) :]
    assert state_of(disk.crash()) == ledger.tried


def total_changes() -> int:
    disk = MemoryDisk()
    life(disk, Ledger())
    return disk.changes


def test_the_life_rotates_archives_and_drops() -> None:
    disk, ledger = MemoryDisk(), Ledger()
    life(disk, ledger)
    numbers = {name: [f for f in disk.files() if f.startswith(name)] for name in ("journal/", "archive/")}
    assert len(numbers["journal/"]) >= 2
    assert numbers["archive/"]
    assert not any("/000000000001-" in name for name in disk.files())


def test_a_crash_after_any_call_loses_nothing_promised() -> None:
    done, changes = False, 0
    while not done:
        disk, ledger, done = cut(changes)
        for keep, seed in CRASHES:
            check_and_go_on(disk.crash(keep, seed=seed), ledger)
        changes += 1
    assert changes > 100


@pytest.mark.parametrize("keep", [Keep.NOTHING, Keep.EVERYTHING, Keep.SUBSET])
def test_a_crash_after_any_call_of_the_recovery_loses_nothing_either(keep: Keep) -> None:
    for changes in range(0, total_changes() + 1, 3):
        disk, ledger, _ = cut(changes)
        files = disk.crash(Keep.TORN, seed=changes)
        step, done = 0, False
        while not done:
            again = MemoryDisk(files.files())
            again.cut_power_after(step)
            epochs = Ledger(list(ledger.tried), ledger.promised, list(ledger.epochs))
            try:
                epochs.start(again)
                done = True
            except PowerLost:
                pass
            check_and_go_on(
                again.crash(keep, seed=step), Ledger(ledger.tried, ledger.promised, epochs.epochs)
            )
            step += 1
        assert step > 5


def test_a_killed_process_loses_nothing_at_all() -> None:
    disk, ledger = MemoryDisk(), Ledger()
    life(disk, ledger)
    after = disk.kill()
    assert state_of(after) == ledger.tried
    check_and_go_on(after, ledger)


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_any_failing_call_loses_nothing_promised_and_raises_an_error_of_ours(
    error: int, lasting: bool
) -> None:
    for call in (
        "write_at",
        "sync",
        "allocate",
        "truncate",
        "create",
        "open",
        "rename",
        "remove",
        "sync_folder",
    ):
        nth, struck = 1, True
        while struck:
            disk, ledger = MemoryDisk(), Ledger()
            disk.faults.append(Fault(call, nth=nth, error=error, lasting=lasting, keep_bytes=nth % 90))
            with contextlib.suppress(MeshError):
                life(disk, ledger)
            struck = disk.faults[0].nth <= 0
            for keep in (Keep.NOTHING, Keep.EVERYTHING, Keep.SUBSET):
                check_and_go_on(disk.crash(keep, seed=nth), ledger)
            check_and_go_on(disk.kill(), ledger)
            nth += 1
        assert nth > 2


def test_a_name_that_could_not_be_synced_is_synced_before_a_start_builds_on_it() -> None:
    """The disk fails while a segment gets its name, and the power goes in the next start."""
    step, done = 0, False
    while not done:
        for seed in range(8):
            disk, ledger = MemoryDisk(), Ledger()
            ledger.append(ledger.start(disk))
            killed = disk.kill()
            killed.faults.append(Fault("sync_folder", nth=2, within="journal"))
            with pytest.raises(JournalPoisoned):
                ledger.start(killed)
            again = killed.kill()
            again.cut_power_after(step)
            with contextlib.suppress(PowerLost):
                ledger.start(again)
                done = True
            check_and_go_on(again.crash(Keep.SUBSET, seed=seed), ledger)
        step += 1
    assert step > 10
