"""The low-frequency scan: what no look would ever come upon again is cleared away, or reported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.gateways.filebus.station import Station, names, station

DAY = 86_400


def scanned(bus: Station) -> dict[str, str]:
    bus.pass_time(61)
    return bus.bus.notices.found


def test_done_is_kept_for_seven_days(bus: Station) -> None:
    bus.mesh.agent("planner").send("coder", "work", id="m-1")
    bus.turn()
    bus.take().done()
    [day] = [path for path in (bus.path / "done").iterdir() if path.is_dir()]
    bus.later = 7 * DAY
    scanned(bus)
    assert day.exists()
    bus.later = 8 * DAY + 1
    scanned(bus)
    assert not day.exists()


def test_retention_can_be_set(tmp_path: Path) -> None:
    with station(tmp_path, done_retention_days=1) as bus:
        (bus.path / "done/2020-01-01").mkdir()
        bus.write("done/2020-01-01/x~0.1.7.meta.json", "{}")
        bus.later = DAY
        scanned(bus)
        assert names(bus.path / "done") == []


def test_receipts_and_marks_of_lost_claims_go_with_the_time(bus: Station) -> None:
    bus.send("job-1", "planner")
    bus.turn()
    (bus.path / "processing/w1").mkdir()
    bus.write("processing/w1/m~0.1.1.lost.json", "{}")
    bus.later = 6 * DAY
    scanned(bus)
    assert bus.receipt("job-1") is not None
    bus.later = 8 * DAY
    scanned(bus)
    assert bus.receipt("job-1") is None
    assert names(bus.path / "processing/w1") == []


def test_payloads_that_a_dead_gateway_left_behind_are_removed(bus: Station) -> None:
    bus.write("payload/m-1~0.1.77.payload.json", "1")
    scanned(bus)
    assert names(bus.path / "payload") == []


def test_payloads_of_deliveries_that_are_out_stay(bus: Station) -> None:
    bus.mesh.agent("planner").send("coder", "one", id="m-1")
    bus.mesh.agent("planner").send("coder", "two", id="m-2")
    bus.turn()
    claim = bus.take()
    scanned(bus)
    assert claim.content == "one"
    assert bus.take().content == "two"


def test_files_a_writer_left_half_written_are_removed_if_they_are_ours_and_reported_if_not(
    bus: Station,
) -> None:
    bus.write("inbox/high/.new-m-1~0.1.7.meta.json", "")
    bus.write("payload/forgotten.payload.json", "1")
    found = scanned(bus)
    assert "payload/forgotten.payload.json" not in found
    bus.later = 4000
    found = scanned(bus)
    assert names(bus.path / "inbox/high") == []
    assert "payload/forgotten.payload.json" in found
    assert (bus.path / "payload/forgotten.payload.json").exists()


def test_a_claim_the_gateway_does_not_know_is_taken_back_if_its_lease_is_good(bus: Station) -> None:
    bus.mesh.agent("planner").send("coder", "one", id="m-1")
    bus.turn()
    claim = bus.take()
    bus.turn(1)
    bus.bus.deliveries.held.clear()
    bus.mesh.advance(20)
    bus.bus._scan.turn()
    assert list(bus.bus.deliveries.held) == [claim.stem]
    bus.pass_time(60)
    claim.done()
    assert bus.mesh.stats().mailboxes["default/coder"].acked == 1


def test_a_claim_without_a_lease_is_marked_as_lost(bus: Station) -> None:
    (bus.path / "processing/w1").mkdir()
    bus.write("processing/w1/m-1~0.1.99.meta.json", "{}")
    scanned(bus)
    assert names(bus.path / "processing/w1") == ["m-1~0.1.99.lost.json"]


def test_strangers_are_reported_and_left_alone(bus: Station, tmp_path: Path) -> None:
    (bus.path / "processing/w1").mkdir()
    places = [
        "meta/readme.txt",
        "inbox/high/note",
        "processing/w1/core",
        "processing/stray.meta.json",
        "done/x.json",
        "dead/y",
        "receipt/z",
    ]
    for place in places:
        bus.write(place, "hello")
    os.mkfifo(bus.path / "inbox/low/pipe")
    (bus.path / "processing/.hidden").mkdir()
    found = scanned(bus)
    for place in (*places, "inbox/low/pipe", "processing/.hidden"):
        assert place in found
        assert (bus.path / place).exists()


def test_a_quiet_bus_reads_no_directory_twice(bus: Station) -> None:
    """What an idle look costs: a stat for each directory, and a question to the mesh."""
    for folder in (bus.path, *(path for path in bus.path.rglob("*") if path.is_dir())):
        os.utime(folder, (1_000_000, 1_000_000))
    bus.turn()
    calls: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "scandir", lambda *arguments: calls.append(arguments))
        bus.turn(5)
    assert calls == []


def test_a_thousand_dead_letters_cost_a_quiet_bus_nothing(bus: Station) -> None:
    for number in range(1000):
        bus.write(f"dead/m-{number}~0.1.{number + 1}.meta.json", "{}")
        bus.write(f"dead/m-{number}~0.1.{number + 1}.reason.json", "{}")
    assert bus.bus.deliveries._spots.look() == {}
    os.utime(bus.path / "dead", (1_000_000, 1_000_000))
    bus.turn()
    known = bus.bus.deliveries._spots._known[bus.bus._tree.dead]
    bus.turn()
    assert bus.bus.deliveries._spots._known[bus.bus._tree.dead] is known
