"""What is done once a day: old dead letters go to a file and are purged, old segments are dropped."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from relaymesh import Mesh, MeshSettings
from relaymesh.testing import ManualClock, ManualMesh
from relaymesh.testing.disk import Fault, Keep, MemoryDisk, PowerLost
from tests.node.doubles import LIGHT
from tests.waiting import until

HOUR = 3_600
DAY = 24 * HOUR
SETTINGS = MeshSettings(journal=LIGHT)


def die(mesh: ManualMesh, *ids: str, **fields: Any) -> None:
    """A dead letter for each id."""
    planner, coder = mesh.agent("planner"), mesh.agent("coder")
    for id in ids:
        planner.send("coder", {"of": id}, id=id, **fields)
        coder.receive().nack("no use", code="fatal", retryable=False)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(path.iterdir()) for line in file.read_text().splitlines()]


def test_a_node_that_is_restarted_every_day_purges_after_30_days(tmp_path: Path) -> None:
    clock = ManualClock()
    with ManualMesh(tmp_path, settings=SETTINGS, clock=clock) as mesh:
        die(mesh, "old")
    known: list[list[str]] = []
    for day in range(32):
        with ManualMesh(tmp_path, settings=SETTINGS, clock=clock) as mesh:
            if day == 3:
                die(mesh, "young")
            mesh.advance(23 * HOUR)
            known.append([letter.message_id for letter in mesh.dead_letters()])
        clock.advance(HOUR)
    assert known[29] == ["old", "young"]
    assert known[31] == ["young"]


def test_a_node_that_was_down_for_a_month_purges_shortly_after_its_start(tmp_path: Path) -> None:
    with ManualMesh(tmp_path, settings=SETTINGS) as mesh:
        die(mesh, "old")
    mesh.clock.advance(31 * DAY)
    with ManualMesh(tmp_path, settings=SETTINGS, clock=mesh.clock) as mesh:
        mesh.advance(1)
        assert mesh.dead_letters() == []


def test_a_node_that_runs_on_purges_within_a_day_of_the_limit(tmp_path: Path) -> None:
    with ManualMesh(tmp_path, settings=SETTINGS) as mesh:
        die(mesh, "old")
        for _ in range(30):
            mesh.advance(DAY)
        assert [letter.message_id for letter in mesh.dead_letters()] == ["old"]
        mesh.advance(DAY)
        assert mesh.dead_letters() == []


def test_a_letter_is_in_the_archive_with_all_that_is_known_of_it(tmp_path: Path) -> None:
    with ManualMesh(tmp_path, settings=SETTINGS) as mesh:
        die(mesh, "a", task="t-1", tags=["x"])
        died = mesh.now
        mesh.advance(DAY)
        die(mesh, "b")
        (redriven,) = [letter for letter in mesh.dead_letters() if letter.message_id == "b"]
        mesh.redrive(redriven)
        mesh.agent("coder").receive().ack()
        mesh.advance(40 * DAY)
        assert mesh.dead_letters() == []
    first, second = lines(tmp_path / "dead-letters")
    assert (first["messageId"], first["receiver"], first["sender"]) == (
        "a",
        "default/coder",
        "default/planner",
    )
    assert (first["reason"], first["code"], first["error"]) == ("not_retryable", "fatal", "no use")
    assert (first["status"], second["status"]) == ("pending", "redriven")
    assert first["failedAt"].startswith(f"{died:%Y-%m-%dT%H:%M:%S}")
    assert first["message"]["content"] == {"of": "a"}
    assert (first["message"]["metadata"]["taskId"], first["attempts"]) == ("t-1", 1)
    assert first["failures"][0]["stack"] == ""
    (file,) = (tmp_path / "dead-letters").iterdir()
    assert file.name == f"{mesh.now:%Y-%m}.jsonl"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
def test_the_archive_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with ManualMesh(tmp_path, settings=SETTINGS) as mesh:
            die(mesh, "a")
            mesh.advance(31 * DAY)
    finally:
        os.umask(before)
    (file,) = (tmp_path / "dead-letters").iterdir()
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    file.chmod(0o644)
    with ManualMesh(tmp_path, settings=SETTINGS, clock=mesh.clock):
        assert file.stat().st_mode & 0o777 == 0o600


def test_each_month_has_a_file_of_its_own(tmp_path: Path) -> None:
    with ManualMesh(tmp_path, settings=SETTINGS) as mesh:
        for id in ("a", "b"):
            die(mesh, id)
            mesh.advance(32 * DAY)
    assert len(list((tmp_path / "dead-letters").iterdir())) == 2
    assert [line["messageId"] for line in lines(tmp_path / "dead-letters")] == ["a", "b"]


def test_thousands_of_letters_go_in_several_portions(tmp_path: Path) -> None:
    with ManualMesh(tmp_path, settings=SETTINGS) as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        planner.send_many([{"to": "coder", "content": n, "ttl": 1} for n in range(2_500)])
        mesh.advance(10)
        assert mesh.stats().dead_letters == 2_500
        mesh.advance(31 * DAY)
        assert mesh.stats().dead_letters == 0
        assert coder.peek() == []
    numbers = [line["message"]["content"] for line in lines(tmp_path / "dead-letters")]
    assert numbers == list(range(2_500))


def test_a_letter_is_in_the_mesh_or_in_the_archive_wherever_the_power_goes() -> None:
    """Once for each change that the disk is asked for while two letters are archived and purged."""
    cuts = 0
    for keep in Keep:
        for changes in range(1, 200):
            disk, clock = MemoryDisk(), ManualClock()
            mesh = ManualMesh(disk=disk, settings=SETTINGS, clock=clock)
            die(mesh, "a", "b")
            mesh.clock.advance(31 * DAY)
            disk.cut_power_after(changes)
            try:
                mesh.advance(0)
            except PowerLost:
                cuts += 1
            else:
                break
            disk = disk.crash(keep, seed=changes)
            mesh = ManualMesh(disk=disk, settings=SETTINGS, clock=clock)
            held = {letter.message_id for letter in mesh.dead_letters()}
            assert held | archived(disk) == {"a", "b"}, (keep, changes)
            mesh.advance(0)
            assert mesh.dead_letters() == []
            assert archived(disk) == {"a", "b"}, (keep, changes)
            assert not [line for line in archive_lines(disk) if line_id(line) is None], (keep, changes)
    assert cuts > 10


def archive_lines(disk: MemoryDisk) -> list[bytes]:
    names = [name for name in disk.files() if name.startswith("dead-letters/")]
    return [line for name in names for line in disk.files()[name].split(b"\n") if line]


def line_id(line: bytes) -> str | None:
    """None for a line that was cut off."""
    try:
        return str(json.loads(line)["messageId"])
    except ValueError:
        return None


def archived(disk: MemoryDisk) -> set[str]:
    return {id for line in archive_lines(disk) if (id := line_id(line)) is not None}


def test_letters_stay_while_the_archive_cannot_be_written_and_an_alert_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = MemoryDisk()
    with ManualMesh(disk=disk, settings=SETTINGS) as mesh:
        die(mesh, "a")
        mesh.clock.advance(31 * DAY)
        disk.faults.append(Fault("write_at", error=28, lasting=True, within="dead-letters/"))
        mesh.advance(0)
        assert [letter.message_id for letter in mesh.dead_letters()] == ["a"]
        told = [x.getMessage() for x in caplog.records if x.name == "relaymesh.alert"]
        assert "the daily work failed" in told[-1]
        assert "tried again in an hour" in told[-1]
        disk.faults.clear()
        mesh.advance(HOUR - 1)
        assert [letter.message_id for letter in mesh.dead_letters()] == ["a"]
        mesh.advance(2)
        assert mesh.dead_letters() == []
        assert archived(disk) == {"a"}


def test_what_an_operator_purges_is_not_archived(tmp_path: Path) -> None:
    with ManualMesh(tmp_path, settings=SETTINGS) as mesh:
        die(mesh, "a")
        mesh.purge_dead_letters(mesh.dead_letters())
        mesh.advance(31 * DAY)
    assert not (tmp_path / "dead-letters").exists()


def test_a_mesh_in_memory_purges_without_an_archive() -> None:
    with ManualMesh() as mesh:
        die(mesh, "a")
        mesh.advance(31 * DAY)
        assert mesh.dead_letters() == []


def test_a_mesh_with_threads_of_its_own_does_it_too(tmp_path: Path) -> None:
    long_ago = ManualClock(datetime(2020, 1, 1, tzinfo=UTC))
    with ManualMesh(tmp_path, settings=SETTINGS, clock=long_ago) as manual:
        die(manual, "a")
    with Mesh(tmp_path, settings=SETTINGS) as mesh:
        until(lambda: mesh.dead_letters() == [], 10)
    assert [line["messageId"] for line in lines(tmp_path / "dead-letters")] == ["a"]


def test_old_segments_are_dropped_without_waiting_for_a_checkpoint(tmp_path: Path) -> None:
    with ManualMesh(tmp_path, settings=SETTINGS) as mesh:
        for _ in range(3):
            die(mesh, *[f"m{mesh.stats().sequence}-{n}" for n in range(3)])
            mesh.checkpoint()
    for _ in range(2):
        with ManualMesh(tmp_path, settings=SETTINGS, clock=mesh.clock) as mesh:
            mesh.checkpoint()
    assert list((tmp_path / "archive").iterdir())
    mesh.clock.advance(8 * DAY)
    with ManualMesh(tmp_path, settings=SETTINGS, clock=mesh.clock) as mesh:
        mesh.advance(1)
        assert not list((tmp_path / "archive").iterdir())
