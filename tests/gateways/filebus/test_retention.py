"""Old files of a bus: only the gateway's own go, by name; links, strangers and live files stay."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from relaymesh.errors import InvalidSettings
from relaymesh.gateways.filebus import BusSettings
from relaymesh.gateways.filebus.folder import Folder
from relaymesh.gateways.filebus.names import is_day
from relaymesh.gateways.filebus.retention import purge_files, survey_files
from relaymesh.gateways.filebus.tree import Tree, make_tree
from tests.gateways.filebus.station import Station, names, station

DAY = 86_400
NOW = 1_767_312_000.0  # 2026-01-02T00:00:00Z


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    make_tree(tmp_path / "bus")
    return Tree(tmp_path / "bus")


def put(tree: Tree, place: str, *, age_s: float = 0, data: str = "{}") -> Path:
    path = tree.path / place
    path.parent.mkdir(exist_ok=True)
    path.write_text(data)
    os.utime(path, (NOW - age_s, NOW - age_s))
    return path


def everything(path: Path) -> list[str]:
    return sorted(str(each.relative_to(path)) for each in path.rglob("*") if not each.is_dir())


def purge(tree: Tree, done_days: float | None = 7, dead_days: float | None = 30) -> dict[str, int]:
    done = None if done_days is None else NOW - done_days * DAY
    dead = None if dead_days is None else NOW - dead_days * DAY
    before = everything(tree.path)
    surveyed: dict[str, int] = {}
    for row in survey_files(tree, done, dead):
        surveyed[row.kind] = surveyed.get(row.kind, 0) + row.count
    assert everything(tree.path) == before
    removed = purge_files(tree, done, dead)
    assert removed == surveyed
    return removed


@pytest.mark.parametrize(
    ("day", "stays"), [("2025-12-24", False), ("2025-12-25", False), ("2025-12-26", True)]
)
def test_a_day_goes_when_it_ended_seven_days_ago(tree: Tree, day: str, stays: bool) -> None:
    put(tree, f"done/{day}/m~0.1.1.meta.json")
    put(tree, f"done/{day}/m~0.1.1.payload.json")
    purge(tree)
    assert (tree.path / "done" / day).exists() is stays


@pytest.mark.parametrize(("age_s", "stays"), [(7 * DAY, True), (7 * DAY + 1, False)])
def test_receipts_and_lost_marks_go_by_their_age(tree: Tree, age_s: float, stays: bool) -> None:
    receipt = put(tree, "receipt/job-1.receipt.json", age_s=age_s)
    lost = put(tree, "processing/w1/m~0.1.1.lost.json", age_s=age_s)
    purge(tree)
    assert (receipt.exists(), lost.exists()) == (stays, stays)


@pytest.mark.parametrize(("age_s", "stays"), [(30 * DAY, True), (30 * DAY + 1, False)])
def test_what_was_refused_goes_with_its_reason(tree: Tree, age_s: float, stays: bool) -> None:
    put(tree, "dead/job.reason.json", age_s=age_s)
    for ending in ("meta", "payload"):
        put(tree, f"dead/job.{ending}.json", age_s=900 * DAY)
    put(tree, "dead/m~0.1.1.reason.json", age_s=age_s)
    put(tree, "dead/m~0.1.1.meta.json")
    purge(tree)
    assert (len(names(tree.path / "dead")) == 5) is stays
    assert (names(tree.path / "dead") == []) is not stays


def test_a_refused_delivery_without_a_reason_is_still_to_be_told_to_the_mesh(tree: Tree) -> None:
    put(tree, "dead/m~0.1.1.meta.json", age_s=900 * DAY)
    put(tree, "dead/m~0.1.1.verdict.json", age_s=900 * DAY)
    assert purge(tree) == {}


def test_live_files_never_go_however_old_they_are(tree: Tree) -> None:
    places = [
        "meta/job.meta.json",
        "payload/job.payload.json",
        "inbox/high/m~0.1.1.meta.json",
        "processing/w1/m~0.1.2.meta.json",
        "processing/w1/alive",
        "payload/m~0.1.2.payload.json",
        "done/m~0.1.3.meta.json",
        ".gateway/taken.meta.json",
    ]
    for place in places:
        put(tree, place, age_s=9_000 * DAY)
    assert purge(tree, 0, 0) == {}
    assert everything(tree.path) == sorted(places)


HOSTILE = [
    "notes.txt",
    ".hidden",
    "x.meta.json",
    "~0.1.1.meta.json",
    "m~0.1.meta.json",
    "m~99999999.1.1.meta.json",
    "m~٠.١.١.meta.json",
    "-rf~0.1.1.meta.json",
    "..~0.1.1.meta.json",
    "a b~0.1.1.meta.json",
    "m~0.1.1.meta.json.bak",
    "m~0.1.1.meta.json\n",
    "\x1b[2J~0.1.1.meta.json",
    "x.reason.json.old",
    ".reason.json",
    "a b.reason.json",
    "-x.reason.json",
    "x.receipt.json~",
    " .receipt.json",
]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such names")
def test_files_of_other_names_stay_and_keep_their_day(tree: Tree) -> None:
    for name in HOSTILE:
        for place in ("done/2020-01-01", "receipt", "dead", "processing/w1"):
            put(tree, f"{place}/{name}", age_s=900 * DAY)
    put(tree, "done/2020-01-01/m~0.1.1.meta.json")
    raw = os.fsencode(tree.path / "done/2020-01-01") + b"/\xff\xfe~0.1.1.meta.json"
    os.close(os.open(raw, os.O_CREAT))
    assert purge(tree) == {"done": 1}
    assert len(everything(tree.path)) == 4 * len(HOSTILE) + 1


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege there")
def test_no_link_is_followed_and_none_is_removed(tree: Tree, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    treasure = outside / "m~0.1.1.meta.json"
    treasure.write_text("treasure")
    os.utime(treasure, (0, 0))
    (tree.path / "done/2020-01-01").symlink_to(outside)
    (tree.path / "done/2020-01-02").mkdir()
    (tree.path / "done/2020-01-02/m~0.1.1.meta.json").symlink_to(treasure)
    (tree.path / "processing/w9").symlink_to(outside)
    (tree.path / "receipt/job.receipt.json").symlink_to(treasure)
    (tree.path / "dead/job.reason.json").symlink_to(treasure)
    os.mkfifo(tree.path / "receipt/pipe.receipt.json")
    assert purge(tree, 0, 0) == {}
    assert treasure.read_text() == "treasure"
    assert (tree.path / "done/2020-01-01").is_symlink()
    assert (tree.path / "done/2020-01-02/m~0.1.1.meta.json").is_symlink()


def test_a_directory_that_was_sent_is_a_persons_to_decide(tree: Tree) -> None:
    put(tree, "dead/job.reason.json", age_s=900 * DAY)
    put(tree, "dead/job.meta.json", age_s=900 * DAY)
    put(tree, "dead/job.payload.json/inside", age_s=900 * DAY)
    assert purge(tree) == {}
    assert names(tree.path / "dead") == ["job.meta.json", "job.payload.json", "job.reason.json"]


def test_files_that_vanish_meanwhile_are_no_error(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        put(tree, f"done/2020-01-01/m~0.1.{number}.meta.json")
        put(tree, f"dead/job{number}.reason.json", age_s=900 * DAY)
    real = Folder.remove

    def racing(folder: Folder, name: str) -> bool:
        """Another purge is just ahead of this one, every second time."""
        if ".1.3." in name or "job3" in name:
            return real(folder, name) and real(folder, name)
        return real(folder, name)

    monkeypatch.setattr(Folder, "remove", racing)
    removed = purge_files(tree, NOW, NOW)
    assert removed == {"done": 5, "dead": 5}
    assert names(tree.path / "dead") == names(tree.path / "done") == []


def test_a_purge_that_died_after_some_files_is_completed_by_the_next(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Folder.remove
    for stop in range(6):
        for number in range(3):
            put(tree, f"dead/job{number}.reason.json", age_s=900 * DAY)
            put(tree, f"dead/job{number}.meta.json", age_s=900 * DAY)
        left = [stop]

        def dying(folder: Folder, name: str, left: list[int] = left) -> bool:
            if left[0] == 0:
                raise KeyboardInterrupt
            left[0] -= 1
            return real(folder, name)

        with monkeypatch.context() as patched:
            patched.setattr(Folder, "remove", dying)
            with pytest.raises(KeyboardInterrupt):
                purge_files(tree, NOW, NOW)
        present = set(names(tree.path / "dead"))
        for name in present:
            if name.endswith(".meta.json"):
                assert name.replace(".meta.", ".reason.") in present
        assert len(present) == 6 - stop
    assert purge_files(tree, NOW, NOW)["dead"] > 0
    assert names(tree.path / "dead") == []


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("2026-01-01", True),
        ("2026-02-30", False),
        ("2026-1-01", False),
        ("20260101", False),
        ("٢٠٢٦-٠١-٠١", False),
        ("9999-12-31", True),
        ("0000-01-01", False),
        ("2026-01-01\n", False),
        ("..", False),
    ],
)
def test_which_names_are_days(name: str, is_one: bool) -> None:
    assert is_day(name) is is_one


def test_the_last_day_there_is_stays(tree: Tree) -> None:
    put(tree, "done/9999-12-31/m~0.1.1.meta.json")
    assert purge(tree, 0, 0) == {}


# -- while a gateway runs


def test_it_happens_at_the_start_and_once_on_each_day_of_the_clock(tmp_path: Path) -> None:
    with station(tmp_path, "coder", done_retention_days=1, dead_retention_days=2) as bus:
        old = bus.path / "done/2020-01-01"

        def leave() -> None:
            old.mkdir(exist_ok=True)
            bus.write("done/2020-01-01/m~0.1.1.meta.json", "{}")

        leave()
        bus.die()
        bus.open()
        assert not old.exists()
        leave()
        bus.pass_time(61)
        assert old.exists()
        bus.later = DAY
        bus.pass_time(61)
        assert not old.exists()


def test_a_clock_that_goes_back_removes_nothing(bus: Station) -> None:
    bus.mesh.agent("planner").send("coder", "work", id="m-1")
    bus.turn()
    bus.take().done()
    done = everything(bus.path / "done")
    bus.later = -400 * DAY
    bus.pass_time(61)
    assert everything(bus.path / "done") == done


def test_sends_that_were_refused_stay_for_thirty_days(bus: Station) -> None:
    bus.send("job-1", "nobody")
    bus.turn()
    assert bus.reason("job-1") is not None
    bus.later = 30 * DAY - 60
    bus.pass_time(61)
    assert bus.reason("job-1") is not None
    bus.later = 31 * DAY + 60
    bus.pass_time(61)
    assert names(bus.path / "dead") == []


@pytest.mark.parametrize("days", [0, -1, 1.5, True, "7", None])
def test_days_that_are_none_are_refused(days: object) -> None:
    for name in ("done_retention_days", "dead_retention_days"):
        with pytest.raises(InvalidSettings):
            BusSettings(**{name: days})  # type: ignore[arg-type]


def test_ages_are_those_of_the_machine_now(tree: Tree) -> None:
    put(tree, "receipt/new.receipt.json")
    os.utime(tree.path / "receipt/new.receipt.json")
    assert survey_files(tree, time.time() - DAY, None) == []
