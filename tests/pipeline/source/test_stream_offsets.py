"""A stream's offsets: how far a micro-batch goes, and that nothing is read twice or left out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from relaymesh.errors import InvalidSettings, JournalDamaged
from relaymesh.journal import JournalSettings, list_segments, read_mark
from relaymesh.journal.consumers import list_consumers
from relaymesh.node.disk import RealDisk
from relaymesh.pipeline.source.offsets import Offset
from relaymesh.pipeline.source.options import SourceOptions
from relaymesh.pipeline.source.stream import StreamReader
from tests.pipeline.source.journals import (
    SMALL,
    append,
    mesh_of,
    open_writer,
    segments,
    traffic,
    write_frames,
)


def stream(path: Path | str, **options: Any) -> StreamReader:
    given = {"path": str(path), **{name: str(value) for name, value in options.items()}}
    return StreamReader(SourceOptions.parse(given))


def rows_between(reader: StreamReader, start: Offset, end: Offset) -> list[int]:
    pieces = reader.partitions(start, end)
    return [
        x for piece in pieces for batch in reader.read(piece) for x in batch.column("sequence").to_pylist()
    ]


def drain(path: Path | str, rows: int, start: Offset | None = None, **options: Any) -> list[list[int]]:
    """Micro-batches of `rows`, each with a reader of its own, until there is nothing more."""
    offset = start or stream(path, **options).initialOffset()
    batches: list[list[int]] = []
    while True:
        stored = json.loads(json.dumps(offset))
        end = stream(path, **options).latestOffset(stored, ReadMaxRows(rows))
        if end == offset:
            return batches
        batches.append(rows_between(stream(path, **options), stored, end))
        offset = end


@pytest.mark.parametrize("rows", [1, 5, 9, 10, 20, 50, 1000])
def test_batches_of_any_size_read_each_event_once(tmp_path: Path, rows: int) -> None:
    write_frames(tmp_path, traffic(12))
    batches = drain(tmp_path, rows)
    assert [sequence for batch in batches for sequence in batch] == list(range(1, 109))
    assert max(map(len, batches)) <= max(rows, 9)  # frames are whole


def test_a_batch_takes_as_much_as_it_may(tmp_path: Path) -> None:
    write_frames(tmp_path, traffic(12))
    assert [len(batch) for batch in drain(tmp_path, 30)] == [27, 27, 27, 27]


def test_nothing_new_is_the_same_offset(tmp_path: Path) -> None:
    write_frames(tmp_path, traffic(2))
    reader = stream(tmp_path)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert reader.partitions(end, end) == []
    assert reader.reportLatestOffset() == end


def test_a_stream_over_a_mesh_without_events_waits_for_the_first(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    reader = stream(tmp_path)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    write_frames(tmp_path, traffic(1))
    assert rows_between(reader, start, reader.latestOffset(start, ReadAllAvailable())) == list(range(1, 10))


def test_an_offset_outlives_archiving_and_retention(tmp_path: Path) -> None:
    write_frames(tmp_path, traffic(12))
    reader = stream(tmp_path)
    middle = reader.latestOffset(reader.initialOffset(), ReadMaxRows(60))
    first, second, *_ = segments(tmp_path)
    first.unlink()
    second.rename(tmp_path / "archive" / second.name)
    assert [x for batch in drain(tmp_path, 20, middle) for x in batch] == list(range(55, 109))


def test_unread_events_that_were_dropped_stop_the_stream(tmp_path: Path) -> None:
    write_frames(tmp_path, traffic(12))
    start = stream(tmp_path).initialOffset()
    segments(tmp_path)[0].unlink()
    reader = stream(tmp_path)
    end = reader.latestOffset(start, ReadAllAvailable())
    with pytest.raises(JournalDamaged, match="dropped the events 1 to"):
        reader.partitions(start, end)
    kept = [x for batch in drain(tmp_path, 20, start, onDataLoss="skip") for x in batch]
    assert kept == list(range(kept[0], 109))
    lost = stream(tmp_path, onDataLoss="skip", table="quarantine")
    (row,) = [r for p in lost.partitions(start, end) for b in lost.read(p) for r in b.to_pylist()]
    assert f"events 1 to {kept[0] - 1} are missing" in row["reason"]


def test_a_tail_written_again_after_a_crash_is_read_once(tmp_path: Path) -> None:
    """After power loss the mark may say less: recovery then seals earlier and writes the tail anew."""
    writer = open_writer(tmp_path, SMALL)
    for frame in traffic(3):
        append(writer, frame)
    writer.sync()
    disk = RealDisk(tmp_path)
    reader = stream(tmp_path)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert end[mesh_of(tmp_path)]["sequence"] == 28
    writer.close()
    live = list_segments(disk)[-1]
    (tmp_path / "mark").unlink()  # as if it had never reached the disk
    write_frames(tmp_path, traffic(1))
    assert list_segments(disk)[-1].name.number > live.name.number
    assert list_segments(disk)[-1].name.first_sequence < 28, "the tail was not written again"
    mark = read_mark(disk)
    assert mark is not None
    assert mark.sequence == 37
    assert [x for batch in drain(tmp_path, 5, end) for x in batch] == list(range(28, 37))


def test_available_now_ends_at_what_was_there_when_it_began(tmp_path: Path) -> None:
    write_frames(tmp_path, traffic(2))
    reader = stream(tmp_path)
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    write_frames(tmp_path, traffic(2))
    end = reader.latestOffset(start, ReadMaxRows(1000))
    assert rows_between(reader, start, end) == list(range(1, 19))
    assert reader.latestOffset(end, ReadMaxRows(1000)) == end


def test_a_minimum_of_rows_waits_for_them(tmp_path: Path) -> None:
    write_frames(tmp_path, traffic(2))
    reader = stream(tmp_path)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadMinRows(19)) == start
    assert reader.latestOffset(start, ReadMinRows(18)) != start


def test_bounds_hold_in_a_stream_too(tmp_path: Path) -> None:
    write_frames(tmp_path, traffic(12))
    read = [x for batch in drain(tmp_path, 20, fromSequence=5, throughSequence=50) for x in batch]
    assert read == list(range(5, 51))


class TestManyDirectories:
    def test_they_share_a_batch_and_none_starves(self, tmp_path: Path) -> None:
        big, small = tmp_path / "big", tmp_path / "small"
        write_frames(big, traffic(20))
        write_frames(small, traffic(2))
        reader = stream(f"{big},{small}")
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadMaxRows(90))
        assert end[mesh_of(small)]["sequence"] == 19
        assert end[mesh_of(big)]["sequence"] == 73

    def test_one_more_begins_at_its_beginning(self, tmp_path: Path) -> None:
        one, two = tmp_path / "one", tmp_path / "two"
        write_frames(one, traffic(1))
        write_frames(two, traffic(1))
        reader = stream(one)
        offset = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        both = stream(f"{one},{two}")
        end = both.latestOffset(offset, ReadAllAvailable())
        assert rows_between(both, offset, end) == list(range(1, 10))

    def test_one_less_keeps_its_place(self, tmp_path: Path) -> None:
        one, two = tmp_path / "one", tmp_path / "two"
        write_frames(one, traffic(1))
        write_frames(two, traffic(1))
        both = stream(f"{one},{two}")
        offset = both.latestOffset(both.initialOffset(), ReadAllAvailable())
        write_frames(one, traffic(1))
        end = stream(one).latestOffset(offset, ReadAllAvailable())
        assert end[mesh_of(two)] == offset[mesh_of(two)]
        assert end[mesh_of(one)] != offset[mesh_of(one)]


def test_a_commit_tells_the_node_how_far_its_consumer_is(tmp_path: Path) -> None:
    write_frames(tmp_path, traffic(2))
    reader = stream(tmp_path, consumer="bronze")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert list_consumers(RealDisk(tmp_path)) == []
    reader.commit(end)
    assert list_consumers(RealDisk(tmp_path)) == [("bronze", 19)]


def test_a_copy_that_lacks_what_was_read_is_refused_and_another_mesh_begins_at_its_beginning(
    tmp_path: Path,
) -> None:
    write_frames(tmp_path / "data", traffic(2))
    shutil.copytree(tmp_path / "data", tmp_path / "backup")
    write_frames(tmp_path / "data", traffic(1))
    end = all_of(tmp_path / "data")
    with pytest.raises(JournalDamaged, match="ends before event 19, and 27 was read"):
        stream(tmp_path / "backup").latestOffset(end, ReadAllAvailable())
    (tmp_path / "data").rename(tmp_path / "old")
    write_frames(tmp_path / "data", traffic(1))
    reader = stream(tmp_path / "data")
    both = reader.latestOffset(end, ReadAllAvailable())
    assert both == end | {mesh_of(tmp_path / "data"): both[mesh_of(tmp_path / "data")]}
    assert rows_between(reader, end, both) == list(range(1, 10))


def all_of(path: Path | str) -> Offset:
    """The offset of a stream that has read everything there."""
    reader = stream(path)
    return reader.latestOffset(reader.initialOffset(), ReadAllAvailable())


class TestIdentity:
    """A stream knows a mesh by its id, whatever path leads to it."""

    def test_four_spellings_of_one_path_go_on_where_the_first_stopped(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_frames(tmp_path / "live", traffic(2))
        monkeypatch.chdir(tmp_path)
        (tmp_path / "link").symlink_to("live")
        offset = all_of("live")
        read = 18
        for spelling in ("./live", f"{tmp_path}/live/", "link", f"file://{tmp_path}/live", "live"):
            assert stream(spelling).latestOffset(offset, ReadAllAvailable()) == offset
            write_frames(tmp_path / "live", traffic(1))
            reader = stream(spelling)
            after = reader.latestOffset(offset, ReadAllAvailable())
            assert rows_between(reader, offset, after) == list(range(read + 1, read + 10))
            offset, read = after, read + 9

    def test_a_directory_that_moved_or_came_back_from_a_copy_is_read_on(self, tmp_path: Path) -> None:
        write_frames(tmp_path / "data", traffic(2))
        offset = all_of(tmp_path / "data")
        (tmp_path / "data").rename(tmp_path / "moved")
        write_frames(tmp_path / "moved", traffic(1))
        shutil.copytree(tmp_path / "moved", tmp_path / "copy")
        for path in (tmp_path / "moved", tmp_path / "copy"):
            reader = stream(path)
            after = reader.latestOffset(offset, ReadAllAvailable())
            assert rows_between(reader, offset, after) == list(range(19, 28))

    def test_a_copy_that_went_its_own_way_is_refused(self, tmp_path: Path) -> None:
        write_frames(tmp_path / "data", traffic(2))
        shutil.copytree(tmp_path / "data", tmp_path / "copy")
        write_frames(tmp_path / "data", traffic(1))
        offset = all_of(tmp_path / "data")
        write_frames(tmp_path / "copy", traffic(3))
        with pytest.raises(JournalDamaged, match=r"copy is a copy of the mesh .* that has diverged"):
            stream(tmp_path / "copy").latestOffset(offset, ReadAllAvailable())

    def test_a_copy_of_a_running_node_that_was_started_is_refused(self, tmp_path: Path) -> None:
        large = JournalSettings(checkpoint_reserve_bytes=1000)
        writer = open_writer(tmp_path / "data", large)
        frames = traffic(4)
        append(writer, frames[0])
        writer.sync()
        shutil.copytree(tmp_path / "data", tmp_path / "copy")
        for frame in frames[1:]:
            append(writer, frame)
        writer.sync()
        offset = all_of(tmp_path / "data")
        writer.close()
        write_frames(tmp_path / "copy", traffic(6), large)
        with pytest.raises(JournalDamaged, match="that has diverged"):
            stream(tmp_path / "copy").latestOffset(offset, ReadAllAvailable())

    def test_a_checkpoint_of_before_named_directories_by_path_and_is_read_on(self, tmp_path: Path) -> None:
        write_frames(tmp_path / "data", traffic(2))
        [position] = all_of(tmp_path / "data").values()
        older = {name: position[name] for name in ("sequence", "segment", "offset")}
        write_frames(tmp_path / "data", traffic(1))
        reader = stream(f"{tmp_path}/./data")
        offset = {str(tmp_path / "data"): older}
        after = reader.latestOffset(offset, ReadAllAvailable())
        assert rows_between(reader, offset, after) == list(range(19, 28))
        assert rows_between(reader, after, reader.latestOffset(after, ReadAllAvailable())) == []

    def test_a_directory_without_an_id_is_known_by_its_segments(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its name follows from its oldest segment, and ends with its next start."""
        write_frames(tmp_path / "data", traffic(2))
        write_frames(tmp_path / "data", traffic(2))
        (tmp_path / "data" / "mesh").unlink()
        monkeypatch.chdir(tmp_path)
        [name] = offset = all_of("data")
        assert name.startswith("journal-")
        assert all_of("./data") == offset
        (tmp_path / "data").rename(tmp_path / "moved")
        shutil.copytree(tmp_path / "moved", tmp_path / "copy")
        for path in ("moved", "copy"):
            assert stream(path).latestOffset(offset, ReadAllAvailable()) == offset
        oldest = segments(tmp_path / "moved")[0]
        oldest.rename(tmp_path / "dropped")
        reader = stream("moved")
        renamed = reader.latestOffset(offset, ReadAllAvailable())
        assert rows_between(reader, offset, renamed) == []
        (tmp_path / "dropped").rename(oldest)
        write_frames(tmp_path / "moved", traffic(1))  # its next start: now it has an id
        for before in (offset, renamed):
            reader = stream("moved")
            after = reader.latestOffset(before, ReadAllAvailable())
            assert list(after) == [mesh_of(tmp_path / "moved")]
            assert rows_between(reader, before, after) == list(range(37, 46))

    def test_a_path_of_before_does_not_stand_for_another_mesh_that_lies_there_later(
        self, tmp_path: Path
    ) -> None:
        write_frames(tmp_path / "data", traffic(2))
        [position] = all_of(tmp_path / "data").values()
        older = {str(tmp_path / "data"): {name: position[name] for name in ("sequence", "segment", "offset")}}
        offset = stream(tmp_path / "data").latestOffset(older, ReadAllAvailable())
        assert list(offset) == [mesh_of(tmp_path / "data")]
        (tmp_path / "data").rename(tmp_path / "moved")
        write_frames(tmp_path / "data", traffic(5))
        reader = stream(f"{tmp_path}/moved,{tmp_path}/data")
        after = reader.latestOffset(offset, ReadAllAvailable())
        assert rows_between(reader, offset, after) == list(range(1, 46))

    def test_a_batch_that_an_older_version_had_planned_is_read_whole(self, tmp_path: Path) -> None:
        """Killed between the plan and the commit, then brought up to date: Spark asks for the same batch."""
        write_frames(tmp_path / "data", traffic(2))
        reader = stream(tmp_path / "data")
        start, end = reader.initialOffset(), all_of(tmp_path / "data")
        older = [{str(tmp_path / "data"): position} for each in (start, end) for position in each.values()]
        assert rows_between(reader, older[0], older[1]) == list(range(1, 19))
        assert rows_between(reader, start, older[1]) == list(range(1, 19))


def test_a_beginning_in_the_future_is_waited_for(tmp_path: Path) -> None:
    write_frames(tmp_path, traffic(1))
    reader = stream(tmp_path, fromSequence=15)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    write_frames(tmp_path, traffic(1))
    end = reader.latestOffset(start, ReadAllAvailable())
    assert rows_between(reader, start, end) == list(range(15, 19))


def test_the_checkpoint_of_another_query_is_refused(tmp_path: Path) -> None:
    write_frames(tmp_path, traffic(1))
    with pytest.raises(InvalidSettings, match="belongs to another query"):
        stream(tmp_path).latestOffset({str(tmp_path): {"index": 3}}, ReadAllAvailable())
