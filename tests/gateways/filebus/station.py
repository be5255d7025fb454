"""A bus directory under test: a mesh on a manual clock, its gateway, and hands that do what scripts do."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from relaymesh.gateways.filebus import BusSettings, FileBus
from relaymesh.gateways.filebus.names import META, TIERS, stem_of
from relaymesh.testing import ManualMesh


def names(folder: Path) -> list[str]:
    """What lies in a directory."""
    return sorted(path.name for path in folder.iterdir())


class Station:
    """One bus and everybody around it. `later` moves the wall clock that ages files are measured by."""

    def __init__(self, path: Path, mesh: ManualMesh, *agents: str, **settings: Any) -> None:
        self.path = path
        self.mesh = mesh
        self.session: Any = None
        """Stands in for the mesh's own, if set."""
        self.later = 0.0
        self.agents = agents
        self.settings = BusSettings(**settings)
        self.open()

    def open(self) -> None:
        """Start a gateway: the first, or the one after the last."""
        self.bus = FileBus(
            self.session or self.mesh._session,
            self.path,
            self.agents,
            self.settings,
            wall=lambda: time.time() + self.later,
        )

    def die(self) -> None:
        """The gateway is gone, without a word, and its locks with it. The mesh lives on."""
        self.bus._tree.close()
        self.bus._lock.release()

    def turn(self, times: int = 2) -> None:
        for _ in range(times):
            self.bus.turn()

    def pass_time(self, seconds: float, step: float = 1.0) -> None:
        """Let mesh time pass while the gateway looks now and then, as it would."""
        end = self.mesh.clock.elapsed_ns() + seconds * 1e9
        while self.mesh.clock.elapsed_ns() < end:
            self.mesh.advance(step)
            self.bus.turn()

    # -- what a sending script does

    def write(self, place: str, data: bytes | str) -> Path:
        path = self.path / place
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        path.chmod(0o600)
        return path

    def send(self, stem: str, to: str, content: Any = "hello", **meta: Any) -> None:
        self.write(f"payload/{stem}.payload.json", json.dumps(content))
        new = self.write(f"meta/.{stem}.new", json.dumps({"to": to, **meta}))
        new.rename(self.path / f"meta/{stem}.meta.json")

    def receipt(self, stem: str) -> dict[str, Any] | None:
        return self.json(f"receipt/{stem}.receipt.json")

    def reason(self, stem: str) -> dict[str, Any] | None:
        return self.json(f"dead/{stem}.reason.json")

    def json(self, place: str) -> dict[str, Any] | None:
        path = self.path / place
        return json.loads(path.read_bytes()) if path.exists() else None

    # -- what a receiving script does

    def inbox(self) -> list[str]:
        """Stems that can be claimed, the most urgent tier first."""
        return [stem for tier in TIERS for stem in self.stems(f"inbox/{tier}")]

    def stems(self, place: str) -> list[str]:
        return [stem for name in names(self.path / place) if (stem := stem_of(name, META)) is not None]

    def ids(self) -> list[str]:
        """Message ids that can be claimed, in order."""
        return [stem.rpartition("~")[0] for stem in self.inbox()]

    def claim(self, worker: str = "w1") -> Claim | None:
        """The first that can be had, as a shell loop would take it."""
        place = self.path / "processing" / worker
        place.mkdir(exist_ok=True)
        for tier in TIERS:
            for stem in self.stems(f"inbox/{tier}"):
                try:
                    (self.path / "inbox" / tier / (stem + META)).rename(place / (stem + META))
                except FileNotFoundError:
                    continue
                return Claim(self, worker, stem)
        return None

    def take(self, worker: str = "w1") -> Claim:
        claim = self.claim(worker)
        assert claim is not None, f"nothing to claim in {self.path}"
        return claim


class Claim:
    """A delivery in a worker's hands."""

    def __init__(self, station: Station, worker: str, stem: str) -> None:
        self.station = station
        self.stem = stem
        self.path = station.path / "processing" / worker / (stem + META)
        self.meta = json.loads(self.path.read_bytes())

    @property
    def id(self) -> str:
        return str(self.meta["id"])

    @property
    def attempt(self) -> int:
        return int(self.meta["delivery"]["attempt"])

    @property
    def data(self) -> bytes:
        return Path(self.station.path, self.meta["payload"]).read_bytes()

    @property
    def content(self) -> Any:
        return json.loads(self.data)

    def done(self) -> None:
        self.path.rename(self.station.path / "done" / (self.stem + META))
        self.station.turn(1)

    def dead(self, **verdict: Any) -> None:
        if verdict:
            self.station.write(f"dead/{self.stem}.verdict.json", json.dumps(verdict))
        self.path.rename(self.station.path / "dead" / (self.stem + META))
        self.station.turn(1)


@contextmanager
def station(path: Path, *agents: str, **settings: Any) -> Iterator[Station]:
    """A bus of these agents, on a mesh in memory."""
    with ManualMesh() as mesh:
        opened = Station(path / "bus", mesh, *(agents or ("coder",)), **settings)
        try:
            yield opened
        finally:
            opened.bus.close()
