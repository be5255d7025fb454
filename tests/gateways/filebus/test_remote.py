"""The same bus against a node far away: the gateway speaks to a session, wherever that leads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from relaymesh import Mesh
from tests.client.serving import ServerThread
from tests.gateways.filebus.station import Station


@pytest.fixture(params=["http", "websocket"])
def bus(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Station]:
    with ServerThread(tmp_path / "mesh") as server:
        token = server.token()
        mesh = Mesh(server.url, token=token, transport=request.param)
        try:
            mesh.agent("planner")
            station: Any = Station(tmp_path / "bus", mesh, "coder")  # type: ignore[arg-type]
            yield station
            station.bus.close()
        finally:
            mesh.close()


def until(bus: Station, holds: Callable[[], Any], seconds: float = 60.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline, "it did not happen in time"
        bus.turn(1)
        time.sleep(0.01)
    return found


def test_sends_and_deliveries_go_through(bus: Station) -> None:
    bus.send("job-1", "planner", {"n": 1})
    bus.send("job-2", "nobody")
    until(bus, lambda: bus.receipt("job-1"))
    reason = until(bus, lambda: bus.reason("job-2"))
    assert reason["code"] == "UNKNOWN_RECIPIENT"
    planner = bus.mesh.agent("planner")
    assert planner.receive(timeout=10).content == {"n": 1}
    planner.send("coder", {"do": "bump"}, id="m-1", priority="high")
    planner.send("coder", b"\x00\xff", id="m-2")
    until(bus, lambda: len(bus.inbox()) == 2)
    first, second = bus.take(), bus.take()
    assert (first.content, second.data) == ({"do": "bump"}, b"\x00\xff")
    first.done()
    second.dead(code="invalid", reason="no")
    stats = bus.mesh.stats().mailboxes["default/coder"]
    assert (stats.acked, stats.dead) == (1, 1)


def test_what_nobody_claims_stays_out_and_burns_nothing(bus: Station) -> None:
    bus.mesh.agent("planner").send("coder", 1, id="m-1")
    until(bus, bus.inbox)
    [stem] = bus.inbox()
    bus.turn(10)
    assert bus.inbox() == [stem]


def test_a_refusal_that_may_be_tried_again_comes_back(bus: Station) -> None:
    bus.mesh.agent("planner").send("coder", 1, id="m-1")
    until(bus, bus.inbox)
    bus.take().dead(retryable=True, delayMs=0)
    until(bus, bus.inbox)
    assert bus.take().attempt == 2


def test_a_new_gateway_finds_the_claims_of_the_last(bus: Station) -> None:
    bus.mesh.agent("planner").send("coder", 1, id="m-1")
    until(bus, bus.inbox)
    claim = bus.take()
    bus.turn(1)
    bus.die()
    bus.open()
    bus.turn()
    claim.done()
    stats = bus.mesh.stats().mailboxes["default/coder"]
    assert (stats.acked, stats.retried) == (1, 0)


def test_a_stop_gives_back_what_nobody_claimed(bus: Station) -> None:
    bus.mesh.agent("planner").send("coder", 1, id="m-1")
    until(bus, bus.inbox)
    bus.bus.close()
    assert bus.inbox() == []
    [delivery] = bus.mesh.agent("coder").receive_many(5, timeout=10)
    assert delivery.attempt == 1
    delivery.ack()
    bus.open()
