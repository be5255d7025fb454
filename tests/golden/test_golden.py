"""Directories that earlier versions wrote open as they are: nothing receipted in them is out of reach."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from relaymesh.journal import compare, list_segments, restore_from, verify
from relaymesh.kernel.query import Peek
from relaymesh.node.disk import RealDisk
from relaymesh.node.opening import rebuild_store
from relaymesh.node.settings import MeshSettings
from relaymesh.testing.clock import ManualClock
from relaymesh.testing.mesh import ManualMesh
from relaymesh.wire.old_forms import moment, read_failures
from tests.golden.reading import OPERATIONS, operations_of, records_of

GOLDEN = Path(__file__).parent / "v0_1_0"
EXPECTED: dict[str, Any] = {
    path.name.removesuffix(".expected.json"): json.loads(path.read_text(encoding="utf-8"))
    for path in sorted(GOLDEN.glob("*.expected.json"))
}
DIRECTORIES = list(EXPECTED)

opened_directories = pytest.mark.parametrize("name", DIRECTORIES)


@pytest.fixture
def directory(name: str, tmp_path: Path) -> Path:
    """A copy to work on: a golden directory is never written to."""
    return copy_of(name, tmp_path / name)


def copy_of(name: str, target: Path) -> Path:
    shutil.copytree(GOLDEN / name, target)
    return target


@contextmanager
def opened(path: Path, name: str, settings: MeshSettings | None = None) -> Iterator[ManualMesh]:
    """The mesh on a directory, at the moment at which the directory was left."""
    clock = ManualClock(datetime.fromisoformat(EXPECTED[name]["clock"]))
    mesh = ManualMesh(path, clock=clock, settings=settings)
    try:
        yield mesh
    finally:
        mesh.close()


def check(mesh: ManualMesh, name: str) -> None:
    """What was sent and not settled is pending, in its order; what was buried is a dead letter."""
    expected = EXPECTED[name]
    pending = {
        mailbox: [
            [entry.envelope.id, entry.sequence] for entry in mesh._session.execute(Peek(mailbox, 1_000))
        ]
        for mailbox in expected["pending"]
    }
    assert pending == expected["pending"]
    assert set(mesh.stats().mailboxes) == set(expected["pending"])
    letters = sorted([each.receiver, each.message_id, each.reason] for each in mesh.dead_letters())
    assert letters == expected["dead_letters"]


@opened_directories
def test_it_opens_with_everything_that_was_receipted(name: str, directory: Path) -> None:
    with opened(directory, name) as mesh:
        check(mesh, name)


@opened_directories
def test_a_start_reads_only_what_lies_behind_the_newest_checkpoint(name: str, directory: Path) -> None:
    expected = EXPECTED[name]
    begins = expected["checkpoints"][-1] if expected["checkpoints"] else 1
    with opened(directory, name) as mesh:
        assert mesh._node.opened is not None
        assert mesh._node.opened.replayed == expected["next_sequence"] - begins
        assert mesh._node.opened.epoch == expected["epochs"] + 1


@opened_directories
def test_it_goes_on_and_opens_again_from_a_checkpoint_of_today(name: str, directory: Path) -> None:
    with opened(directory, name) as mesh:
        taken = mesh.checkpoint()
    with opened(directory, name) as mesh:
        check(mesh, name)
        assert mesh._node.opened is not None
        assert taken is not None
        assert mesh._node.opened.state.sequence >= taken
        receipt = mesh.agent("planner").send("planner", "still alive")
        assert receipt.sequence > EXPECTED[name]["next_sequence"]


@opened_directories
def test_the_store_built_anew_says_what_the_old_one_says(name: str, directory: Path, tmp_path: Path) -> None:
    without = copy_of(name, tmp_path / "without")
    (without / "store.db").unlink()
    for path in (directory, without):
        with opened(path, name) as mesh:
            check(mesh, name)
    assert in_words_of_today(rows_of(without)) == in_words_of_today(rows_of(directory))
    (without / "store.db").unlink()
    events = rebuild_store(RealDisk(without), without / "store.db")
    assert events >= EXPECTED[name]["next_sequence"] - 1


def in_words_of_today(rows: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """The rows with each value of an old form as it is read today; the old store has it as it was written."""
    for row in chain.from_iterable(rows.values()):
        if row.get("failures"):
            row["failures"] = read_failures(row["failures"].replace('"bm8="', '"no"'))  # bytes, as JSON
        if row.get("due_at_ms"):
            row["due_at_ms"] = moment(row["due_at_ms"])
    return rows


def rows_of(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table of the store, but for the column that marks where a transaction ended, and
    the senders of ids, which an old store does not have."""
    with closing(sqlite3.connect(path / "store.db")) as db:
        db.row_factory = sqlite3.Row
        tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = {table: list(map(dict, db.execute(f'SELECT * FROM "{table}"'))) for table in tables}
    for row in rows["admissions"]:
        del row["boundary"], row["sender"]
    return {table: sorted(found, key=repr) for table, found in rows.items()}


@pytest.mark.parametrize("name", DIRECTORIES)
def test_verify_finds_every_event_and_no_damage(name: str, directory: Path) -> None:
    expected = EXPECTED[name]
    report = verify(RealDisk(directory), records=True)
    assert report.damage == []
    assert report.found == [], "each record can be read"
    assert report.next_sequence == expected["next_sequence"]
    assert report.events == sum(expected["operations"].values())
    assert report.checkpoints == len(expected["checkpoints"])


@pytest.mark.parametrize("name", DIRECTORIES)
def test_a_stranger_finds_the_events_that_the_ledger_has(name: str) -> None:
    assert operations_of(GOLDEN / name) == EXPECTED[name]["operations"]


def test_no_byte_of_them_has_changed() -> None:
    """Neither by a test that forgot to copy, nor by a tool that changes line ends."""
    lines = (GOLDEN / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    sums = {name: digest for digest, name in (line.split("  ") for line in lines)}
    files = [path for path in GOLDEN.rglob("*") if path.is_file() and path.parent != GOLDEN]
    assert {
        path.relative_to(GOLDEN).as_posix(): sha256(path.read_bytes()).hexdigest() for path in files
    } == sums


def test_everything_holds_every_operation_and_every_cause_of_a_return() -> None:
    everything = GOLDEN / "everything"
    assert set(operations_of(everything)) == set(OPERATIONS.values())
    returned = [record for record in records_of(everything) if OPERATIONS[record[0]] == "Returned"]
    assert {record[4] for record in returned} == {"nack", "expired", "deferred", "released", "restart"}
    granted = [record for record in records_of(everything) if OPERATIONS[record[0]] == "Granted"]
    assert {record[7] for record in granted} == {True, False}, "leases of clients, and of the process itself"
    places = {segment.path.partition("/")[0] for segment in list_segments(RealDisk(everything))}
    assert places == {"journal", "archive"}


def test_a_mirror_takes_the_place_of_its_directory(tmp_path: Path) -> None:
    mirror = copy_of("mirrored.mirror", tmp_path / "mirror")
    target = tmp_path / "anew"
    target.mkdir()
    restored = restore_from(RealDisk(mirror), RealDisk(target), "aside", no_question)
    assert restored.report.next_sequence == EXPECTED["mirrored"]["next_sequence"]
    for path in (mirror, target):
        with opened(path, "mirrored") as mesh:
            check(mesh, "mirrored")


def test_a_directory_goes_on_with_its_mirror(tmp_path: Path) -> None:
    path = copy_of("mirrored", tmp_path / "data")
    mirror = copy_of("mirrored.mirror", tmp_path / "mirror")
    with opened(path, "mirrored", MeshSettings(mirror=mirror)) as mesh:
        check(mesh, "mirrored")
        mesh.agent("planner").send("coder", "on both")
    assert compare(RealDisk(path), RealDisk(mirror)).differences == []


def no_question(why: str) -> None:
    raise AssertionError(why)
