"""Checkpoints shorten the replay, fall back when damaged, and never cost a byte of journal."""

from __future__ import annotations

import pytest

from relaymesh.errors import JournalDamaged
from relaymesh.journal import archive_behind, drop_archived, list_segments, read_frames, recover, verify
from relaymesh.journal.checkpoint import list_checkpoints
from relaymesh.testing.disk import MemoryDisk
from tests.journal import stranger
from tests.journal.small import SMALL, Ledger, replay, state_of


def with_checkpoints(count: int) -> tuple[MemoryDisk, Ledger]:
    disk, ledger = MemoryDisk(), Ledger()
    writer = ledger.start(disk)
    for _ in range(count):
        for _ in range(6):
            ledger.append(writer)
        ledger.checkpoint(disk, writer)
    ledger.append(writer)
    writer.close()
    return disk, ledger


def damage(disk: MemoryDisk, name: str) -> MemoryDisk:
    files = disk.files()
    data = bytearray(files[name])
    data[len(data) // 2] ^= 1
    return MemoryDisk({**files, name: bytes(data)})


def checkpoints(disk: MemoryDisk) -> list[str]:
    return sorted(f"checkpoints/{name}" for name in disk.list("checkpoints"))


def test_the_replay_begins_behind_the_newest_checkpoint() -> None:
    disk, ledger = with_checkpoints(2)
    recovery = recover(disk, SMALL)
    assert list(recovery.chunks()) == ledger.tried[:12]
    assert [frame.payload for frame in recovery.frames()] == ledger.tried[12:]
    assert recovery.checkpoint is not None
    assert recovery.checkpoint.sequence == list_checkpoints(disk)[0]


def test_only_the_newest_two_are_kept() -> None:
    disk, ledger = with_checkpoints(5)
    assert len(checkpoints(disk)) == 2
    assert state_of(disk) == ledger.tried


def test_a_damaged_checkpoint_falls_back_to_the_older_one(caplog: pytest.LogCaptureFixture) -> None:
    disk, ledger = with_checkpoints(3)
    older, newest = checkpoints(disk)
    disk = damage(disk, newest)
    recovery = recover(disk, SMALL)
    assert recovery.checkpoint is not None
    assert recovery.checkpoint.path == older
    assert replay(recovery) == ledger.tried
    assert "is damaged" in caplog.text
    assert disk.exists(f"{newest}.damaged"), "set aside, not deleted"


def test_two_damaged_checkpoints_mean_a_full_replay_also_from_the_archive() -> None:
    disk, ledger = with_checkpoints(3)
    assert archive_behind(disk, 10**9)
    for name in checkpoints(disk):
        disk = damage(disk, name)
    segments = len(list_segments(disk))
    recovery = recover(disk, SMALL)
    assert recovery.checkpoint is None
    assert replay(recovery) == ledger.tried
    assert len(list_segments(disk)) == segments, "no journal is deleted for want of a checkpoint"


def test_without_checkpoints_and_without_the_beginning_the_start_is_refused() -> None:
    disk, _ = with_checkpoints(3)
    archive_behind(disk, 10**9)
    assert drop_archived(disk, before_ns=10**9)
    for name in checkpoints(disk):
        disk = damage(disk, name)
    with pytest.raises(JournalDamaged, match="the events between are missing"):
        state_of(disk)
    assert not disk.locked


def test_a_journal_that_ends_before_its_checkpoint_is_damaged() -> None:
    disk, _ = with_checkpoints(1)
    files = {name: data for name, data in disk.files().items() if name != "mark"}
    last = max(name for name in files if name.startswith("journal/"))
    header = stranger.frames(files[last])[0]
    with pytest.raises(JournalDamaged, match="before the checkpoint"):
        state_of(MemoryDisk({**files, last: files[last][: header.end]}))
    with pytest.raises(JournalDamaged, match="no segment"):
        state_of(MemoryDisk({name: data for name, data in files.items() if not name.startswith("journal/")}))


def test_a_half_written_checkpoint_never_counts() -> None:
    disk, ledger = with_checkpoints(1)
    files = disk.files()
    (name,) = checkpoints(disk)
    files[f"{name[:-5]}9.rmc.new"] = files[name][:100]
    disk = MemoryDisk(files)
    assert state_of(disk) == ledger.tried
    assert checkpoints(disk) == [name]


def test_an_empty_checkpoint_is_whole() -> None:
    disk, ledger = MemoryDisk(), Ledger()
    ledger.checkpoint(disk, ledger.start(disk))
    recovery = recover(disk.crash(), SMALL)
    assert recovery.checkpoint is not None
    assert replay(recovery) == []


def test_the_archive_takes_only_what_the_older_checkpoint_does_not_need() -> None:
    disk, ledger = with_checkpoints(1)
    assert archive_behind(disk, 10**9) == [], "one checkpoint has no fallback yet"
    disk, ledger = with_checkpoints(3)
    older = min(list_checkpoints(disk))
    moved = archive_behind(disk, 10**9)
    left = [segment for segment in list_segments(disk) if segment.folder == "journal"]
    assert moved
    assert left[0].name.first_sequence <= older < left[1].name.first_sequence
    assert disk.list("archive") == moved
    assert archive_behind(disk, 10**9) == []
    assert state_of(damage(disk, checkpoints(disk)[1])) == ledger.tried


def test_the_archive_takes_nothing_beyond_the_given_sequence() -> None:
    disk, _ = with_checkpoints(3)
    second = list_segments(disk)[1].name.first_sequence
    assert archive_behind(disk, second - 1) == []
    assert len(archive_behind(disk, second)) == 1


def test_readers_find_archived_segments_under_the_same_name() -> None:
    disk, ledger = with_checkpoints(3)
    before = [(frame.segment, frame.offset, frame.payload) for frame in read_frames(disk)]
    assert archive_behind(disk, 10**9)
    assert [(frame.segment, frame.offset, frame.payload) for frame in read_frames(disk)] == before
    assert [payload for _, _, payload in before] == ledger.tried == stranger.all_payloads(disk.files())


def test_retention_drops_archived_segments_by_age_only() -> None:
    disk, ledger = with_checkpoints(3)
    moved = archive_behind(disk, 10**9)
    created = next(frame.written_at_ns for frame in read_frames(disk) if frame.segment == moved[1])
    assert drop_archived(disk, before_ns=created) == []
    assert drop_archived(disk, before_ns=created + 1) == moved[:1]
    assert drop_archived(disk, before_ns=10**9) == moved[1:]
    assert drop_archived(disk, before_ns=10**9) == []
    assert state_of(disk) == ledger.tried
    assert verify(disk).damage == []
    rest = [frame.payload for frame in read_frames(disk)]
    assert rest == ledger.tried[len(ledger.tried) - len(rest) :]


def test_retention_drops_nothing_while_a_checkpoint_does_not_read_back() -> None:
    disk, _ = with_checkpoints(3)
    assert archive_behind(disk, 10**9)
    for name in checkpoints(disk):
        assert drop_archived(damage(disk, name), before_ns=10**9) == []
