"""The daily report of dead letters: once a day by the clock, at the next start if the node was off."""

from __future__ import annotations

import errno
import json
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from relaymesh import InvalidValue, Mesh, MeshSettings, NotFound
from relaymesh.errors import MeshError
from relaymesh.node.disk import RealDisk
from relaymesh.node.letter_reports import find_report, report_days, write_whole
from relaymesh.testing import ManualClock, ManualMesh
from relaymesh.testing.disk import MemoryDisk
from relaymesh.wire.letter_report import LetterReport, ReportGroup, report_text
from tests.node.doubles import LIGHT

HOUR = 3_600
DAY = 24 * HOUR
SETTINGS = MeshSettings(journal=LIGHT, dead_letter_days=1_000, report_days=10)


def opened(path: Path, clock: ManualClock | None = None, settings: MeshSettings = SETTINGS) -> ManualMesh:
    return ManualMesh(path, settings=settings, clock=clock)


def die(mesh: ManualMesh, *ids: str, to: str = "coder", code: str = "fatal") -> None:
    mesh.agent(to, breaker=False)
    for id in ids:
        mesh.agent("planner").send(to, id, id=id)
        mesh.agent(to).receive().nack("no use", code=code, retryable=False)


def days(path: Path) -> list[str]:
    return report_days(RealDisk(path))


def test_a_day_has_one_report_however_often_the_node_is_started(tmp_path: Path) -> None:
    clock = ManualClock(datetime(2026, 1, 1, 10, tzinfo=UTC))
    for _ in range(4):
        with opened(tmp_path, clock) as mesh:
            mesh.advance(HOUR)
    assert days(tmp_path) == ["2026-01-01"]


def test_a_node_that_runs_on_writes_one_after_midnight(tmp_path: Path) -> None:
    with opened(tmp_path, ManualClock(datetime(2026, 1, 1, 23, 59, 58, tzinfo=UTC))) as mesh:
        mesh.advance(1)
        assert days(tmp_path) == ["2026-01-01"]
        mesh.advance(1)
        assert days(tmp_path) == ["2026-01-01", "2026-01-02"]
        mesh.advance(DAY - 1)
        assert days(tmp_path) == ["2026-01-01", "2026-01-02"]
        mesh.advance(1)
        assert days(tmp_path)[-1] == "2026-01-03"


def test_a_node_that_was_off_at_midnight_writes_it_at_its_next_start(tmp_path: Path) -> None:
    clock = ManualClock(datetime(2026, 1, 1, 23, tzinfo=UTC))
    with opened(tmp_path, clock) as mesh:
        mesh.advance(1)
        die(mesh, "a")
    clock.advance(3 * DAY)
    with opened(tmp_path, clock) as mesh:
        mesh.advance(0)
        report = mesh.dead_letter_report()
    assert days(tmp_path) == ["2026-01-01", "2026-01-04"]
    assert (report.day, report.total, report.new, report.since) == ("2026-01-04", 1, 1, "2026-01-01")


def test_it_says_by_mailbox_and_reason_how_many_and_which_are_new(tmp_path: Path) -> None:
    with opened(tmp_path) as mesh:
        mesh.advance(1)
        die(mesh, "a", "b")
        mesh.advance(DAY)
        first = mesh.dead_letter_report()
        died = mesh.now
        die(mesh, "c", "d", "e")
        die(mesh, "x", to="tester")
        mesh.redrive("a")
        mesh.agent("coder").receive().ack()
        mesh.advance(DAY)
        report = mesh.dead_letter_report()
        assert mesh.dead_letter_report(first.day) == first
    assert (first.total, first.new) == (2, 2)
    assert (report.total, report.new, report.since) == (5, 4, first.day)
    coder, tester = report.groups
    assert (coder.mailbox, coder.reason, coder.count, coder.new) == (
        "default/coder",
        "not_retryable",
        4,
        3,
    )
    assert coder.examples == ["b", "c", "d"]
    assert coder.bytes > 0
    assert coder.newest.startswith(f"{died:%Y-%m-%dT%H:%M:%S}")
    assert coder.look == "relaymesh dlq list --receiver default/coder --reason not_retryable"
    assert (tester.mailbox, tester.count, tester.new, tester.examples) == ("default/tester", 1, 1, ["x"])


def test_the_text_says_the_same_and_speaks_to_no_terminal(tmp_path: Path) -> None:
    with opened(tmp_path) as mesh:
        die(mesh, "a")
        mesh.advance(DAY)
        report = mesh.dead_letter_report()
    text = (tmp_path / f"reports/dead-letters-{report.day}.txt").read_text()
    assert text == report_text(report)
    assert "1 wait for a decision" in text
    assert "relaymesh dlq list --receiver default/coder" in text
    group = ReportGroup("default/x", "r", 1, 1, 1, "", "", ["\x1b[2Jevil\u202e"], "look")
    hostile = report_text(LetterReport("2026-01-01", "", 1, 1, [group], 1))
    assert "\x1b" not in hostile
    assert "\u202e" not in hostile


def test_one_line_of_the_log_tells_of_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "relaymesh.node"), opened(tmp_path) as mesh:
        mesh.advance(1)
        die(mesh, "a")
        mesh.advance(DAY)
    lines = [record.getMessage() for record in caplog.records if "dlq report" in record.getMessage()]
    assert len(lines) == 2
    assert lines[1].startswith("dead letters: 1 wait, 1 new since 2026-01-01")


def test_old_reports_go_and_strangers_stay(tmp_path: Path) -> None:
    with opened(tmp_path) as mesh:
        mesh.advance(1)
        stranger = tmp_path / "reports/mine-2020-01-01.json"
        stranger.write_text("{}")
        (tmp_path / "reports/dead-letters-2026-01-01.json.new").write_text("half")
        for _ in range(15):
            mesh.advance(DAY)
    assert len(days(tmp_path)) == 11
    assert days(tmp_path)[0] == "2026-01-06"
    assert stranger.exists()
    assert len(list((tmp_path / "reports").iterdir())) == 2 * 11 + 1


def test_a_wall_clock_that_jumps_removes_no_report_and_counts_no_letter_twice(tmp_path: Path) -> None:
    clock = ManualClock()
    with opened(tmp_path, clock) as mesh:
        die(mesh, "a")
        mesh.advance(1)
        clock.jump_wall(300 * DAY)
        mesh.advance(1)
        die(mesh, "b")
        clock.jump_wall(-299 * DAY)
        mesh.advance(1)
        reports = [mesh.dead_letter_report(day) for day in days(tmp_path)]
    assert [report.day for report in reports] == ["2026-01-01", "2026-01-02", "2026-10-28"]
    assert {report.day: report.new for report in reports} == {
        "2026-01-01": 1,
        "2026-10-28": 0,
        "2026-01-02": 1,
    }
    assert reports[1].since == "2026-10-28"


class NoRoom:
    """A file on a full disk: half of what is written fits."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write_at(self, data: bytes, offset: int) -> None:
        self._file.write_at(data[: len(data) // 2], offset)
        raise OSError(errno.ENOSPC, "No space left on device")

    def close(self) -> None:
        self._file.close()


def test_a_full_disk_leaves_no_half_report_and_the_rest_of_the_day_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings = MeshSettings(journal=LIGHT, dead_letter_days=0.5)
    with opened(tmp_path, settings=settings) as mesh:
        die(mesh, "old")
        mesh.advance(HOUR)
        real = RealDisk.open

        def full(disk: RealDisk, name: str, **how: Any) -> Any:
            file = real(disk, name, **how)
            return NoRoom(file) if name.startswith("reports/") and how.get("write", True) else file

        with monkeypatch.context() as patched:
            patched.setattr(RealDisk, "open", full)
            mesh.advance(DAY)
        assert [path.name for path in (tmp_path / "reports").iterdir() if "01-02" in path.name] == []
        assert mesh.dead_letters() == []
        assert "the report of dead letters failed" in caplog.text
        mesh.advance(HOUR + 1)
        assert days(tmp_path) == ["2026-01-01", "2026-01-02"]


def test_a_file_is_whole_or_not_there() -> None:
    disk = MemoryDisk()
    disk.make_folder("reports")
    write_whole(disk, "reports/a.json", b"first")
    write_whole(disk, "reports/a.json", b"2nd")
    file = disk.open("reports/a.json", write=False)
    assert file.read_at(0, 100) == b"2nd"
    assert disk.list("reports") == ["a.json"]


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"day": 1}', b"\xff\xff", b"null"])
def test_a_report_that_cannot_be_read_is_none_and_the_next_is_written(tmp_path: Path, data: bytes) -> None:
    clock = ManualClock()
    with opened(tmp_path, clock) as mesh:
        mesh.advance(1)
        (tmp_path / "reports/dead-letters-2026-01-01.json").write_bytes(data)
        with pytest.raises(NotFound):
            mesh.dead_letter_report("2026-01-01")
        die(mesh, "a")
        mesh.advance(DAY)
        assert mesh.dead_letter_report().new == 1


def test_two_nodes_of_one_machine_have_reports_of_their_own(tmp_path: Path) -> None:
    with opened(tmp_path / "one") as one, opened(tmp_path / "two") as two:
        die(one, "a")
        for mesh in (one, two):
            mesh.advance(DAY)
        assert (one.dead_letter_report().total, two.dead_letter_report().total) == (1, 0)
        one.purge(dead_older_than=0, dry_run=False, reason="x")
    assert days(tmp_path / "one") == days(tmp_path / "two")


def test_a_mesh_in_memory_has_none() -> None:
    with ManualMesh() as mesh, pytest.raises(NotFound):
        mesh.dead_letter_report()


@pytest.mark.parametrize("day", ["", "today", "2026-1-1", "2026-02-30", "../../etc", "2026-01-01\n", 7, b"x"])
def test_a_day_that_is_none_is_refused(day: Any) -> None:
    with ManualMesh() as mesh, pytest.raises(InvalidValue):
        mesh.dead_letter_report(day)


def test_files_are_their_owners_alone(tmp_path: Path) -> None:
    with Mesh(tmp_path) as mesh:
        assert mesh.stats().dead_letters == 0
    with opened(tmp_path, ManualClock(datetime(2040, 1, 1, tzinfo=UTC))) as manual:
        manual.advance(1)
    for file in (tmp_path / "reports").iterdir():
        assert file.stat().st_mode & 0o077 == 0
    assert (tmp_path / "reports").stat().st_mode & 0o077 == 0
    found = find_report(RealDisk(tmp_path), "2040-01-01")
    assert found is not None
    assert json.loads((tmp_path / "reports/dead-letters-2040-01-01.json").read_text())["day"] == found.day


def test_an_error_of_the_mesh_is_no_report_and_no_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: Any) -> None:
        raise MeshError("not now")

    with opened(tmp_path) as mesh:
        mesh.advance(1)
        monkeypatch.setattr("relaymesh.node.letter_reports.make_report", fails)
        mesh.advance(DAY)
        assert "not now" in caplog.text
