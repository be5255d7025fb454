"""Any part of the journal alone: every event in exactly one result, whatever is damaged."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from relaymesh.errors import JournalDamaged
from relaymesh.journal import Frame, archive_behind, list_segments, read_frames
from relaymesh.journal.extent import (
    Boundary,
    Extent,
    Unreadable,
    frame_boundaries,
    list_extents,
    read_between,
)
from relaymesh.testing.disk import MemoryDisk
from tests.journal.small import Ledger


def running(frames: int = 14) -> MemoryDisk:
    """A journal with a writer at work on it: everything synced but the last frame."""
    disk, ledger = MemoryDisk(), Ledger()
    writer = ledger.start(disk)
    for _ in range(frames):
        ledger.append(writer)
        ledger.sync(writer)
    ledger.append(writer)
    return disk


def places(disk: MemoryDisk, extent: Extent) -> list[Boundary]:
    return [*frame_boundaries(disk, extent), extent.end]


def frames_between(disk: MemoryDisk, extent: Extent, start: Boundary, end: Boundary) -> list[Frame]:
    parts = list(read_between(disk, extent.segment, start, end, extent.salt))
    assert not [part for part in parts if isinstance(part, Unreadable)]
    return [part for part in parts if isinstance(part, Frame)]


def test_extents_end_where_readers_end() -> None:
    disk = running()
    extents = list_extents(disk)
    frames = list(read_frames(disk))
    assert [each.segment for each in extents] == list_segments(disk)
    assert extents[-1].end.sequence == frames[-1].next_sequence
    assert all(one.end.sequence == two.start.sequence for one, two in pairwise(extents))


def test_without_the_mark_file_the_frames_own_marks_bound_the_live_segment() -> None:
    disk = running()
    files = {name: data for name, data in disk.files().items() if name != "mark"}
    assert list_extents(MemoryDisk(files)) == list_extents(disk)


def test_headers_alone_tell_where_frames_begin() -> None:
    disk = running()
    told = [place for extent in list_extents(disk) for place in frame_boundaries(disk, extent)]
    assert told == [Boundary(frame.offset, frame.first_sequence) for frame in read_frames(disk)]


def test_the_frames_between_any_two_places_are_those_of_a_whole_read() -> None:
    disk = running()
    for extent in list_extents(disk):
        name = extent.segment.name.file
        whole = [frame for frame in read_frames(disk) if frame.segment == name]
        cuts = places(disk, extent)
        for i, start in enumerate(cuts):
            for j, end in enumerate(cuts[i:], start=i):
                assert frames_between(disk, extent, start, end) == whole[i:j]


def test_an_extent_is_read_from_the_archive_when_it_moved_there() -> None:
    disk, ledger = MemoryDisk(), Ledger()
    writer = ledger.start(disk)
    for _ in range(8):
        ledger.append(writer)
        ledger.checkpoint(disk, writer)
    extents = list_extents(disk)
    assert archive_behind(disk, writer.synced)
    for extent in extents:
        assert frames_between(disk, extent, extent.start, extent.end)


def test_a_dropped_segment_is_told_apart_from_a_damaged_one() -> None:
    disk = running()
    extent = list_extents(disk)[0]
    disk.remove(extent.segment.path)
    with pytest.raises(FileNotFoundError):
        list(read_between(disk, extent.segment, extent.start, extent.end, extent.salt))


class Interfered(MemoryDisk):
    """A disk on which a node does something right after each listing of a folder."""

    node_acts: Callable[[], None] | None = None

    def list(self, folder: str) -> list[str]:
        names = super().list(folder)
        if self.node_acts is not None:
            self.node_acts()
        return names


def test_a_segment_that_is_archived_between_two_listings_is_not_missed() -> None:
    disk = Interfered(running().files())
    disk.make_folder("archive")
    before = [each.name for each in list_segments(disk)]
    waiting = [each.path for each in list_segments(disk)[:-1]]

    def archive_one() -> None:
        if waiting:
            path = waiting.pop(0)
            disk.rename(path, path.replace("journal/", "archive/"))

    disk.node_acts = archive_one
    while waiting:
        assert [each.name for each in list_segments(disk)] == before
        assert [each.segment.name for each in list_extents(disk)] == before


def test_a_segment_that_is_dropped_behind_the_listing_is_not_damage() -> None:
    disk = Interfered(running().files())
    oldest = list_segments(disk)[0]
    listings = iter(("journal", "archive"))

    def drop_behind_the_second() -> None:
        if next(listings, "") == "archive":
            disk.remove(oldest.path)

    disk.node_acts = drop_behind_the_second
    extents = list_extents(disk)
    assert extents[0].segment.name.number == oldest.name.number + 1


def test_a_missing_segment_in_the_middle_is_damage() -> None:
    disk = running()
    disk.remove(list_segments(disk)[2].path)
    with pytest.raises(JournalDamaged, match="is missing"):
        list_extents(disk)


def test_whatever_byte_is_bad_each_event_is_read_or_named_as_unreadable() -> None:
    """A flipped bit in every byte of the journal, one at a time."""
    disk = running(frames=7)
    whole = list(read_frames(disk))
    by_sequence = {frame.first_sequence: frame.payload for frame in whole}
    paths = [segment.path for segment in list_segments(disk)]
    for path in paths:
        size = len(disk.files()[path])
        for offset in range(size):
            files = dict(disk.files())
            data = bytearray(files[path])
            data[offset] ^= 0x10
            files[path] = bytes(data)
            check_accounts(MemoryDisk(files), by_sequence, whole[-1].next_sequence)


def test_a_bad_header_is_told_though_no_event_is_missing() -> None:
    disk = running()
    segment = list_segments(disk)[1]
    disk.flip(segment.path, 20, 3)
    extent = list_extents(disk)[1]
    first, *rest = read_between(disk, extent.segment, extent.start, extent.end, extent.salt)
    assert isinstance(first, Unreadable)
    assert (first.offset, first.first, first.end) == (0, extent.start.sequence, extent.start.sequence)
    assert rest
    assert all(isinstance(part, Frame) for part in rest)


def check_accounts(disk: MemoryDisk, payloads: dict[int, bytes], end: int) -> None:
    sequence = 1
    for extent in list_extents(disk):
        for part in read_between(disk, extent.segment, extent.start, extent.end, extent.salt):
            if isinstance(part, Frame):
                assert part.first_sequence == sequence
                assert part.payload == payloads[sequence]
                sequence = part.next_sequence
            else:
                assert part.first == sequence
                assert part.why
                sequence = part.end
    assert sequence == end


def test_two_segments_of_one_first_sequence_are_no_trouble() -> None:
    """A start that wrote nothing, and another one."""
    disk, ledger = MemoryDisk(), Ledger()
    ledger.start(disk).close()
    writer = ledger.start(disk)
    ledger.append(writer)
    ledger.sync(writer)
    extents = list_extents(disk)
    assert [each.start.sequence for each in extents][-1] == 1
    assert sum(each.end.sequence - each.start.sequence for each in extents) == len(ledger.tried)
