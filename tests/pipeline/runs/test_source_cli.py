"""`relaymesh pipeline source`: list, move and forget, as a person or a script runs them."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from relaymesh.cli.failure import Exit
from relaymesh.cli.main import main
from relaymesh.errors import Conflict
from relaymesh.journal.consumers import list_consumers
from relaymesh.node.disk import RealDisk
from relaymesh.pipeline.runs.sources import remember_sources
from relaymesh.pipeline.runs.verify import verify_warehouse
from relaymesh.pipeline.tables.lock import warehouse_lock
from relaymesh.pipeline.tables.sources import known_sources
from tests.cli.running import Ran
from tests.pipeline.runs.filled import EVENTS, Filled, filled_in
from tests.pipeline.runs.test_cli import without_pyspark
from tests.pipeline.runs.traffic import Traffic
from tests.pipeline.runs.whole import bronze_sequences, journal_sequences
from tests.pipeline.source.journals import mesh_of, traffic, write_frames

if TYPE_CHECKING:
    from tests.pipeline.runs.conftest import Opening


class Commands:
    """`relaymesh pipeline source …` on one warehouse."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._root, self._capsys = root, capsys

    def __call__(self, *words: object) -> Ran:
        self._capsys.readouterr()
        code = main(["pipeline", "source", *map(str, words), "--warehouse", str(self._root)])
        return Ran(code, *self._capsys.readouterr())

    def list(self) -> list[dict[str, Any]]:
        ran = self("list", "--json")
        assert (ran.code, ran.err) == (Exit.OK, "")
        return [json.loads(line) for line in ran.out.splitlines()]

    def refused(self, code: Exit, *words: object) -> str:
        """The one line of an error."""
        ran = self(*words)
        [line] = ran.err.splitlines()
        assert (ran.code, ran.out) == (code, ""), line
        return line


@pytest.fixture
def filled(tmp_path: Path) -> Filled:
    return filled_in(tmp_path)


@pytest.fixture
def source(filled: Filled, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(filled.root, capsys)


def hinted(line: str) -> list[str]:
    """The words of the command that a hint ends with."""
    return shlex.split(line.partition("relaymesh pipeline source ")[2].partition(" --warehouse")[0])


def test_list_shows_each_source_and_needs_no_spark(filled: Filled, source: Commands) -> None:
    mesh = mesh_of(filled.data)
    row = {
        "id": mesh,
        "partition": 0,
        "path": str(filled.data),
        "events": EVENTS,
        "through": EVENTS,
        "state": "read",
    }
    assert source.list() == [row]
    text = source("list").out
    assert all(word in text for word in ("PARTITION", "THROUGH", mesh, str(filled.data), "read"))
    ran = without_pyspark("pipeline", "source", "list", "--warehouse", str(filled.root))
    assert (ran.code, mesh in ran.out) == (Exit.OK, True), ran.err


def test_words_that_name_nothing_are_one_line(filled: Filled, source: Commands, tmp_path: Path) -> None:
    assert "has no source 'nowhere'" in source.refused(Exit.NOT_FOUND, "forget", "nowhere")
    assert "there is no mesh in" in source.refused(Exit.NOT_FOUND, "move", filled.data, tmp_path / "no")
    write_frames(tmp_path / "other", traffic(20))
    line = source.refused(Exit.CONFLICT, "move", filled.data, tmp_path / "other")
    assert "holds another mesh than the source" in line
    with warehouse_lock(filled.root, "run 17"):
        assert "run 17" in source.refused(Exit.UNREACHABLE, "forget", filled.data)
    code = main(["pipeline", "source", "list", "--warehouse", str(tmp_path / "empty")])
    assert code == Exit.NOT_FOUND
    assert not (tmp_path / "empty").exists()
    assert known_sources(filled.root) == {filled.source.id: filled.source}


def test_a_copy_is_read_in_place_of_the_original_as_the_hint_says(
    filled: Filled, source: Commands, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(filled.data, copy)
    with pytest.raises(Conflict) as refused:
        remember_sources(filled.root, [copy])
    words = hinted(refused.value.hint)
    assert words == ["move", filled.source.id, str(copy)]
    row = source(*words, "--json").row
    assert (row["id"], row["path"], row["state"]) == (filled.source.id, str(copy), "read")
    assert [each.path for each in remember_sources(filled.root, [copy]).values()] == [str(copy)]
    filled.require(through=EVENTS)
    with pytest.raises(Conflict, match="hold the same mesh"):
        remember_sources(filled.root, [filled.data])


def test_sources_are_named_by_id_the_beginning_of_one_or_path(
    filled: Filled, source: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("data")
    for name in (filled.source.id, filled.source.id[:6], filled.data, "data", "link"):
        assert source("move", name, filled.data).code == Exit.OK
    for number in range(16):
        write_frames(tmp_path / f"m{number}", traffic(1))
    remember_sources(filled.root, [tmp_path / f"m{number}" for number in range(16)])
    shared = next(c for c in "0123456789abcdef" if sum(id[0] == c for id in known_sources(filled.root)) > 1)
    assert "sources that begin with" in source.refused(Exit.NOT_FOUND, "forget", shared)


class TestACopyThatWentItsOwnWay:
    @pytest.fixture
    def filled(self, tmp_path: Path) -> Filled:
        """Bronze has 108 events of a mesh, of which a copy shares 54."""
        write_frames(tmp_path / "data", traffic(6))
        shutil.copytree(tmp_path / "data", tmp_path / "copy")
        write_frames(tmp_path / "data", traffic(6))
        write_frames(tmp_path / "copy", traffic(4))
        filled = Filled(tmp_path / "data", tmp_path / "tables")
        filled.take(1, EVENTS)
        return filled

    @pytest.mark.parametrize("original", ["there", "gone"])
    def test_it_is_refused_with_the_first_event_that_differs_until_it_is_named(
        self, filled: Filled, source: Commands, tmp_path: Path, original: str
    ) -> None:
        copy = tmp_path / "copy"
        if original == "gone":
            filled.data.rename(tmp_path / "lost")
        line = source.refused(Exit.CONFLICT, "move", filled.source.id, copy)
        assert "has diverged: event 55 is the first that differs" in line
        words = hinted(line)
        assert words == ["move", filled.source.id, str(copy), "--as-new"]
        row = source(*words, "--json").row
        assert (row["partition"], row["path"], row["events"], row["state"]) == (1, str(copy), 0, "read")
        assert row["id"].startswith(f"{mesh_of(copy)}+")
        assert "is known as the source" in source.refused(Exit.CONFLICT, *words)
        states = {each["partition"]: each["state"] for each in source.list()}
        assert states == {0: "read" if original == "there" else "missing", 1: "read"}

    def test_it_is_read_from_there_on_and_nothing_counts_twice(
        self, filled: Filled, source: Commands, tmp_path: Path
    ) -> None:
        copy, original = tmp_path / "copy", filled.source
        source("move", original.id, copy, "--as-new")
        sources = remember_sources(filled.root, [filled.data, copy])
        [filled.source] = [each for each in sources.values() if each.id != original.id]
        assert "it lacks events 55 to 90" in filled.refused(through=90)
        filled.take(1, 90)
        filled.require(through=90)
        assert {(each.partition, each.first_sequence, each.events) for each in _inputs(filled)} == {
            (0, 1, EVENTS),
            (1, 55, 36),
        }
        assert verify_warehouse(filled.root).found == []
        moved = copy.rename(tmp_path / "moved")
        sources = remember_sources(filled.root, [moved])
        assert {each.partition: each.path for each in sources.values()} == {0: original.path, 1: str(moved)}

    def test_one_that_does_not_differ_is_no_source_of_its_own(
        self, filled: Filled, source: Commands, tmp_path: Path
    ) -> None:
        shutil.copytree(filled.data, tmp_path / "backup")
        line = source.refused(Exit.CONFLICT, "move", filled.source.id, tmp_path / "backup", "--as-new")
        assert "it holds what was read" in line


def _inputs(filled: Filled) -> list[Any]:
    return list(filled.bronze.snapshot().inputs())


def test_a_forgotten_source_is_no_longer_read_and_its_events_stay(
    filled: Filled, source: Commands, tmp_path: Path
) -> None:
    assert list_consumers(RealDisk(filled.data)) == [("pipeline", EVENTS + 1)]
    ran = source("forget", filled.source.id[:8])
    assert ran.code == Exit.OK
    assert f"its {EVENTS} events stay in the tables" in ran.err
    [moved] = re.findall(r"move (.+ and .+) away", ran.err)
    assert shlex.split(moved) == [str(filled.root / "bronze"), "and", str(filled.root / "checkpoints")]
    assert list_consumers(RealDisk(filled.data)) == [], "retention waits for it no longer"
    assert [(each["state"], each["events"]) for each in source.list()] == [("forgotten", EVENTS)]
    shutil.move(filled.data, tmp_path / "offline")
    assert remember_sources(filled.root, []) == {}
    filled.require()
    assert verify_warehouse(filled.root).found == []
    with pytest.raises(Conflict, match="was told to forget") as refused:
        remember_sources(filled.root, [tmp_path / "offline"])
    assert source(*hinted(refused.value.hint)).code == Exit.OK
    [again] = remember_sources(filled.root, [tmp_path / "offline"]).values()
    assert (again.id, again.partition) == (filled.source.id, 0)


def test_a_source_without_events_is_not_listed_when_it_is_forgotten(
    filled: Filled, source: Commands, tmp_path: Path
) -> None:
    write_frames(tmp_path / "other", traffic(1))
    remember_sources(filled.root, [tmp_path / "other"])
    assert source("forget", tmp_path / "other").err == ""
    assert [each["partition"] for each in source.list()] == [0]


def test_runs_follow_a_moved_mesh_and_read_a_named_copy_from_where_it_differs(
    pipeline: Opening, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With Spark, its checkpoint and three days of traffic: neither loss nor double."""
    traffic = Traffic(tmp_path / "live")
    traffic.day()
    traffic.close()
    root = tmp_path / "tables"
    assert pipeline(directories=(traffic.path,)).run().status == "published"
    shutil.copytree(traffic.path, tmp_path / "copy")
    moved = traffic.path.rename(tmp_path / "moved")
    shared = journal_sequences(moved)[-1]
    traffic.path = moved
    traffic.reopen()
    traffic.day()
    traffic.close()
    opened = pipeline(directories=(moved,))
    record = opened.run()
    assert (record.status, record.events) == ("published", len(journal_sequences(moved)) - shared)

    own = Traffic(tmp_path / "copy")
    own.day()
    own.close()
    copy = tmp_path / "copy"
    with pytest.raises(Conflict, match=f"event {shared + 1} is the first that differs"):
        pipeline(directories=(moved, copy)).run()
    assert Commands(root, capsys)("move", moved, copy, "--as-new").code == Exit.OK
    both = pipeline(directories=(moved, copy))
    assert both.run().status == "published"
    expected = [(0, each) for each in journal_sequences(moved)]
    expected += [(1, each) for each in journal_sequences(copy) if each > shared]
    assert bronze_sequences(both.store) == expected
    assert both.run().status == "nothing new"

    assert Commands(root, capsys)("forget", copy).code == Exit.OK
    for name in ("bronze", "checkpoints"):  # as `forget` says
        (root / name).rename(tmp_path / f"{name}-away")
    assert pipeline(directories=(moved,)).run().status == "published"
    assert bronze_sequences(both.store) == [(0, each) for each in journal_sequences(moved)]
