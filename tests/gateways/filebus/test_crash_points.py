"""The gateway dies before its first, second, third … operation, until it lives: each time the same ending.

An operation is a call that changes the file system, or a call to the mesh. Between any two of them the
gateway may be gone; the scripts, the workers and the mesh live on, and another gateway takes over.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from relaymesh.gateways.filebus import folder
from relaymesh.testing import ManualMesh
from tests.gateways.filebus.station import Station, names

CHANGES = ("open", "write", "replace", "unlink", "mkdir", "rmdir")
CALLS = ("send", "publish", "receive", "release", "ack", "nack", "complete", "extend_all", "mailbox_of")


class Died(BaseException):
    """The process is gone: no handler of the gateway may do anything about it."""


class Fuse:
    """Burns down by one with every operation, and goes off at the ends of `lengths`, one after the other."""

    def __init__(self, *lengths: int) -> None:
        self.lengths = list(lengths)
        self.operations = 0

    def burn(self) -> None:
        self.operations += 1
        if self.lengths:
            self.lengths[0] -= 1
            if self.lengths[0] <= 0:
                del self.lengths[0]
                raise Died


class Fused:
    """Anything, with some of its calls on the fuse."""

    def __init__(self, inner: Any, names: tuple[str, ...], fuse: Fuse) -> None:
        self._inner = inner
        self._names = names
        self._fuse = fuse

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if name not in self._names:
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            self._fuse.burn()
            return value(*args, **kwargs)

        return call


class Life:
    """One scenario, from the first file to quiet, with a gateway that dies when the fuse says so."""

    def __init__(self, path: Path, fuse: Fuse) -> None:
        self.mesh = ManualMesh()
        self.mesh.agent("planner")
        self.mesh.agent("coder", backoff_ms_base=10, breaker=False)
        self.station = Station(path / "bus", self.mesh, "coder")
        self.station.session = Fused(self.mesh._session, CALLS, fuse)
        self.worked: list[tuple[str, str]] = []
        self.reopen()

    def reopen(self) -> None:
        self.station.die()
        while True:
            try:
                self.station.open()
            except Died:
                continue
            return

    def turn(self, seconds: float = 0.5) -> None:
        self.mesh.advance(seconds)
        try:
            self.station.bus.turn()
        except Died:
            self.reopen()

    def work(self) -> None:
        """A worker that dies with nobody: done, refused once, or refused for good."""
        place = self.station.path / "processing/w1"
        place.mkdir(exist_ok=True)
        while (claim := self.station.claim()) is not None:
            kind = claim.id.partition("-")[0]
            self.worked.append((claim.id, claim.stem))
            ending = "done"
            if kind == "bad" or (kind == "again" and claim.attempt == 1):
                ending = "dead"
                verdict = {"retryable": kind == "again", "delayMs": 0, "code": "other"}
                self.station.write(f"dead/{claim.stem}.verdict.json", json.dumps(verdict))
            claim.path.rename(self.station.path / ending / claim.path.name)

    def run(self) -> None:
        for stem, to in (("out-1", "planner"), ("good-1", "coder"), ("again-1", "coder"), ("no-1", "nobody")):
            self.station.send(stem, to, stem)
        self.station.write("meta/broken.meta.json", "[]")
        self.station.later = 10
        for id in ("good-2", "again-2", "bad-2"):
            self.mesh.agent("planner").send("coder", id, id=id)
        for _ in range(8):
            self.turn()
            self.work()
        for _ in range(16):  # whatever a gateway took with it comes back when its lease is over
            self.turn(10)
            self.work()

    def check(self) -> None:
        station = self.station
        for stem in ("out-1", "good-1", "again-1"):
            assert station.receipt(stem) is not None, stem
        for stem, code in (("no-1", "UNKNOWN_RECIPIENT"), ("broken", "INVALID_MESSAGE")):
            reason = station.reason(stem)
            assert reason is not None
            assert reason["code"] == code
        boxes = self.mesh.stats().mailboxes
        assert boxes["default/planner"].accepted == 1
        coder = boxes["default/coder"]
        assert (coder.accepted, coder.acked, coder.dead, coder.pending) == (5, 4, 1, 0)
        assert {id for id, _ in self.worked} == {"good-1", "again-1", "good-2", "again-2", "bad-2"}
        assert max(Counter(stem for _, stem in self.worked).values()) == 1, "a delivery was handed out twice"
        left = {
            place: names(station.path / place)
            for place in ("meta", "payload", "inbox/high", "inbox/normal", "inbox/low", ".gateway")
        }
        assert left.pop(".gateway") == ["lock"]
        assert set(map(tuple, left.values())) == {()}, left
        assert station.stems("done") == []
        station.bus.close()
        self.mesh.close()


def live(tmp_path: Path, *lengths: int) -> int:
    """One life whose gateway dies at these operations. Answers how many operations there were."""
    fuse = Fuse(*lengths)
    tmp_path.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        life = Life(tmp_path, fuse)
        patch.setattr(folder, "os", Fused(os, CHANGES, fuse))
        life.run()
        life.check()
    assert not fuse.lengths or max(lengths) > fuse.operations
    return fuse.operations


def test_a_gateway_that_does_not_die_comes_to_the_same_ending(tmp_path: Path) -> None:
    assert 50 < live(tmp_path / "life") < 2000


@pytest.mark.slow
@pytest.mark.parametrize("again", [0, 3], ids=["once", "and again while the next one starts"])
def test_a_gateway_may_die_before_any_operation(tmp_path: Path, again: int) -> None:
    operations = live(tmp_path / "unharmed")
    for n in range(1, operations):
        try:
            live(tmp_path / f"died-{n}", n, *([again] if again else []))
        except AssertionError as error:
            raise AssertionError(f"died before operation {n}: {error}") from error
