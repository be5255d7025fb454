"""Readers see synced frames only, take no lock, and find a sequence by the segments' names."""

from __future__ import annotations

import itertools

import pytest

from relaymesh.errors import JournalDamaged
from relaymesh.journal import Frame, archive_behind, list_segments, read_frames, read_mark, verify
from relaymesh.testing.disk import MemoryDisk
from tests.journal import stranger
from tests.journal.small import Ledger


def running(frames: int = 12) -> tuple[MemoryDisk, Ledger]:
    """A journal with a writer at work on it: everything synced but the last frame."""
    disk, ledger = MemoryDisk(), Ledger()
    writer = ledger.start(disk)
    for _ in range(frames):
        ledger.append(writer)
        ledger.sync(writer)
    ledger.append(writer)
    return disk, ledger


def payloads(disk: MemoryDisk, **which: int) -> list[bytes]:
    return [frame.payload for frame in read_frames(disk, **which)]


def test_a_reader_beside_a_running_node_sees_what_is_synced() -> None:
    disk, ledger = running()
    assert payloads(disk) == ledger.tried[:-1]
    assert disk.locked


def test_without_the_mark_file_the_frames_own_marks_bound_the_reader() -> None:
    disk, ledger = running()
    files = {name: data for name, data in disk.files().items() if name != "mark"}
    assert payloads(MemoryDisk(files)) == ledger.tried[:-1]


def test_a_reader_changes_nothing() -> None:
    disk, _ = running()
    before = (disk.changes, disk.files())
    payloads(disk)
    verify(disk)
    assert (disk.changes, disk.files()) == before


def test_every_range_of_sequences_gives_the_frames_that_touch_it() -> None:
    disk, _ = running()
    everything = list(read_frames(disk))
    last = everything[-1].next_sequence
    for first, end in itertools.product(range(last + 2), range(last + 2)):

        def touches(frame: Frame, first: int = first, end: int = end) -> bool:
            return frame.next_sequence > first and frame.first_sequence < end

        assert list(read_frames(disk, first, end)) == [frame for frame in everything if touches(frame)]


def test_a_range_opens_only_its_own_segments_and_the_one_behind_them() -> None:
    disk, _ = running(frames=30)
    segments = list_segments(disk)
    assert len(segments) > 6
    before = disk.calls["open"]
    assert payloads(
        disk, from_sequence=segments[2].name.first_sequence, through=segments[3].name.first_sequence
    )
    opened = disk.calls["open"] - before
    assert opened <= 5, "two headers, one segment, the mark"


def test_a_rotation_while_a_reader_runs_does_not_disturb_it() -> None:
    disk, ledger = MemoryDisk(), Ledger()
    writer = ledger.start(disk)
    for _ in range(3):
        ledger.append(writer)
        ledger.sync(writer)
    frames = read_frames(disk)
    first = next(frames)
    for _ in range(20):
        ledger.append(writer)
        ledger.sync(writer)
    assert [first.payload, *(frame.payload for frame in frames)] == ledger.tried[:3]


def test_a_segment_archived_while_a_reader_runs_is_still_found() -> None:
    disk, ledger = MemoryDisk(), Ledger()
    writer = ledger.start(disk)
    for _ in range(3):
        for _ in range(6):
            ledger.append(writer)
        ledger.checkpoint(disk, writer)
    frames = read_frames(disk)
    first = next(frames)
    assert len(archive_behind(disk, writer.synced)) > 1
    assert [first.payload, *(frame.payload for frame in frames)] == ledger.tried


def test_a_reader_stops_at_damage_and_names_it() -> None:
    disk, _ = running()
    path = list_segments(disk)[1].path
    files = disk.files()
    bad = stranger.frames(files[path])[2]
    data = bytearray(files[path])
    data[bad.start + 70] ^= 4
    with pytest.raises(JournalDamaged, match=f"{path} is damaged at offset {bad.start}: the checksum"):
        payloads(MemoryDisk({**files, path: bytes(data)}))


def test_the_mark_says_how_far_the_journal_is_synced() -> None:
    disk, _ = running()
    mark = read_mark(disk)
    assert mark is not None
    assert mark.sequence == list(read_frames(disk))[-1].next_sequence
    assert mark.segment == list_segments(disk)[-1].name.number


def test_an_empty_directory_reads_as_nothing() -> None:
    assert payloads(MemoryDisk()) == []
    assert verify(MemoryDisk()).segments == 0


def test_verify_counts_everything() -> None:
    disk, ledger = running()
    report = verify(disk)
    assert (report.frames, report.damage, report.torn_tail) == (13, [], None)
    assert report.segments == len(list_segments(disk))
    assert report.bytes == sum(64 + len(payload) for payload in ledger.tried)
    assert (report.first_sequence, report.next_sequence) == (1, ledger.next_sequence())
    assert report.events == ledger.next_sequence() - 1


def test_verify_goes_on_behind_damage_and_names_each_place() -> None:
    disk, _ = running()
    files = disk.files()
    paths = [segment.path for segment in list_segments(disk)]
    bad = [stranger.frames(files[path])[1] for path in paths[:2]]
    for path, frame in zip(paths, bad, strict=False):
        data = bytearray(files[path])
        data[frame.start + 64] ^= 1
        files[path] = bytes(data)
    report = verify(MemoryDisk(files))
    assert [(each.segment, each.offset) for each in report.damage] == [
        (path, frame.start) for path, frame in zip(paths, bad, strict=False)
    ]
    assert report.frames == 11, "one bad frame hides no other"


def test_verify_tells_of_a_torn_tail() -> None:
    disk, _ = running()
    files = disk.files()
    path = list_segments(disk)[-1].path
    report = verify(MemoryDisk({**files, path: files[path].rstrip(b"\0")[:-1]}))
    assert report.damage == []
    assert report.torn_tail is not None
    assert report.torn_tail.segment == path
