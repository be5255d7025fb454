"""Claims and their leases: renewed while a worker lives, lost when it is silent, found after a crash."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from relaymesh.errors import InvalidSettings
from relaymesh.gateways.filebus import BusSettings
from relaymesh.kernel.commands import Ack
from relaymesh.testing import ManualClock, ManualMesh
from tests.gateways.filebus.station import Station, names, station


def send(bus: Station, count: int = 1, **fields: Any) -> None:
    planner = bus.mesh.agent("planner")
    for number in range(count):
        planner.send("coder", number, id=f"m-{number}", **fields)
    bus.turn()


def test_a_claim_is_renewed_for_as_long_as_it_may_be_silent(bus: Station) -> None:
    send(bus)
    claim = bus.take()
    bus.pass_time(295)
    assert bus.mesh.stats().mailboxes["default/coder"].retried == 0
    claim.done()
    assert bus.mesh.stats().mailboxes["default/coder"].acked == 1


def test_a_worker_that_shows_life_keeps_its_claim(bus: Station) -> None:
    send(bus)
    claim = bus.take()
    for moment in range(10):
        bus.pass_time(200, step=5)
        (claim.path.parent / "alive").touch()
        os.utime(claim.path.parent / "alive", (moment + 1, moment + 1))
    claim.done()
    assert bus.mesh.stats().mailboxes["default/coder"].acked == 1


def test_a_silent_worker_loses_its_claim_and_cannot_settle_it(bus: Station) -> None:
    """Promise 4: the rename that would ack fails, because the file is no longer there under its name."""
    send(bus)
    claim = bus.take("w1")
    bus.pass_time(400)
    with pytest.raises(FileNotFoundError):
        claim.done()
    assert (claim.path.parent / f"{claim.stem}.lost.json").exists()
    again = bus.take("w2")
    assert (again.id, again.attempt) == ("m-0", 2)
    again.done()
    assert bus.mesh.stats().mailboxes["default/coder"].acked == 1


def test_a_worker_that_dies_with_every_attempt_makes_a_dead_letter(bus: Station) -> None:
    """Promise 5: attempts are counted in the journal."""
    send(bus)
    for _ in range(4):
        bus.take()
        bus.pass_time(420, step=5)
    assert bus.inbox() == []
    [letter] = bus.mesh.dead_letters()
    assert (letter.code, letter.letter.attempts) == ("timeout", 4)


def test_work_that_was_done_although_the_lease_was_lost_is_not_done_again(bus: Station) -> None:
    send(bus)
    claim = bus.take()
    bus.turn(1)
    bus.mesh.advance(60)  # the gateway stood still: it noticed nothing
    claim.done()
    bus.pass_time(60)
    assert bus.inbox() == []
    assert bus.mesh.stats().mailboxes["default/coder"].acked == 1
    assert bus.mesh.stats().mailboxes["default/coder"].pending == 0


def test_a_refusal_after_the_lease_was_lost_says_so(bus: Station) -> None:
    send(bus)
    claim = bus.take()
    bus.turn(1)
    bus.mesh.advance(60)
    claim.dead(code="invalid", reason="too late")
    reason = bus.reason(claim.stem)
    assert reason is not None
    assert reason["state"] == "lease_lost"
    bus.pass_time(60)
    assert bus.take().attempt == 2


def test_a_file_that_was_removed_is_delivered_again(bus: Station) -> None:
    send(bus)
    claim = bus.take()
    bus.turn(1)
    claim.path.unlink()
    bus.pass_time(60)
    assert bus.take().attempt == 2


def test_unclaimed_deliveries_burn_nothing_however_long_they_lie_there(bus: Station) -> None:
    send(bus, 3, ttl=0)
    bus.pass_time(3600, step=5)
    claim = bus.take()
    assert claim.attempt == 1
    assert bus.mesh.stats().mailboxes["default/coder"].retried == 0


def test_only_a_window_of_deliveries_is_out(tmp_path: Path) -> None:
    with station(tmp_path, window=5) as bus:
        send(bus, 20)
        assert len(bus.inbox()) == 5
        assert bus.mesh.stats().mailboxes["default/coder"].leased == 5
        bus.take()
        bus.turn()
        assert len(bus.inbox()) == 5


def test_a_worker_that_only_claims_does_not_drain_the_mesh(tmp_path: Path) -> None:
    with station(tmp_path, window=5, held_max=12) as bus:
        send(bus, 50)
        for _ in range(50):
            bus.claim()
            bus.turn(1)
        assert bus.mesh.stats().mailboxes["default/coder"].leased == 12


def test_a_stop_gives_back_what_nobody_claimed_unburned_and_leaves_claims_alone(bus: Station) -> None:
    """Promise 6, for files."""
    send(bus, 3)
    claim = bus.take()
    bus.turn(1)
    bus.bus.close()
    assert bus.inbox() == []
    assert names(bus.path / "payload") == [f"{claim.stem}.payload.json"]
    assert bus.mesh.stats().mailboxes["default/coder"].leased == 1
    bus.open()
    bus.turn()
    assert [bus.take("w2").attempt, bus.take("w2").attempt] == [1, 1]
    claim.done()
    assert bus.mesh.stats().mailboxes["default/coder"].acked == 1


def test_a_new_gateway_finds_the_claims_of_one_that_died(bus: Station) -> None:
    send(bus, 3)
    claim = bus.take()
    bus.turn(1)
    bus.die()
    bus.open()
    bus.pass_time(100)
    claim.done()
    stats = bus.mesh.stats().mailboxes["default/coder"]
    assert (stats.acked, stats.retried) == (1, 0)
    assert len(bus.inbox()) == 2
    assert bus.take("w2").attempt == 1


def test_what_was_settled_while_no_gateway_ran_is_settled_by_the_next(bus: Station) -> None:
    send(bus, 2)
    good, bad = bus.take(), bus.take()
    bus.turn(1)
    bus.die()
    good.path.rename(bus.path / "done" / good.path.name)
    bus.write(f"dead/{bad.stem}.verdict.json", '{"code": "invalid", "reason": "no"}')
    bad.path.rename(bus.path / "dead" / bad.path.name)
    bus.open()
    bus.turn()
    stats = bus.mesh.stats().mailboxes["default/coder"]
    assert (stats.acked, stats.dead) == (1, 1)


def test_an_ack_that_reached_the_mesh_before_the_crash_is_only_filed_away(bus: Station) -> None:
    send(bus)
    claim = bus.take()
    bus.turn(1)
    claim.path.rename(bus.path / "done" / claim.path.name)
    bus.mesh._session.execute(Ack([bus.bus.deliveries.held[claim.stem].token]))
    bus.die()
    bus.open()
    bus.turn()
    assert bus.stems("done") == []
    assert bus.mesh.stats().mailboxes["default/coder"].acked == 1


def test_claims_outlive_a_restart_of_the_mesh_itself(tmp_path: Path) -> None:
    """Promise 6: the bus's workers are remote holders, in other processes than the mesh."""
    clock = ManualClock()
    with ManualMesh(tmp_path / "mesh", clock=clock) as mesh:
        bus = Station(tmp_path / "bus", mesh, "coder")
        send(bus, 2)
        claim = bus.take()
        bus.turn(1)
        bus.die()
        mesh.close(force=True)
    with ManualMesh(tmp_path / "mesh", clock=clock) as mesh:
        bus.mesh = mesh
        bus.open()
        bus.pass_time(100)
        claim.done()
        stats = mesh.stats().mailboxes["default/coder"]
        assert (stats.acked, stats.retried) == (1, 0)
        assert bus.take().id == "m-1"
        bus.bus.close()


def test_a_send_that_was_taken_is_sent_by_the_next_gateway(bus: Station) -> None:
    bus.send("job-1", "planner", {"n": 1})
    (bus.path / "meta/job-1.meta.json").rename(bus.path / ".gateway/job-1.meta.json")
    bus.die()
    bus.open()
    bus.turn()
    assert bus.receipt("job-1") is not None
    assert bus.mesh.stats().mailboxes["default/planner"].accepted == 1


def test_a_send_that_reached_the_mesh_before_the_crash_is_not_sent_twice(bus: Station) -> None:
    bus.send("job-1", "planner", {"n": 1})
    for place in ("meta/job-1.meta.json", "payload/job-1.payload.json"):
        (bus.path / ".gateway" / Path(place).name).write_bytes((bus.path / place).read_bytes())
    bus.turn()
    bus.die()
    bus.open()
    bus.turn()
    receipt = bus.receipt("job-1")
    assert receipt is not None
    assert bus.mesh.stats().mailboxes["default/planner"].accepted == 1
    assert names(bus.path / ".gateway") == ["lock"]


def test_a_delivery_settled_before_it_left_is_handed_out_once(tmp_path: Path) -> None:
    with station(tmp_path) as bus:
        bus.mesh.agent("coder", delivery_semantics="at_most_once")
        send(bus)
        claim = bus.take()
        bus.pass_time(60)
        assert claim.path.exists()
        claim.done()
        assert bus.mesh.stats().mailboxes["default/coder"].acked == 1


@pytest.mark.parametrize("settings", [{"window": 0}, {"silent_s": -1}, {"poll_s_max": 0.01}, {"scan_s": 0}])
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings):
        BusSettings(**settings)
