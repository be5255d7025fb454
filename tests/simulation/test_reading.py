"""The simulator's own reader of the journal sees what the product sees, and knows what is protected."""

from __future__ import annotations

import random

import pytest

from relaymesh.errors import JournalDamaged
from relaymesh.journal import JournalSettings, read_frames, recover
from relaymesh.kernel.records import EpochStarted
from relaymesh.testing import MemoryDisk
from relaymesh.testing.simulation.reading import read_frames as read_again
from relaymesh.testing.simulation.reading import read_segments
from relaymesh.wire.records import encode_records


def a_journal() -> MemoryDisk:
    disk = MemoryDisk()
    settings = JournalSettings(segment_bytes_max=600, allocate_bytes=200, checkpoint_reserve_bytes=0)
    for start in range(3):
        with recover(disk, settings) as recovery:
            writer = recovery.open_writer(start)
            for n in range(12):
                writer.append(encode_records([EpochStarted(1, n, n)]), 1, n)
                if n % 5 == 0:
                    writer.sync()
            writer.close()
    return disk


def test_it_reads_the_frames_that_the_product_reads() -> None:
    disk = a_journal()
    product = [frame.first_sequence for frame in read_frames(disk)]
    assert [first for first, _ in read_again(disk.files())] == product
    assert len(product) == 36


def test_every_bit_it_calls_protected_is_one_the_product_refuses_to_lose() -> None:
    rng = random.Random(1)
    disk = a_journal()
    segments = read_segments(disk.files())
    assert len(segments) > 3
    for segment in segments:
        assert segment.protected > 0
        for _ in range(5):
            damaged = MemoryDisk(disk.files())
            damaged.flip(segment.path, rng.randrange(segment.protected), rng.randrange(8))
            with pytest.raises(JournalDamaged, match=segment.file), recover(damaged) as recovery:
                recovery.open_writer(0)


def test_bytes_behind_a_seal_or_unsynced_ones_are_not_protected() -> None:
    disk = MemoryDisk()
    with recover(disk, JournalSettings(allocate_bytes=0)) as recovery:
        writer = recovery.open_writer(0)
        writer.append(encode_records([EpochStarted(1, 0, 1)]), 1, 0)
        writer.sync()
        synced = len(disk.content(f"journal/{writer.segment}") or b"")
        writer.append(encode_records([EpochStarted(1, 0, 2)]), 1, 0)
    (segment,) = read_segments(disk.files())
    assert segment.protected == synced
    assert segment.next_sequence == 3
