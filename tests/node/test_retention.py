"""Archived segments wait for the consumers that have not got them, as long as the settings allow."""

from __future__ import annotations

import logging

import pytest

from relaymesh.errors import InvalidSettings
from relaymesh.journal import archive_behind, list_segments, read_frames
from relaymesh.journal.consumers import list_consumers, remove_consumer, write_consumer
from relaymesh.node.retention import DAY_NS, drop_old_segments
from relaymesh.node.settings import MeshSettings
from relaymesh.testing.disk import MemoryDisk
from tests.journal.small import Ledger

LATER = 20 * DAY_NS
"""All segments of these tests were written in the first microsecond of 1970."""


@pytest.fixture
def disk() -> MemoryDisk:
    """Ten or so segments, all but the newest behind two checkpoints, most of them archived."""
    disk, ledger = MemoryDisk(), Ledger()
    writer = ledger.start(disk)
    for _ in range(30):
        ledger.append(writer)
        ledger.sync(writer)
    for _ in range(2):
        ledger.append(writer)
        ledger.checkpoint(disk, writer)
    assert len(archive_behind(disk, writer.synced)) > 5
    return disk


def first_kept(disk: MemoryDisk) -> int:
    return next(iter(read_frames(disk))).first_sequence


def alerts(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(x.levelname, x.getMessage()) for x in caplog.records if x.name == "relaymesh.alert"]


def test_without_consumers_age_alone_decides(disk: MemoryDisk) -> None:
    assert drop_old_segments(disk, MeshSettings(), 6 * DAY_NS) == []
    assert len(drop_old_segments(disk, MeshSettings(), 8 * DAY_NS)) > 5
    assert first_kept(disk) > 30


def test_what_a_consumer_has_not_got_is_kept(disk: MemoryDisk, caplog: pytest.LogCaptureFixture) -> None:
    write_consumer(disk, "bronze", 25)
    dropped = drop_old_segments(disk, MeshSettings(), LATER)
    assert dropped
    assert first_kept(disk) <= 25 < list_segments(disk)[1].name.first_sequence
    assert alerts(caplog) == []
    write_consumer(disk, "bronze", 50)
    assert drop_old_segments(disk, MeshSettings(), LATER)
    assert 25 < first_kept(disk) <= 50


def test_the_slowest_consumer_counts(disk: MemoryDisk) -> None:
    write_consumer(disk, "fast", 60)
    write_consumer(disk, "slow", 10)
    drop_old_segments(disk, MeshSettings(), LATER)
    assert first_kept(disk) <= 10
    assert remove_consumer(disk, "slow")
    drop_old_segments(disk, MeshSettings(), LATER)
    assert first_kept(disk) > 10


def test_it_is_told_when_the_time_is_nearly_over(disk: MemoryDisk, caplog: pytest.LogCaptureFixture) -> None:
    write_consumer(disk, "bronze", 5)
    assert drop_old_segments(disk, MeshSettings(), 25 * DAY_NS) == []
    ((level, message),) = alerts(caplog)
    assert level == "WARNING"
    assert "the consumer bronze is behind at event 5" in message
    assert "83% of consumer_hold_days" in message


def test_it_is_told_when_the_space_is_nearly_used_up(
    disk: MemoryDisk, caplog: pytest.LogCaptureFixture
) -> None:
    write_consumer(disk, "bronze", 1)
    held = sum(len(disk.files()[x.path]) for x in list_segments(disk) if x.folder == "archive")
    drop_old_segments(disk, MeshSettings(consumer_hold_bytes=held * 10 // 9), LATER)
    assert first_kept(disk) == 1
    assert "9 of consumer_hold_bytes" in alerts(caplog)[0][1].replace("90%", "9").replace("89%", "9")


def test_beyond_the_time_nothing_waits_and_the_loss_is_told(
    disk: MemoryDisk, caplog: pytest.LogCaptureFixture
) -> None:
    write_consumer(disk, "bronze", 5)
    assert drop_old_segments(disk, MeshSettings(), 31 * DAY_NS)
    assert first_kept(disk) > 30
    ((level, message),) = alerts(caplog)
    assert level == "ERROR"
    assert f"bronze has lost the events 5 to {first_kept(disk) - 1}" in message


def test_beyond_the_space_the_oldest_go_first(disk: MemoryDisk, caplog: pytest.LogCaptureFixture) -> None:
    write_consumer(disk, "bronze", 1)
    archived = [x for x in list_segments(disk) if x.folder == "archive"]
    size = sum(len(disk.files()[each.path]) for each in archived)
    room = size - len(disk.files()[archived[0].path]) - 1
    dropped = drop_old_segments(disk, MeshSettings(consumer_hold_bytes=room), LATER)
    assert dropped == [each.name.file for each in archived[:2]]
    assert ("ERROR", f"the consumer bronze has lost the events 1 to {first_kept(disk) - 1}") in [
        (level, message.partition(":")[0]) for level, message in alerts(caplog)
    ]


def test_a_consumer_whose_file_does_not_read_back_has_nothing_yet(
    disk: MemoryDisk, caplog: pytest.LogCaptureFixture
) -> None:
    write_consumer(disk, "bronze", 50)
    file = disk.open("consumers/bronze.json")
    file.write_at(b"\xff\xff", 0)
    file.close()
    with caplog.at_level(logging.WARNING):
        assert list_consumers(disk) == [("bronze", 0)]
    assert "does not read back" in caplog.text
    assert drop_old_segments(disk, MeshSettings(), LATER) == []


class TestConsumers:
    def test_a_consumer_never_goes_back(self, disk: MemoryDisk) -> None:
        write_consumer(disk, "bronze", 20)
        write_consumer(disk, "bronze", 10)
        assert list_consumers(disk) == [("bronze", 20)]

    def test_what_it_said_outlives_a_power_loss(self, disk: MemoryDisk) -> None:
        write_consumer(disk, "bronze", 20)
        assert list_consumers(disk.crash()) == [("bronze", 20)]

    @pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 65, "a..b"])
    def test_a_name_is_one_file(self, disk: MemoryDisk, name: str) -> None:
        with pytest.raises(InvalidSettings, match="no name for a consumer"):
            write_consumer(disk, name, 1)

    def test_removing_one_that_is_not_there_is_no_error(self, disk: MemoryDisk) -> None:
        assert not remove_consumer(disk, "nobody")


@pytest.mark.parametrize("setting", ["consumer_hold_days", "consumer_hold_bytes"])
def test_the_bounds_are_positive(setting: str) -> None:
    with pytest.raises(InvalidSettings, match=setting):
        MeshSettings(**{setting: 0})  # type: ignore[arg-type]
