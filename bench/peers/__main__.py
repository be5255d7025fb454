"""`python -m bench.peers`: run the rounds with the servers there are, print the tables, keep the JSON."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

from bench import machine
from bench.disk_sync import RawDisk
from bench.peers import measure, report
from bench.peers.plan import BATCHES, PEERS, QUICK, WHOLE, Lengths, chosen
from bench.peers.rounds import Rounds
from bench.peers.server import MissingServer

RESULTS = Path("bench/results")
LATEST = RESULTS / "peers.json"
DOCUMENT = Path("docs/benchmarks-peers.md")
PACKAGES = ("relaymesh", "msgspec", "apsw", "uvloop", "redis", "hiredis", "nats-py", "pika")


def main() -> int:
    options = arguments()
    if options.write_docs:
        report.write_docs(json.loads(LATEST.read_text(encoding="utf-8")), DOCUMENT)
        print(f"{DOCUMENT} now has the figures of {LATEST}")
        return 0
    names = chosen(options.only)
    if not names:
        print(f"no server is called {', '.join(options.only)}; there are {', '.join(PEERS)}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    found = run(names, tuple(options.batch or BATCHES), lengths(options), options.quick)
    RESULTS.mkdir(parents=True, exist_ok=True)
    LATEST.write_text(json.dumps(found, indent=1), encoding="utf-8")
    print(report.plain(found))
    print(f"\n{LATEST} holds all of it")
    return 1 if report.failures(found) else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers", description="Measure RelayMesh beside Redis, NATS and RabbitMQ."
    )
    parser.add_argument("--quick", action="store_true", help="one short round: under 90 seconds")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help=f"RelayMesh and the servers whose name starts so (may be repeated): {', '.join(PEERS)}",
    )
    parser.add_argument(
        "--batch", action="append", type=int, choices=BATCHES, help="messages a call (may be repeated)"
    )
    parser.add_argument("--rounds", type=int, help="how often each is measured")
    parser.add_argument("--seconds", type=float, help="how long a run sends")
    parser.add_argument("--write-docs", action="store_true", help="put the last results into the docs")
    return parser.parse_args()


def lengths(options: argparse.Namespace) -> Lengths:
    found = QUICK if options.quick else WHOLE
    if options.rounds:
        found = dataclasses.replace(found, rounds=options.rounds)
    if options.seconds:
        found = dataclasses.replace(found, seconds=options.seconds, latency_s=options.seconds)
    return found


def run(names: list[str], batches: tuple[int, ...], sizes: Lengths, quick: bool) -> dict[str, Any]:
    began = time.perf_counter()
    place = RESULTS / "peers"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    try:
        facts = machine.facts(place)
        facts["packages"] = {name: machine.version(name) for name in PACKAGES}
        with RawDisk(place / "disk") as disk:
            facts["sync"] = {"rate": disk.for_seconds(0.5), **disk.summary()}
        present, missing = look_for(names)
        for name, reason in missing.items():
            say(f"left out: {name}: {reason}")
        rounds = Rounds({name: PEERS[name] for name in present}, batches, sizes, place, say)
        rounds.run()
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return {
        "machine": facts,
        "quick": quick,
        "took_s": round(time.perf_counter() - began, 1),
        "lengths": dataclasses.asdict(sizes),
        "peers": present,
        "missing": missing,
        "results": rounds.results,
        "trials": rounds.trials,
    }


def look_for(names: list[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """What is installed, and why the others are left out."""
    present: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for name in names:
        try:
            module = measure.module_of(PEERS[name])
            present[name] = {
                "name": module.NAME,
                "version": module.version(),
                "client": module.CLIENT,
                "synced": module.SYNCED,
                "promise": module.PROMISE,
                "batching": module.BATCHING,
            }
        except MissingServer as error:
            missing[name] = str(error)
    return present, missing


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
