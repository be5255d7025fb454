"""The end of the journal after power loss: torn, reordered, or stale, it never keeps a node from starting."""

from __future__ import annotations

import logging

import pytest

from relaymesh.errors import JournalDamaged
from relaymesh.journal import JournalSettings, recover
from relaymesh.testing.disk import Fault, MemoryDisk
from tests.journal import stranger
from tests.journal.small import SMALL, Ledger, replay, state_of


def with_unsynced_end(synced: int, unsynced: int) -> tuple[dict[str, bytes], Ledger, str]:
    """A journal in one segment, as a killed process leaves it, and that segment's path."""
    disk, ledger = MemoryDisk(), Ledger()
    writer = ledger.start(disk)
    for _ in range(synced):
        ledger.append(writer)
        ledger.sync(writer)
    for _ in range(unsynced):
        ledger.append(writer)
    return disk.files(), ledger, f"journal/{writer.segment}"


def test_the_last_unsynced_frame_cut_at_any_byte_is_dropped_whole(caplog: pytest.LogCaptureFixture) -> None:
    files, ledger, path = with_unsynced_end(synced=2, unsynced=1)
    last = stranger.frames(files[path])[-1]
    allocated = len(files[path])
    for kept in range(last.end - last.start):
        for padding in (0, allocated - last.start - kept):  # the file ends there, or zeros follow
            caplog.clear()
            torn = files[path][: last.start + kept] + bytes(padding)
            disk = MemoryDisk({**files, path: torn})
            writer = Ledger(ledger.tried, 2, [1]).start(disk)
            assert writer.next_sequence == last.first_sequence
            warned = [record for record in caplog.records if record.levelno == logging.WARNING]
            whole_of_it = len(torn.rstrip(b"\0")) - last.start
            if whole_of_it > 0:
                assert (
                    f"{path} has a torn tail at offset {last.start}: {whole_of_it} bytes" in warned[0].message
                )
            assert len(warned) == (whole_of_it > 0)


def test_a_later_unsynced_frame_without_the_earlier_one_still_starts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files, ledger, path = with_unsynced_end(synced=1, unsynced=3)
    lost = stranger.frames(files[path])[2]
    hole = files[path][: lost.start] + bytes(lost.end - lost.start) + files[path][lost.end :]
    assert state_of(MemoryDisk({**files, path: hole})) == ledger.tried[:1]
    assert "torn tail" in caplog.text


def test_the_same_hole_below_the_mark_is_damage() -> None:
    files, _, path = with_unsynced_end(synced=3, unsynced=1)
    lost = stranger.frames(files[path])[2]
    hole = files[path][: lost.start] + bytes(lost.end - lost.start) + files[path][lost.end :]
    for kept in (files, {name: data for name, data in files.items() if name != "mark"}):
        disk = MemoryDisk({**kept, path: hole})
        with pytest.raises(JournalDamaged, match=f"{path} is damaged at offset {lost.start}"):
            state_of(disk)
        assert disk.files()[path] == hole, "never truncated"


def test_a_segment_that_ends_before_the_mark_is_damage() -> None:
    files, _, path = with_unsynced_end(synced=2, unsynced=0)
    last = stranger.frames(files[path])[-1]
    with pytest.raises(JournalDamaged, match="ends before the mark"):
        state_of(MemoryDisk({**files, path: files[path][: last.start]}))


def test_a_missing_newest_segment_is_damage_as_long_as_the_mark_names_it() -> None:
    files, _, path = with_unsynced_end(synced=2, unsynced=0)
    del files[path]
    with pytest.raises(JournalDamaged, match="segment 1, which the mark names, is missing"):
        state_of(MemoryDisk(files))


def test_a_missing_segment_in_the_middle_is_damage() -> None:
    disk, ledger = MemoryDisk(), Ledger()
    writer = ledger.start(disk)
    for _ in range(12):
        ledger.append(writer)
    files = disk.files()
    middle = sorted(name for name in files if name.startswith("journal/"))[1]
    del files[middle]
    with pytest.raises(JournalDamaged, match="segment 2, which comes before it, is missing"):
        state_of(MemoryDisk(files))


def test_the_unsynced_tail_is_rewritten_and_synced_before_anything_else_happens() -> None:
    files, ledger, path = with_unsynced_end(synced=2, unsynced=2)
    disk = MemoryDisk(files)
    writer = Ledger(ledger.tried, 4, [1]).start(disk)
    (header, *rewritten) = stranger.frames(disk.files()[f"journal/{writer.segment}"])
    assert [frame.payload for frame in rewritten] == ledger.tried[2:]
    assert stranger.seal(header) == (1, stranger.frames(files[path])[3].start)
    assert header.mark == rewritten[-1].end
    assert state_of(disk.crash()) == ledger.tried


def test_bytes_a_failed_sync_left_in_memory_are_not_trusted() -> None:
    disk, ledger = MemoryDisk(), Ledger()
    writer = ledger.start(disk)
    ledger.append(writer)
    ledger.sync(writer)
    ledger.append(writer)
    disk.faults.append(Fault("sync"))
    with pytest.raises(Exception, match="sync"):
        writer.sync()
    disk = disk.kill()
    ledger.start(disk)
    assert len(ledger.tried) == 2, "the page cache still had the frame"
    assert state_of(disk.crash()) == ledger.tried, "and now the disk has it too"


def test_an_old_segment_is_never_written_to_again() -> None:
    files, ledger, path = with_unsynced_end(synced=2, unsynced=2)
    dirty = files[path].rstrip(b"\0") + b"torn" + bytes(50)
    disk = MemoryDisk({**files, path: dirty})
    writer = Ledger(ledger.tried, 2, [1]).start(disk)
    writer.append(b"more", 1, 1)
    writer.sync()
    assert disk.files()[path] == dirty.rstrip(b"\0"), "only zeros were cut off"


def test_an_old_mark_costs_nothing_but_more_rewriting() -> None:
    files, ledger, _ = with_unsynced_end(synced=1, unsynced=0)
    newer, ledger, _ = with_unsynced_end(synced=3, unsynced=0)
    disk = MemoryDisk({**newer, "mark": files["mark"]})
    assert state_of(disk) == ledger.tried


def test_restarts_without_events_add_up_to_nothing() -> None:
    disk, ledger = MemoryDisk(), Ledger()
    for _ in range(5):
        ledger.start(disk).close()
    ledger.append(writer := ledger.start(disk))
    writer.close()
    recovery = recover(disk, SMALL)
    assert replay(recovery) == ledger.tried
    assert recovery.epoch == 7
    assert recovery.last_written_at_ns == 5000


def test_whole_frames_in_the_wrong_place_are_damage() -> None:
    files, _, path = with_unsynced_end(synced=4, unsynced=0)
    _, first, second, _, fourth = stranger.frames(files[path])
    data = files[path]
    assert first.end - first.start == fourth.end - fourth.start, "the same length, so only the chain can tell"
    swapped = (
        data[: first.start]
        + data[fourth.start : fourth.end]
        + data[second.start : fourth.start]
        + data[first.start : first.end]
        + data[fourth.end :]
    )
    repeated = data[: second.start] + data[first.start : first.end] + data[second.start :]
    dropped = data[: second.start] + data[second.end :]
    for bad, offset in ((swapped, first.start), (repeated, second.start), (dropped, second.start)):
        with pytest.raises(JournalDamaged, match=f"damaged at offset {offset}: the frame does not continue"):
            state_of(MemoryDisk({**files, path: bad}))


def test_frames_of_another_segment_are_not_taken_for_its_own() -> None:
    disk, ledger = MemoryDisk(), Ledger()
    writer = ledger.start(disk)
    for _ in range(7):
        ledger.append(writer)
    writer.sync()
    files = disk.files()
    first, second = sorted(name for name in files if name.startswith("journal/"))
    foreign = stranger.frames(files[first])[1]
    pasted = files[second].rstrip(b"\0") + files[first][foreign.start : foreign.end]
    recovery = recover(MemoryDisk({**files, second: pasted}), SMALL)
    assert replay(recovery) == ledger.tried
    assert recovery.torn is not None
    assert recovery.torn.why == "the frame belongs to another file"


def test_a_message_that_contains_a_frame_is_not_mistaken_for_one() -> None:
    """A torn write whose payload holds journal bytes: the scan behind it must not take them as evidence."""
    other, _, other_path = with_unsynced_end(synced=3, unsynced=0)
    disk = MemoryDisk(seed=99)
    writer = recover(disk, JournalSettings(allocate_bytes=2000)).open_writer(0)
    writer.append(b"before", 1, 0)
    writer.sync()
    writer.append(b"a journal in a message: " + other[other_path].rstrip(b"\0"), 1, 0)
    files = disk.files()
    path = f"journal/{writer.segment}"
    torn = bytearray(files[path])
    torn[stranger.frames(files[path])[2].start + 10] ^= 1
    assert state_of(MemoryDisk({**files, path: bytes(torn)})) == [b"before"]


def test_a_segment_swapped_for_the_same_one_of_another_journal_is_damage() -> None:
    journals = []
    for seed in (1, 2):
        disk = MemoryDisk(seed=seed)
        writer = recover(disk, SMALL).open_writer(0)
        for _ in range(7):
            writer.append(b"the same in both", 1, 0)
        writer.sync()
        journals.append(disk.files())
    ours, theirs = journals
    first = min(name for name in ours if name.startswith("journal/"))
    assert len(ours[first]) == len(theirs[first])
    with pytest.raises(JournalDamaged, match="not the one its successor sealed"):
        state_of(MemoryDisk({**ours, first: theirs[first]}))
