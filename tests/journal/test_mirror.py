"""The mirror: the same bytes in two directories, and either of them is enough."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from relaymesh.errors import DirectoryInUse, JournalDamaged, JournalPoisoned, MeshError
from relaymesh.journal import (
    File,
    JournalSettings,
    Mirror,
    MirrorMode,
    archive_behind,
    read_note,
    recover,
    restore_from,
    verify,
)
from relaymesh.journal.lockstep import Syncing
from relaymesh.node.disk import RealDisk, RealFile
from relaymesh.testing.disk import Fault, Keep, MemoryDisk
from tests.journal.mirrored import (
    OWN,
    Pair,
    agreed,
    damaged_pair,
    files_of,
    same_trees,
    started,
)
from tests.journal.small import SMALL, state_of

# -- the same bytes


@pytest.mark.parametrize("mode", ["required", "best_effort"])
def test_the_mirror_holds_the_same_bytes_through_a_whole_life(mode: MirrorMode) -> None:
    pair = Pair(mode=mode)
    pair.life()
    names = files_of(pair.mirror)
    assert sum(name.startswith("journal/") for name in names) >= 2
    assert any(name.startswith("archive/") for name in names)
    assert sum(name.startswith("checkpoints/") for name in names) == 2
    assert not any("/000000000001-" in name for name in names), "retention reached the mirror"
    pair.check_same()
    assert pair.writer.mirror_state == "in step"
    assert verify(pair.mirror).damage == []
    assert state_of(pair.mirror.crash()) == pair.ledger.tried


def test_a_journal_without_a_mirror_has_no_mirror_state() -> None:
    assert recover(MemoryDisk(), SMALL).open_writer(0).mirror_state is None


def test_an_old_journal_is_copied_into_a_new_mirror() -> None:
    pair = Pair()
    ledger = pair.ledger
    writer = ledger.start(pair.primary)
    for _ in range(10):
        ledger.append(writer)
    ledger.checkpoint(pair.primary, writer)
    writer.close()
    pair.start()
    pair.check_same()
    pair.check_mirror_alone()
    assert not pair.mirror.exists("incomplete")


def test_a_mirror_that_missed_some_starts_is_brought_in_step() -> None:
    pair = started()
    pair.fill(7)
    pair.writer.close()
    writer = pair.ledger.start(pair.primary)
    for _ in range(9):
        pair.ledger.append(writer)
    pair.ledger.checkpoint(pair.primary, writer)
    pair.ledger.append(writer)
    pair.ledger.checkpoint(pair.primary, writer)
    archive_behind(pair.primary, writer.synced)
    writer.close()
    pair.start()
    pair.check_same()
    pair.check_mirror_alone()


def test_only_what_the_mirror_lacks_is_copied() -> None:
    pair = started()
    pair.fill(20)
    pair.writer.close()
    before = pair.mirror.calls["create"]
    pair.start()
    new_segment, epoch = 1, 1
    assert pair.mirror.calls["create"] - before == new_segment + epoch + 1, "and the lock's text"


def test_what_the_mirror_had_not_synced_is_compared_byte_by_byte() -> None:
    """Power loss left a hole in the middle of its newest segment: size, beginning and end are right."""
    pair = Pair()
    settings = JournalSettings(allocate_bytes=0)
    writer = recover(pair.primary, settings, Mirror(pair.mirror, syncing="mirror first")).open_writer(0)
    for number in range(5):
        writer.append(b"%d" % number * 5000, 1, 1)
    writer.close()
    newest = f"journal/{writer.segment}"
    holed = bytearray(pair.mirror.files()[newest])
    holed[11_000:12_000] = bytes(1000)
    pair.mirror.put(newest, bytes(holed))
    recover(pair.primary, settings, Mirror(pair.mirror, syncing="mirror first")).open_writer(0)
    pair.check_same()
    assert verify(pair.mirror).damage == []


# -- both syncs at once


class MeetingFile:
    """A file whose sync waits until the other disk is in one too."""

    def __init__(self, file: File, meeting: threading.Barrier) -> None:
        self._file = file
        self._meeting = meeting

    def sync(self) -> None:
        self._meeting.wait(10)
        self._file.sync()

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)


class MeetingDisk(RealDisk):
    """Its live segments are synced only together with the other disk's."""

    def __init__(self, root: Path, meeting: threading.Barrier) -> None:
        super().__init__(root)
        self._meeting = meeting

    def open(self, name: str, *, create: bool = False, write: bool = True) -> RealFile:
        file = super().open(name, create=create, write=write)
        live = name.startswith("journal/") and write and not create
        return MeetingFile(file, self._meeting) if live else file  # type: ignore[return-value]


def test_a_commit_syncs_both_disks_at_the_same_time(tmp_path: Path) -> None:
    meeting = threading.Barrier(2)  # broken after 10 s if one sync waited for the other
    primary, second = (MeetingDisk(tmp_path / name, meeting) for name in ("primary", "mirror"))
    writer = recover(primary, JournalSettings(), Mirror(second)).open_writer(1)
    for number in range(5):
        writer.append(b"x", 1, number)
        assert writer.sync() == number + 2
    writer.close()
    assert same_trees(tmp_path)


# -- failures of a required mirror


@pytest.mark.parametrize("syncing", ["mirror first", "primary first", "together"])
@pytest.mark.parametrize("call", ["write_at", "sync"])
def test_a_required_mirror_that_fails_poisons_the_journal(call: str, syncing: Syncing) -> None:
    pair = started(syncing=syncing)
    pair.fill(2)
    pair.mirror.faults.append(Fault(call, within="journal/"))
    with pytest.raises(JournalPoisoned, match="on the mirror"):
        pair.fill(1)
    pair.writer.close()
    with pytest.raises(MeshError):
        pair.fill(1)
    after = pair.crash(Keep.NOTHING, 0)
    after.check_mirror_alone()
    after.start()
    after.check_same()


@pytest.mark.parametrize("syncing", ["mirror first", "primary first", "together"])
def test_a_failing_sync_of_the_primary_poisons_too(syncing: Syncing) -> None:
    pair = started(syncing=syncing)
    pair.primary.faults.append(Fault("sync", within="journal/"))
    with pytest.raises(JournalPoisoned, match="syncing journal/"):
        pair.fill(1)
    pair.writer.close()


def test_a_full_mirror_refuses_publishes_and_recovers_by_itself() -> None:
    pair = started()
    pair.fill(2)
    pair.mirror.free = 100
    pair.mirror.faults.append(Fault("allocate", error=errno.ENOSPC, lasting=True))
    pair.fill(6)
    assert not pair.writer.room(1)
    assert pair.writer.poisoned is None
    pair.mirror.free, pair.mirror.faults = 10**9, []
    assert pair.writer.room(1)
    pair.fill(6)
    pair.check_mirror_alone()


def test_a_required_mirror_on_a_full_disk_refuses_the_start_and_says_what_to_do() -> None:
    pair = started()
    pair.fill(8)
    pair.writer.close()
    pair.mirror = MemoryDisk()
    pair.mirror.faults.append(Fault("write_at", error=errno.ENOSPC, within="journal/"))
    with pytest.raises(JournalPoisoned, match="could not be brought in step") as refused:
        pair.start()
    assert "free or repair its disk" in refused.value.hint
    pair.mirror.faults.clear()
    pair.start()
    pair.check_same()


# -- what a start refuses


def test_a_lost_primary_is_not_started_empty() -> None:
    pair = started()
    pair.fill(4)
    pair.writer.close()
    before = pair.mirror.files()
    pair.primary = MemoryDisk()
    for pair.mode in ("required", "best_effort"):
        with pytest.raises(JournalDamaged, match="has no journal, but its mirror"):
            pair.start()
    after = pair.mirror.files()
    assert {k: v for k, v in after.items() if k != "lock"} == {k: v for k, v in before.items() if k != "lock"}
    pair.check_mirror_alone()


def test_a_primary_that_lost_synced_events_is_refused() -> None:
    pair = started()
    pair.fill(3)
    old = MemoryDisk(pair.primary.files())
    pair.fill(3)
    pair.writer.close()
    pair.primary = old
    for pair.mode in ("required", "best_effort"):
        with pytest.raises(JournalDamaged, match="proves that everything before"):
            pair.start()
    pair.check_mirror_alone()


def test_damage_that_looks_torn_without_the_mark_is_known_from_the_mirror() -> None:
    """Power loss took the mark file and a bit of the last frame: alone, nothing says it was synced."""
    pair = started()
    pair.fill(1)
    pair.fill(1)
    files = pair.primary.files()
    live = max(name for name in files if name.startswith("journal/"))
    end = len(files[live].rstrip(b"\0"))
    data = bytearray(files[live])
    data[end - 3] ^= 4
    files[live] = bytes(data)
    del files["mark"]
    assert len(state_of(MemoryDisk(files))) == 1, "dropped as a torn tail"
    pair.writer.close()
    pair.primary = MemoryDisk(files)
    with pytest.raises(JournalDamaged, match="proves that everything before"):
        pair.start()


def test_a_damaged_primary_is_not_copied_over_the_mirror() -> None:
    pair = started()
    pair.fill(12)
    pair.writer.close()
    files = pair.primary.files()
    for name in [name for name in files if name.startswith("journal/")][:-1]:
        data = bytearray(files[name])
        data[150] ^= 1
        pair.primary = MemoryDisk({**files, name: bytes(data)})
        pair.ledger.epochs.clear()
        with pytest.raises(JournalDamaged, match=name):
            pair.start()
        pair.check_mirror_alone()


def test_a_mirror_of_another_journal_is_not_overwritten() -> None:
    pair, other = started(), Pair(MemoryDisk(seed=5))
    other.start()
    pair.fill(5)
    other.fill(3)
    pair.writer.close()
    other.writer.close()
    before = files_of(other.mirror)
    pair.mirror = other.mirror
    with pytest.raises(JournalDamaged, match="another journal"):
        pair.start()
    assert files_of(other.mirror) == before


def test_a_mirror_in_use_is_refused() -> None:
    pair = started()
    other = Pair(mirror=pair.mirror)
    with pytest.raises(DirectoryInUse, match="the mirror mirror is in use: process 1"):
        other.start()
    pair.writer.close()
    pair.start()


def test_the_note_names_the_mirror() -> None:
    primary = MemoryDisk()
    mirror = Mirror(MemoryDisk(), "best_effort", "/mnt/other disk", "/srv/mesh", "mirror first")
    recover(primary, SMALL, mirror).open_writer(0)
    note = read_note(primary)
    assert note is not None
    assert (note.path, note.mode, note.of) == ("/mnt/other disk", "best_effort", "/srv/mesh")


# -- restoring


def test_a_restored_directory_is_the_mirror_and_the_old_files_are_aside() -> None:
    pair = damaged_pair()
    before = pair.primary.files()
    done = restore_from(pair.mirror, pair.primary, "aside", agreed)
    after = pair.primary.files()
    assert done.aside == "aside"
    for name, data in before.items():
        assert after[name if name in OWN else f"aside/{name}"] == data or name == "lock"
    restored = {n: data for n, data in after.items() if not n.startswith("aside/") and n not in OWN}
    assert restored == files_of(pair.mirror)
    pair.start()
    assert pair.writer.next_sequence == pair.ledger.next_sequence()
