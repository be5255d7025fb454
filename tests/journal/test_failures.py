"""A failing disk poisons the journal; a full one refuses publishes first."""

from __future__ import annotations

import errno

import pytest

from relaymesh.errors import DiskFloor, JournalPoisoned
from relaymesh.journal import JournalSettings, Writer, list_segments, recover, write_checkpoint
from relaymesh.testing.disk import Fault, MemoryDisk
from tests.journal.small import SMALL, Ledger, state_of


def poisoned(writer: Writer, disk: MemoryDisk) -> None:
    """Every later call raises, and none of them reaches the disk."""
    assert isinstance(writer.poisoned, JournalPoisoned)
    changes = disk.changes
    for _ in range(2):
        with pytest.raises(JournalPoisoned):
            writer.append(b"x", 1, 1)
        with pytest.raises(JournalPoisoned):
            writer.sync()
    assert disk.changes == changes
    writer.close()
    assert disk.changes == changes
    assert not disk.locked


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_failed_write_of_a_frame_poisons(error: int) -> None:
    disk, ledger = MemoryDisk(), Ledger()
    writer = ledger.start(disk)
    ledger.append(writer)
    ledger.sync(writer)
    disk.faults.append(Fault("write_at", within="journal/", error=error, keep_bytes=30))
    with pytest.raises(JournalPoisoned, match="writing to journal/"):
        ledger.append(writer)
    assert writer.written == 2
    poisoned(writer, disk)
    assert state_of(disk.crash()) == ledger.tried[:1]


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_failed_sync_poisons_and_is_not_tried_again(error: int) -> None:
    disk, ledger = MemoryDisk(), Ledger()
    writer = ledger.start(disk)
    ledger.append(writer)
    disk.faults.append(Fault("sync", error=error))
    synced = writer.synced
    with pytest.raises(JournalPoisoned, match="syncing journal/"):
        writer.sync()
    assert writer.synced == synced
    poisoned(writer, disk)


def test_a_mark_that_cannot_be_written_poisons() -> None:
    disk, ledger = MemoryDisk(), Ledger()
    writer = ledger.start(disk)
    ledger.append(writer)
    disk.faults.append(Fault("write_at", within="mark"))
    with pytest.raises(JournalPoisoned, match="mark"):
        writer.sync()
    poisoned(writer, disk)
    assert state_of(disk.crash()) == ledger.tried


def test_a_failed_sync_at_rotation_poisons_and_no_successor_seals_the_old_segment() -> None:
    disk, ledger = MemoryDisk(), Ledger()
    writer = ledger.start(disk)
    disk.faults.append(Fault("sync", within="journal/"))
    for _ in range(4):
        ledger.append(writer)
    with pytest.raises(JournalPoisoned):
        ledger.append(writer)
    poisoned(writer, disk)
    assert len(list_segments(disk)) == 1


def test_a_full_disk_at_allocation_refuses_publishes_and_loses_nothing() -> None:
    disk, ledger = MemoryDisk(), Ledger()
    writer = ledger.start(disk)
    assert writer.room()
    disk.faults.append(Fault("allocate", error=errno.ENOSPC, lasting=True))
    for _ in range(10):
        ledger.append(writer)
    ledger.sync(writer)
    assert not writer.room()
    assert writer.poisoned is None
    assert "room.new" not in disk.list("journal")
    disk.faults.clear()
    assert writer.room(), "noticed without a restart"
    assert state_of(disk.crash()) == ledger.tried


def test_a_full_disk_at_rotation_stays_in_the_old_segment_until_there_is_room() -> None:
    disk, ledger = MemoryDisk(), Ledger()
    writer = ledger.start(disk)
    disk.faults.append(Fault("create", error=errno.ENOSPC, lasting=True, within="journal/"))
    for _ in range(10):
        ledger.append(writer)
    assert len(list_segments(disk)) == 1
    assert not writer.room()
    disk.faults.clear()
    ledger.append(writer)
    ledger.sync(writer)
    assert len(list_segments(disk)) == 2
    assert state_of(disk.crash()) == ledger.tried


def test_publishes_are_refused_below_the_floor_while_acks_go_on() -> None:
    settings = JournalSettings(allocate_bytes=1000, checkpoint_reserve_bytes=5000, room_refresh_bytes=300)
    disk = MemoryDisk(free=10_000)
    writer = recover(disk, settings).open_writer(0)
    assert writer.room()
    assert writer.room(4000)
    assert not writer.room(4001)
    disk.free = 5999
    while writer.room():
        writer.append(b"x" * 20, 1, 1)
    assert 200 < writer.bytes_written < 500, "asked again after room_refresh_bytes"
    writer.append(b"an ack", 1, 1)
    writer.sync()
    disk.free = 6000
    assert writer.room()


def test_a_larger_checkpoint_raises_the_floor() -> None:
    disk = MemoryDisk(free=10_000)
    writer = recover(disk, SMALL).open_writer(0)
    assert writer.room()
    writer.reserve_for_checkpoint(9_801)
    assert not writer.room()
    writer.reserve_for_checkpoint(0)
    assert writer.room()


def test_room_is_cheap_to_ask() -> None:
    disk = MemoryDisk()
    writer = recover(disk, SMALL).open_writer(0)
    writer.room()
    before = disk.calls["free_bytes"]
    for _ in range(100):
        assert writer.room()
    assert disk.calls["free_bytes"] == before


def test_a_checkpoint_without_room_is_refused_and_leaves_no_trace() -> None:
    disk, ledger = MemoryDisk(), Ledger()
    writer = ledger.start(disk)
    ledger.append(writer)
    ledger.sync(writer)
    disk.faults.append(Fault("write_at", nth=2, error=errno.ENOSPC, within="checkpoints/"))
    with pytest.raises(DiskFloor, match="checkpoint at sequence 2"):
        write_checkpoint(disk, writer.synced, ledger.chunks(), 0)
    assert disk.list("checkpoints") == []
    ledger.append(writer)
    ledger.sync(writer)
    assert writer.poisoned is None


def test_a_read_error_in_recovery_is_damage_not_an_end() -> None:
    disk, ledger = MemoryDisk(), Ledger()
    writer = ledger.start(disk)
    ledger.append(writer)
    writer.close()
    disk.faults.append(Fault("read_at", nth=2, within="journal/"))
    with pytest.raises(Exception, match="cannot be read at offset"):
        state_of(disk)
    assert not disk.locked
