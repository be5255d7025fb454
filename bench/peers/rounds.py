"""The rounds of one run: all take their turn in each, so that a bad minute does not hit one alone."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench import child
from bench.peers import measure
from bench.peers.flow import Shape
from bench.peers.plan import (
    LATENCY_BATCH,
    LATENCY_RECEIVERS,
    LATENCY_SENDERS,
    OURS,
    SIZE,
    Lengths,
    rate_key,
)
from bench.peers.server import FailedServer, MissingServer, Server

Say = Callable[[str], None]
OURS_TIMEOUT_S = 120.0


class Rounds:
    """Results by system and kind of run, one for each round, and the layout that each peer is best in."""

    def __init__(
        self, peers: dict[str, str], batches: tuple[int, ...], lengths: Lengths, place: Path, say: Say
    ) -> None:
        self._peers = peers
        self._batches = batches
        self._lengths = lengths
        self._place = place
        self._say = say
        self.results: dict[str, dict[str, list[dict[str, Any]]]] = {}
        self.trials: dict[str, dict[str, dict[str, float]]] = {}
        self._layouts: dict[tuple[str, int], str] = {}

    def run(self) -> None:
        for turn in range(self._lengths.rounds):
            for api in OURS:
                self._note_turn(turn, api)
                self._turn_of_ours(api)
            for peer, module in self._peers.items():
                self._note_turn(turn, peer)
                self._turn_of_peer(turn, peer, module)

    def _note_turn(self, turn: int, system: str) -> None:
        self._say(f"round {turn + 1} of {self._lengths.rounds}: {OURS.get(system, system)}")

    def _keep(self, system: str, kind: str, found: dict[str, Any]) -> dict[str, Any]:
        self.results.setdefault(system, {}).setdefault(kind, []).append(found)
        if "error" in found:
            self._say(f"{system}, {kind}: {found['error'].splitlines()[-1]}")
        return found

    # -- RelayMesh -----------------------------------------------------------------------------

    def _turn_of_ours(self, api: str) -> None:
        place = self._place / "mesh"
        common = {"api": api, "durability": "synced", "size": SIZE}
        for batch in self._batches:
            params = {**common, "batch": batch, "seconds": self._lengths.seconds}
            found = child.run("throughput", place, params, OURS_TIMEOUT_S)
            self._keep(api, rate_key(batch), found)
            if batch == LATENCY_BATCH and "error" not in found:
                params = {
                    **common,
                    "batch": batch,
                    "seconds": self._lengths.latency_s,
                    "rate": found["rate"] / 2,
                }
                self._keep(api, "latency", child.run("latency", place, params, OURS_TIMEOUT_S))

    # -- servers -------------------------------------------------------------------------------

    def _turn_of_peer(self, turn: int, peer: str, module: str) -> None:
        """A turn that breaks leaves an error in each of its places: rounds are compared by their number."""
        try:
            with started(module, self._place / module) as server:
                for batch in self._batches:
                    self._rate(peer, module, server, batch)
        except (FailedServer, MissingServer) as error:
            for kind in map(rate_key, self._batches):
                if len(self.results.get(peer, {}).get(kind, [])) <= turn:
                    self._keep(peer, kind, {"error": str(error)})

    def _rate(self, peer: str, module: str, server: Server, batch: int) -> None:
        place = self._place / module
        layout = self._layouts.get((peer, batch)) or self._best_layout(peer, module, server, batch)
        found = measure.run(module, server, place, shape(module, batch, self._lengths.seconds), layout)
        self._keep(peer, rate_key(batch), found)
        if batch == LATENCY_BATCH and "error" not in found:
            paced = Shape(
                batch=batch,
                size=SIZE,
                seconds=self._lengths.latency_s,
                senders=LATENCY_SENDERS,
                receivers=LATENCY_RECEIVERS,
                rate=found["rate"] / 2,
            )
            self._keep(peer, "latency", measure.run(module, server, place, paced, layout))

    def _best_layout(self, peer: str, module: str, server: Server, batch: int) -> str:
        """Producer and consumer in one process or in two: a short trial of each, then kept for all rounds."""
        if not self._lengths.trial_s:
            return "two processes"
        place = self._place / module
        rates = {}
        for layout in measure.LAYOUTS:
            trial = measure.run(module, server, place, shape(module, batch, self._lengths.trial_s), layout)
            rates[layout] = float(trial.get("rate", 0.0))
        best = max(rates, key=lambda layout: rates[layout])
        self._layouts[peer, batch] = best
        self.trials.setdefault(peer, {})[rate_key(batch)] = rates
        return best


def shape(module: str, batch: int, seconds: float) -> Shape:
    peer = measure.module_of(module)
    return Shape(
        batch=batch,
        size=SIZE,
        seconds=seconds,
        senders=peer.SENDERS[batch],
        receivers=peer.RECEIVERS[batch],
    )


@contextlib.contextmanager
def started(module: str, place: Path) -> Iterator[Server]:
    """A server with nothing in it, ended and its directory removed afterwards."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    try:
        server: Server = measure.module_of(module).start(place)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(place, ignore_errors=True)
