"""Which events a read gives: by sequence, by time, from archives, mirrors and many directories."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from relaymesh.errors import InvalidSettings, JournalDamaged, NotFound
from relaymesh.pipeline.source.batch import BatchReader
from relaymesh.pipeline.source.options import SourceOptions
from tests.pipeline.source.journals import (
    append,
    mesh_of,
    open_writer,
    read_rows,
    segments,
    traffic,
    write_frames,
)

EVENTS = 90


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten frames of nine events, a second apart, over several segments."""
    path = tmp_path_factory.mktemp("journal")
    write_frames(path, traffic(10))
    assert len(segments(path)) > 3
    return path


def sequences(path: Path | str, **options: Any) -> list[int]:
    return [row["sequence"] for row in read_rows(path, **options)]


@pytest.mark.parametrize("rows", [1, 2, 7, 9, 10, 30, 89, 1000])
def test_however_it_is_cut_each_event_is_read_once_and_in_order(journal: Path, rows: int) -> None:
    assert sequences(journal, rowsPerPartition=rows) == list(range(1, EVENTS + 1))


@pytest.mark.parametrize("tasks", [1, 3, 5])
def test_the_number_of_tasks_can_be_asked_for(journal: Path, tasks: int) -> None:
    reader = BatchReader(SourceOptions.parse({"path": str(journal), "partitions": str(tasks)}))
    assert tasks <= len(reader.partitions()) <= tasks + len(segments(journal))
    assert sequences(journal, partitions=tasks) == list(range(1, EVENTS + 1))


@pytest.mark.parametrize("first", [0, 1, 2, 9, 10, 45, 90, 91, 500])
@pytest.mark.parametrize("through", [0, 1, 8, 9, 46, 89, 90, 500])
def test_a_range_of_sequences_includes_both_ends(journal: Path, first: int, through: int) -> None:
    wanted = [sequence for sequence in range(1, EVENTS + 1) if first <= sequence <= through]
    assert sequences(journal, fromSequence=first, throughSequence=through, rowsPerPartition=20) == wanted


@pytest.mark.parametrize(
    ("times", "wanted"),
    [
        ({"fromTime": "2026-01-01T00:00:04Z"}, range(37, 91)),
        ({"toTime": "2026-01-01T00:00:04"}, range(1, 37)),
        ({"fromTime": "2026-01-01T02:00:02+02:00", "toTime": "2026-01-01T00:00:03Z"}, range(19, 28)),
        ({"fromTime": "2026-01-02"}, range(0)),
        ({"toTime": "2026-01-01"}, range(0)),
    ],
)
def test_a_range_of_times_leaves_out_its_end(journal: Path, times: dict[str, str], wanted: range) -> None:
    assert sequences(journal, **times) == list(wanted)


def test_segments_out_of_the_time_asked_for_are_not_read(journal: Path) -> None:
    options = SourceOptions.parse({"path": str(journal), "fromTime": "2026-01-01T00:00:09Z"})
    assert len(BatchReader(options).partitions()) <= 2


def test_archived_segments_are_read_as_well(journal: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(journal, copy)
    for file in segments(copy)[:2]:
        file.rename(copy / "archive" / file.name)
    assert sequences(copy) == list(range(1, EVENTS + 1))


def test_a_segment_that_is_archived_between_plan_and_read_is_found(journal: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(journal, copy)
    reader = BatchReader(SourceOptions.parse({"path": str(copy), "rowsPerPartition": "9"}))
    read: list[int] = []
    for piece in reader.partitions():
        for file in segments(copy)[:-1]:
            file.rename(copy / "archive" / file.name)
        read += [row for batch in reader.read(piece) for row in batch.column("sequence").to_pylist()]
    assert read == list(range(1, EVENTS + 1))


def test_events_that_are_not_synced_are_not_there_yet(tmp_path: Path) -> None:
    first, second = traffic(2)
    writer = open_writer(tmp_path)
    append(writer, first)
    writer.sync()
    append(writer, second)
    assert sequences(tmp_path) == list(range(1, 10))
    writer.sync()
    assert sequences(tmp_path) == list(range(1, 19))
    writer.close()


def test_a_mesh_without_events_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "new" / "journal").mkdir(parents=True)
    assert sequences(tmp_path / "new") == []
    open_writer(tmp_path / "started").close()
    assert sequences(tmp_path / "started") == []


class TestWhatRetentionDropped:
    """The journal of the fixture without its first segment."""

    @pytest.fixture
    def shortened(self, journal: Path, tmp_path: Path) -> tuple[Path, int]:
        path = tmp_path / "shortened"
        shutil.copytree(journal, path)
        segments(path)[0].unlink()
        return path, int(segments(path)[0].stem.split("-")[1])

    def test_without_a_beginning_given_a_read_begins_with_what_is_there(
        self, shortened: tuple[Path, int]
    ) -> None:
        path, kept_from = shortened
        assert sequences(path) == list(range(kept_from, EVENTS + 1))

    def test_events_asked_for_by_number_are_missed(self, shortened: tuple[Path, int]) -> None:
        path, kept_from = shortened
        with pytest.raises(JournalDamaged, match=f"dropped the events 5 to {kept_from - 1} before"):
            read_rows(path, fromSequence=5)

    def test_skipping_them_leaves_a_row_in_the_quarantine(self, shortened: tuple[Path, int]) -> None:
        path, kept_from = shortened
        options = {"fromSequence": 5, "onDataLoss": "skip"}
        assert sequences(path, **options) == list(range(kept_from, EVENTS + 1))
        (row,) = read_rows(path, table="quarantine", **options)
        assert f"events 5 to {kept_from - 1} are missing" in row["reason"]
        assert row["source"] == mesh_of(path)

    def test_a_segment_dropped_between_plan_and_read_is_missed(self, journal: Path, tmp_path: Path) -> None:
        path = tmp_path / "copy"
        shutil.copytree(journal, path)
        for choice, expected in (("fail", None), ("skip", "retention dropped the segment")):
            options = {"path": str(path), "onDataLoss": choice, "table": "quarantine"}
            reader = BatchReader(SourceOptions.parse(options))
            pieces = reader.partitions()
            segments(path)[0].unlink()
            if expected is None:
                with pytest.raises(JournalDamaged, match="before they were read"):
                    list(reader.read(pieces[0]))
            else:
                (batch,) = reader.read(pieces[0])
                assert expected in batch.to_pylist()[0]["reason"]
                events = BatchReader(SourceOptions.parse({"path": str(path), "onDataLoss": "skip"}))
                assert list(events.read(pieces[0])) == []


class TestManyDirectories:
    @pytest.fixture
    def pair(self, journal: Path, tmp_path: Path) -> tuple[Path, Path]:
        other = tmp_path / "other"
        write_frames(other, traffic(2))
        return journal, other

    @pytest.mark.parametrize("form", ["commas", "list"])
    def test_their_events_are_told_apart_by_partition(self, pair: tuple[Path, Path], form: str) -> None:
        one, two = map(str, pair)
        path = f"{one}, {two}/" if form == "commas" else json.dumps([one, two])
        rows = read_rows(path)
        assert len({(row["partition"], row["sequence"]) for row in rows}) == len(rows) == EVENTS + 18
        assert {(row["partition"], row["source"]) for row in rows} == {(0, mesh_of(one)), (1, mesh_of(two))}

    def test_partitions_can_be_given(self, pair: tuple[Path, Path]) -> None:
        one, two = map(str, pair)
        rows = read_rows(json.dumps({two: 7, one: 3}))
        assert {(row["partition"], row["source"]) for row in rows} == {(3, mesh_of(one)), (7, mesh_of(two))}

    def test_two_copies_of_one_mesh_are_not_read_together(self, pair: tuple[Path, Path]) -> None:
        one, two = pair
        copy = two.parent / "copy"
        shutil.copytree(one, copy)
        with pytest.raises(InvalidSettings, match="hold the same mesh"):
            read_rows(f"{one},{copy}")

    def test_what_rows_name_their_source_can_be_given(self, pair: tuple[Path, Path]) -> None:
        rows = read_rows(json.dumps({str(pair[1]): {"partition": 2, "name": "billing"}}))
        assert {(row["partition"], row["source"]) for row in rows} == {(2, "billing")}


class TestMirrors:
    @pytest.fixture
    def mirrored(self, journal: Path, tmp_path: Path) -> tuple[Path, Path]:
        data, mirror = tmp_path / "data", tmp_path / "mirror"
        shutil.copytree(journal, data)
        shutil.copytree(journal, mirror)
        (data / "mirror").write_text(f"path {mirror}\nmode required\nof {data}\n")
        return data, mirror

    def test_a_mirror_is_read_in_its_primarys_place(self, mirrored: tuple[Path, Path]) -> None:
        data, _ = mirrored
        for file in segments(data):
            file.write_bytes(b"gone")
        rows = read_rows(data, mirror="true")
        assert [row["sequence"] for row in rows] == list(range(1, EVENTS + 1))
        assert {row["source"] for row in rows} == {mesh_of(data)}

    def test_a_mirror_is_a_directory_like_any_other(self, mirrored: tuple[Path, Path]) -> None:
        assert sequences(mirrored[1]) == list(range(1, EVENTS + 1))

    def test_a_mirror_that_is_not_complete_is_refused(self, mirrored: tuple[Path, Path]) -> None:
        (mirrored[1] / "incomplete").write_text("why it was being filled\n")
        with pytest.raises(JournalDamaged, match="not complete"):
            sequences(mirrored[0], mirror="true")

    def test_a_directory_without_a_mirror_says_so(self, journal: Path) -> None:
        with pytest.raises(NotFound, match="has no mirror"):
            sequences(journal, mirror="true")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "path is missing"),
        ({"path": "["}, "no JSON"),
        ({"path": "[3]"}, "names of directories"),
        ({"path": '{"a": 1, "b": 1}'}, "same partition"),
        ({"path": ".", "fromSequence": "x"}, "fromsequence must be a whole number"),
        ({"path": ".", "rowsPerPartition": "0"}, "rowsperpartition must be a whole number from 1"),
        ({"path": ".", "fromTime": "yesterday"}, "fromtime must be a time"),
        ({"path": ".", "includeContent": "maybe"}, "includecontent must be true or false"),
        ({"path": ".", "table": "silver"}, "table must be one of events, quarantine"),
        ({"path": ".", "fromSequenz": "3"}, "has no option fromsequenz"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidSettings, match=why):
        SourceOptions.parse(options)


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no data directory"):
        SourceOptions.parse({"path": str(tmp_path / "nowhere")})


@pytest.mark.parametrize("inside", [[], ["journal"], ["data/journal/"], ["manifest.json", "bronze/"]])
def test_a_directory_that_is_no_mesh_is_refused(inside: list[str], tmp_path: Path) -> None:
    for name in inside:
        path = tmp_path / name
        if name.endswith("/"):
            path.mkdir(parents=True)
        else:
            path.write_text("a file")
    with pytest.raises(NotFound, match=f"there is no mesh in {tmp_path}") as refused:
        SourceOptions.parse({"path": str(tmp_path)})
    assert "journal/" in refused.value.hint
