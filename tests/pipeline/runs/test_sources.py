"""A source of a warehouse is a mesh, never a path: moved, copied, or written by an older version."""

from __future__ import annotations

import json
import logging
import shutil
import tarfile
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import pytest

from relaymesh.errors import Conflict, FormatTooNew, JournalDamaged, NotFound
from relaymesh.journal import JournalSettings
from relaymesh.pipeline.runs.sources import SourceList, remember_sources
from relaymesh.pipeline.runs.status import status_of
from relaymesh.pipeline.runs.verify import verify_warehouse
from relaymesh.pipeline.tables.sources import known_sources
from tests.pipeline.runs.filled import EVENTS, Filled, filled_in
from tests.pipeline.runs.whole import assert_bronze_is_the_journal
from tests.pipeline.source.journals import append, mesh_of, open_writer, traffic, write_frames

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.runs.conftest import Opening


@pytest.fixture
def filled(tmp_path: Path) -> Filled:
    return filled_in(tmp_path)


def as_older_versions_wrote_it(filled: Filled) -> None:
    """Named by path everywhere, and without the segments that were read."""
    path, mesh = str(filled.data), mesh_of(filled.data)
    (filled.root / "sources.json").write_text(json.dumps({path: 0}))
    for file in filled.root.glob("bronze/log/*.json"):
        entry = json.loads(file.read_text().replace(mesh, path))
        del entry["segments"], entry["checksum"]
        file.write_text(json.dumps(entry))


def test_everything_names_a_source_by_its_mesh_id(filled: Filled) -> None:
    mesh = mesh_of(filled.data)
    stored = json.loads((filled.root / "sources.json").read_text())
    assert stored["format"] == 2
    assert stored["sources"] == {mesh: {"partition": 0, "path": str(filled.data), "mesh": mesh}}
    snapshot = filled.bronze.snapshot()
    assert {each.source for each in snapshot.stretches} == {mesh}
    assert {each.source for each in snapshot.segments} == {mesh}
    assert [each.source for each in snapshot.inputs()] == [mesh]
    assert [(lag.source, lag.path) for lag in status_of(filled.root).lags] == [(mesh, str(filled.data))]


class TestMoved:
    def test_a_directory_that_was_moved_is_followed_and_one_line_says_so(
        self, filled: Filled, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        filled.data.rename(tmp_path / "elsewhere")
        with pytest.raises(NotFound, match=r"there is no mesh in .*data, where the source") as refused:
            remember_sources(filled.root, [])
        assert "relaymesh pipeline source move" in refused.value.hint
        with caplog.at_level(logging.WARNING, "relaymesh.pipeline"):
            [source] = remember_sources(filled.root, [tmp_path / "elsewhere"]).values()
        assert (source.id, source.partition, source.path) == (filled.source.id, 0, f"{tmp_path}/elsewhere")
        [line] = caplog.messages
        assert f"moved from {filled.data} to {tmp_path}/elsewhere" in line
        filled.require(through=EVENTS)
        assert verify_warehouse(filled.root).found == []
        assert remember_sources(filled.root, []) == {source.id: source}

    def test_another_mesh_at_the_old_place_is_another_source(self, filled: Filled, tmp_path: Path) -> None:
        filled.data.rename(tmp_path / "elsewhere")
        write_frames(filled.data, traffic(1))
        with pytest.raises(Conflict, match="holds another mesh than the source"):
            remember_sources(filled.root, [filled.data])
        sources = remember_sources(filled.root, [tmp_path / "elsewhere", filled.data])
        assert {each.path: each.partition for each in sources.values()} == {
            f"{tmp_path}/elsewhere": 0,
            str(filled.data): 1,
        }
        assert set(sources) == {mesh_of(filled.data), mesh_of(tmp_path / "elsewhere")}

    def test_a_restored_backup_that_lacks_what_was_read_is_refused(self, tmp_path: Path) -> None:
        write_frames(tmp_path / "data", traffic(6))
        shutil.copytree(tmp_path / "data", tmp_path / "backup")
        write_frames(tmp_path / "data", traffic(6))
        filled = Filled(tmp_path / "data", tmp_path / "tables")
        filled.take(1, EVENTS)
        shutil.rmtree(filled.data)
        with pytest.raises(Conflict, match="that lacks events: it ends before event 55"):
            remember_sources(filled.root, [tmp_path / "backup"])
        assert known_sources(filled.root) == {filled.source.id: filled.source}


class TestCopied:
    def test_a_copy_beside_the_original_is_refused_and_the_hint_names_the_command(
        self, filled: Filled, tmp_path: Path
    ) -> None:
        shutil.copytree(filled.data, tmp_path / "copy")
        with pytest.raises(Conflict, match="hold the same mesh") as refused:
            remember_sources(filled.root, [tmp_path / "copy"])
        assert (
            f"relaymesh pipeline source move {filled.source.id} {quote(str(tmp_path / 'copy'))}"
            in refused.value.hint
        )

    @pytest.mark.parametrize("original", ["there", "gone", "replaced"])
    def test_a_copy_that_went_its_own_way_is_refused_with_the_first_event_that_differs(
        self, tmp_path: Path, original: str
    ) -> None:
        filled = self.diverged(tmp_path)
        copy = tmp_path / "copy"
        if original != "there":
            shutil.rmtree(filled.data)
        if original == "replaced":
            copy = copy.rename(filled.data)
        with pytest.raises(Conflict, match="has diverged: event 55 is the first") as refused:
            remember_sources(filled.root, [copy])
        assert f"source move {filled.source.id} {quote(str(copy))} --as-new" in refused.value.hint
        assert known_sources(filled.root) == {filled.source.id: filled.source}
        if original == "replaced":
            assert "has diverged" in filled.refused()
            assert any("event 55" in each.why for each in verify_warehouse(filled.root).found)

    def diverged(self, tmp_path: Path) -> Filled:
        """A copy of the first 54 events; both went on, and bronze has 108 of the original."""
        write_frames(tmp_path / "data", traffic(6))
        shutil.copytree(tmp_path / "data", tmp_path / "copy")
        write_frames(tmp_path / "data", traffic(6))
        write_frames(tmp_path / "copy", traffic(8))
        filled = Filled(tmp_path / "data", tmp_path / "tables")
        for first in (1, 37, 73):
            filled.take(first, first + 35)
        return filled

    def test_a_copy_of_a_running_node_differs_from_the_event_at_which_it_was_started(
        self, tmp_path: Path
    ) -> None:
        large = JournalSettings(checkpoint_reserve_bytes=1000)
        writer = open_writer(tmp_path / "data", large)
        frames = traffic(4)
        append(writer, frames[0])
        writer.sync()
        shutil.copytree(tmp_path / "data", tmp_path / "copy")
        for frame in frames[1:]:
            append(writer, frame)
        writer.sync()
        filled = Filled(tmp_path / "data", tmp_path / "tables")
        filled.take(1, 36)
        writer.close()
        write_frames(tmp_path / "copy", traffic(6), large)
        shutil.rmtree(tmp_path / "data")
        with pytest.raises(Conflict, match="event 10 is the first that differs"):
            remember_sources(filled.root, [tmp_path / "copy"])


class TestWithoutAnId:
    def test_a_directory_without_an_id_is_the_same_source_when_it_has_one(self, tmp_path: Path) -> None:
        write_frames(tmp_path / "data", traffic(6))
        (tmp_path / "data" / "mesh").unlink()
        filled = Filled(tmp_path / "data", tmp_path / "tables")
        assert filled.source.id.startswith("journal-")
        filled.take(1, 54)
        assert remember_sources(filled.root, [filled.data]) == {filled.source.id: filled.source}
        filled.data.rename(tmp_path / "moved")
        write_frames(tmp_path / "moved", traffic(6))  # its next start
        [source] = remember_sources(filled.root, [tmp_path / "moved"]).values()
        assert (source.path, source.partition) == (f"{tmp_path}/moved", 0)
        [source] = remember_sources(filled.root, [tmp_path / "moved"]).values()
        assert (source.id, source.was) == (mesh_of(tmp_path / "moved"), (filled.source.id,))
        assert [each.source for each in filled.bronze.snapshot().inputs()] == [source.id]
        filled.source = source
        filled.take(55, EVENTS)
        filled.require(through=EVENTS)
        assert verify_warehouse(filled.root).found == []

    def test_a_mesh_whose_id_was_lost_and_made_anew_keeps_its_name_here(
        self, filled: Filled, tmp_path: Path
    ) -> None:
        (filled.data / "mesh").unlink()
        write_frames(filled.data, traffic(1))
        filled.data.rename(tmp_path / "moved")
        [source] = remember_sources(filled.root, [tmp_path / "moved"]).values()
        [source] = remember_sources(filled.root, [tmp_path / "moved"]).values()
        assert (source.id, source.mesh) == (filled.source.id, mesh_of(tmp_path / "moved"))


class TestOlderWarehouses:
    def test_one_that_names_sources_by_path_is_read_on_without_a_second_reading(self, filled: Filled) -> None:
        before = filled.bronze.snapshot().inputs()
        as_older_versions_wrote_it(filled)
        assert [lag.source for lag in status_of(filled.root).lags] == [str(filled.data)]
        assert verify_warehouse(filled.root).found == []
        [source] = remember_sources(filled.root, [filled.data]).values()
        assert (source.id, source.partition) == (mesh_of(filled.data), 0)
        assert source.was == (str(filled.data),)
        assert filled.bronze.snapshot().inputs() == before
        filled.require(through=EVENTS)
        assert verify_warehouse(filled.root).found == []
        write_frames(filled.data, traffic(1))
        filled.source = source
        filled.take(EVENTS + 1, EVENTS + 9)
        filled.require(through=EVENTS + 9)
        [taken] = filled.bronze.snapshot().inputs()
        assert (taken.source, taken.events) == (source.id, EVENTS + 9)

    def test_one_whose_directory_is_gone_waits_to_be_told_where_it_is(
        self, filled: Filled, tmp_path: Path
    ) -> None:
        as_older_versions_wrote_it(filled)
        moved = filled.data.rename(tmp_path / "moved")
        with pytest.raises(NotFound, match=f"there is no mesh in {filled.data}") as refused:
            remember_sources(filled.root, [moved])
        assert "source move" in refused.value.hint
        assert list(known_sources(filled.root)) == [str(filled.data)], "nothing was taken for new"
        sources = SourceList(filled.root)
        sources.move(sources.named(str(filled.data)), moved)
        sources.save()
        [source] = remember_sources(filled.root, [moved]).values()
        assert (source.id, source.was) == (mesh_of(moved), (str(filled.data),))
        filled.require(through=EVENTS)

    def test_one_that_reads_a_mesh_and_its_copy_is_refused(self, filled: Filled, tmp_path: Path) -> None:
        """As `cp -r data copy` once doubled every message."""
        shutil.copytree(filled.data, tmp_path / "copy")
        as_older_versions_wrote_it(filled)
        both = {str(filled.data): 0, str(tmp_path / "copy"): 1}
        (filled.root / "sources.json").write_text(json.dumps(both))
        with pytest.raises(Conflict, match="hold the same mesh: its events count twice") as refused:
            remember_sources(filled.root, [filled.data])
        assert f"source forget {quote(str(tmp_path / 'copy'))}" in refused.value.hint


class TestTheFile:
    def test_a_lost_list_is_made_anew_with_the_partitions_that_bronze_has(
        self, filled: Filled, tmp_path: Path
    ) -> None:
        write_frames(tmp_path / "other", traffic(1))
        known = remember_sources(filled.root, [tmp_path / "other"])
        (filled.root / "sources.json").unlink()
        again = remember_sources(filled.root, [tmp_path / "other", filled.data])
        assert again == known

    def test_one_that_was_changed_is_named(self, filled: Filled) -> None:
        path = filled.root / "sources.json"
        path.write_text(path.read_text().replace('"partition": 0', '"partition": 7'))
        with pytest.raises(JournalDamaged, match=r"sources\.json was changed: its checksum is another"):
            remember_sources(filled.root, [filled.data])

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 2}', '{"format": 2, "sources": {"a": 3}}'])
    def test_one_that_does_not_read_back_is_named(self, filled: Filled, text: str) -> None:
        (filled.root / "sources.json").write_text(text)
        with pytest.raises(JournalDamaged, match=r"sources\.json does not read back") as refused:
            remember_sources(filled.root, [filled.data])
        assert "restore it from a copy; or remove it" in refused.value.hint

    def test_one_of_a_later_version_is_left_alone(self, filled: Filled) -> None:
        (filled.root / "sources.json").write_text('{"format": 3, "sources": {}}')
        with pytest.raises(FormatTooNew):
            remember_sources(filled.root, [filled.data])


def test_a_warehouse_that_an_older_version_wrote_is_read_on_where_its_mesh_is_now(
    pipeline: Opening, tmp_path: Path, spark: SparkSession
) -> None:
    """Written over /srv/mesh/data when sources were paths: three days, of which it read two.

    Its rows, its log, its manifest and Spark's checkpoint all name the source by that path.
    """
    with tarfile.open(Path(__file__).parent / "older_warehouse.tar.gz") as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(tmp_path / "older", filter="data")
        else:  # Python 3.11.0 to 3.11.3
            archive.extractall(tmp_path / "older")
    data, root = tmp_path / "older" / "data", tmp_path / "older" / "tables"
    opened = pipeline(directories=(data,), warehouse=root)
    before = opened.store.published()
    with pytest.raises(NotFound, match="there is no mesh in /srv/mesh/data"):
        opened.run()
    sources = SourceList(root)
    sources.move(sources.named("/srv/mesh/data"), data)
    sources.save()

    record = opened.run()
    assert (record.status, record.batches) == ("published", [1])
    assert 0 < record.events < before.inputs[0].events, "what was read is not read again"
    assert_bronze_is_the_journal(opened.store, data)
    events = opened.bronze.read(spark, opened.bronze.snapshot().pieces)
    assert [row.source for row in events.select("source").distinct().collect()] == [mesh_of(data)]
    assert [each.source for each in opened.store.published().inputs] == [mesh_of(data)]
    assert verify_warehouse(root).found == []
    assert opened.run().status == "nothing new"

    fresh = pipeline(directories=(data,), warehouse=tmp_path / "fresh")
    fresh.run()
    for name in ("entries", "operations"):
        own, other = (sorted(map(str, each.store.current(spark, name).collect())) for each in (opened, fresh))
        assert own == other

    assert opened.compact().status == "published"
    assert_bronze_is_the_journal(opened.store, data)
