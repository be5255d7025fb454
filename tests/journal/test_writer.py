"""The writer: sequences, rotation, and append beside sync."""

from __future__ import annotations

import errno
import threading
from itertools import pairwise

import pytest

from relaymesh.errors import Closed, InvalidSettings
from relaymesh.journal import FIRST_SEQUENCE, JournalSettings, list_segments, read_frames, recover
from relaymesh.testing.disk import Fault, Keep, MemoryDisk
from tests.journal import stranger
from tests.journal.small import SMALL, Ledger, state_of


def test_a_new_journal_begins_at_sequence_one_with_everything_synced() -> None:
    writer = recover(MemoryDisk(), SMALL).open_writer(0)
    assert (writer.next_sequence, writer.written, writer.synced) == (FIRST_SEQUENCE,) * 3 == (1, 1, 1)
    assert writer.epoch == 1
    assert writer.poisoned is None


def test_appended_events_are_written_at_once_and_synced_by_sync() -> None:
    writer = recover(MemoryDisk(), SMALL).open_writer(0)
    writer.append(b"three", 3, 10)
    writer.append(b"two", 2, 11)
    assert (writer.written, writer.synced) == (6, 1)
    assert writer.sync() == 6
    assert writer.synced == 6
    assert writer.bytes_written == 2 * 64 + 8


def test_a_frame_carries_what_it_was_given() -> None:
    disk = MemoryDisk()
    writer = recover(disk, SMALL).open_writer(0)
    writer.append(b"three", 3, 10)
    writer.append(b"two", 2, 11)
    writer.sync()
    first, second = read_frames(disk)
    assert (first.first_sequence, first.events, first.payload, first.written_at_ns) == (1, 3, b"three", 10)
    assert (second.first_sequence, second.epoch, second.segment) == (4, 1, writer.segment)
    assert second.offset == first.end


def test_a_sync_without_news_does_not_touch_the_disk() -> None:
    disk = MemoryDisk()
    writer = recover(disk, SMALL).open_writer(0)
    writer.append(b"x", 1, 1)
    writer.sync()
    changes = disk.changes
    writer.sync()
    assert disk.changes == changes


def test_one_sync_costs_one_data_sync_and_one_small_write() -> None:
    disk = MemoryDisk()
    writer = recover(disk, JournalSettings()).open_writer(0)
    writer.append(b"x", 1, 1)
    before = disk.calls.copy()
    writer.sync()
    assert disk.calls - before == {"sync": 1, "write_at": 1}


def test_a_full_segment_is_followed_by_one_that_seals_it() -> None:
    disk, ledger = MemoryDisk(), Ledger()
    writer = ledger.start(disk)
    while len(list_segments(disk)) < 3:
        ledger.append(writer)
    names = [segment.name for segment in list_segments(disk)]
    assert [name.number for name in names] == [1, 2, 3]
    files = disk.files()
    for name, after in pairwise(names):
        data, header = files[f"journal/{name.file}"], stranger.frames(files[f"journal/{after.file}"])[0]
        last = stranger.frames(data)[-1]
        assert stranger.seal(header) == (name.number, len(data)), "the space allocated ahead is given back"
        assert header.previous_crc == last.crc
        assert after.first_sequence == last.first_sequence + last.events
    ledger.sync(writer)
    assert stranger.all_payloads(disk.files()) == ledger.tried


def test_nothing_in_a_new_segment_counts_before_the_old_one_is_durable() -> None:
    disk, ledger = MemoryDisk(), Ledger()
    writer = ledger.start(disk)
    while len(list_segments(disk)) < 2:
        ledger.append(writer)
    assert writer.synced == list_segments(disk)[1].name.first_sequence
    ledger.promised = len(ledger.tried) - 1
    assert state_of(disk.crash()) == ledger.tried[:-1]


def test_a_frame_larger_than_a_segment_has_one_of_its_own() -> None:
    disk = MemoryDisk()
    writer = recover(disk, SMALL).open_writer(0)
    for payload in (b"a", b"b" * 2000, b"c"):
        writer.append(payload, 1, 0)
    writer.sync()
    assert len(list_segments(disk)) == 3
    assert state_of(disk.crash()) == [b"a", b"b" * 2000, b"c"]


def test_without_allocation_everything_works_the_same() -> None:
    disk = MemoryDisk()
    plain = JournalSettings(segment_bytes_max=450, allocate_bytes=0)
    writer = recover(disk, plain).open_writer(0)
    for number in range(20):
        writer.append(b"x" * number, 1, 0)
    writer.sync()
    assert len(state_of(disk.crash())) == 20


def test_zeros_go_ahead_of_the_frames_but_never_beyond_what_is_allocated() -> None:
    disk = MemoryDisk()
    settings = JournalSettings(segment_bytes_max=4000, allocate_bytes=1000, zero_ahead_bytes=300)
    writer = recover(disk, settings).open_writer(0)
    steps: set[int] = set()
    for number in range(12):
        writer.append(bytes([number + 1]) * 50, 1, 0)
        live = writer._live
        assert live.offset <= live.zeroed <= live.allocated
        steps.add(live.zeroed)
    writer.sync()
    assert 3 <= len(steps) < 12, "a step at a time, not with every frame"
    assert len(state_of(disk.crash())) == 12


def test_no_zeros_are_written_while_the_disk_is_full() -> None:
    disk = MemoryDisk()
    disk.faults.append(Fault("allocate", error=errno.ENOSPC, lasting=True))
    writer = recover(disk, JournalSettings(allocate_bytes=1000)).open_writer(0)
    for number in range(40):
        writer.append(bytes([number + 1]) * 50, 1, 0)
    found = disk.content(f"journal/{writer.segment}")
    assert found is not None
    assert len(found) == writer._live.offset
    assert found.endswith(b"\x28" * 50)


def test_a_frame_of_no_events_is_refused() -> None:
    writer = recover(MemoryDisk(), SMALL).open_writer(0)
    with pytest.raises(ValueError, match="0 events"):
        writer.append(b"x", 0, 0)


def test_a_closed_writer_is_closed_and_the_directory_free() -> None:
    disk = MemoryDisk()
    writer = recover(disk, SMALL).open_writer(0)
    writer.append(b"x", 1, 0)
    writer.close()
    writer.close()
    with pytest.raises(Closed):
        writer.append(b"y", 1, 0)
    with pytest.raises(Closed):
        writer.sync()
    assert state_of(disk.crash()) == [b"x"], "closing syncs"


def test_a_clean_stop_puts_the_mark_on_the_disk() -> None:
    disk = MemoryDisk()
    writer = recover(disk, SMALL).open_writer(0)
    writer.append(b"x", 1, 0)
    writer.close()
    recovery = recover(disk.crash(), SMALL)
    assert list(recovery.frames())
    assert recovery.torn is None
    assert len(disk.crash().files()["mark"]) == 64


def test_append_and_sync_in_two_threads_promise_only_what_is_durable() -> None:
    disk, ledger = MemoryDisk(), Ledger()
    writer = ledger.start(disk)
    promised: list[int] = []
    running = threading.Event()
    running.set()

    def keep_syncing() -> None:
        while running.is_set():
            promised.append(writer.sync())

    thread = threading.Thread(target=keep_syncing)
    thread.start()
    for _ in range(3000):
        ledger.append(writer)
    running.clear()
    thread.join()
    assert promised == sorted(promised)
    after = disk.crash(Keep.NOTHING)
    durable = recover(after, SMALL)
    frames = [frame.payload for frame in durable.frames()]
    assert frames == ledger.tried[: len(frames)]
    assert durable.next_sequence >= promised[-1]


def test_settings_that_cannot_work_are_refused() -> None:
    for bad in ({"segment_bytes_max": 0}, {"allocate_bytes": -1}, {"room_refresh_bytes": -1}):
        with pytest.raises(InvalidSettings):
            JournalSettings(**bad)
