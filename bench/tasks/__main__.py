"""`python -m bench.tasks`: run the rounds, print the tables, keep the JSON."""

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
from bench.tasks import report, rounds
from bench.tasks.plan import OURS, PEERS, QUICK, SPANS, WHOLE, Sizes, chosen

RESULTS = Path("bench/results")
LATEST = RESULTS / "tasks.json"
DOCUMENT = Path("docs/benchmarks-tasks.md")
PACKAGES = ("relaymesh", "msgspec", "apsw", "uvloop", "common-expression-language", "dbos", "huey")


def main() -> int:
    options = arguments()
    if options.write_docs:
        report.write_docs(json.loads(LATEST.read_text(encoding="utf-8")), DOCUMENT)
        print(f"{DOCUMENT} now has the figures of {LATEST}")
        return 0
    sizes = QUICK if options.quick else WHOLE
    if options.rounds:
        sizes = dataclasses.replace(sizes, rounds=options.rounds)
    names = chosen(options.only, [*sizes.kinds, *SPANS])
    if not names:
        print(f"nothing begins with {', '.join(options.only)}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    found = run(names, sizes, options.quick)
    RESULTS.mkdir(parents=True, exist_ok=True)
    LATEST.write_text(json.dumps(found, indent=1), encoding="utf-8")
    print(report.plain(found))
    print(f"\n{LATEST} holds all of it")
    return 1 if report.failures(found) else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.tasks", description="Measure tasks.")
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help=f"what begins so (may be repeated): {', '.join([*WHOLE.kinds, *SPANS])}",
    )
    parser.add_argument("--rounds", type=int, help="how often each is measured")
    parser.add_argument("--write-docs", action="store_true", help="put the last results into the docs")
    return parser.parse_args()


def run(names: list[str], sizes: Sizes, quick: bool) -> dict[str, Any]:
    began = time.perf_counter()
    place = (RESULTS / "tasks").absolute()
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    absent = rounds.missing()
    for why in absent.values():
        say(f"left out: {why}")
    systems = [name for name in (*OURS, *PEERS) if name not in absent]
    found: dict[str, Any] = {"quick": quick, "missing": absent}
    try:
        facts = machine.facts(place)
        facts["packages"] = {name: machine.version(name) for name in PACKAGES}
        with RawDisk(place / "disk") as disk:
            facts["sync"] = {"rate": disk.for_seconds(0.5), **disk.summary()}
        found["machine"] = facts
        kinds = [name for name in names if name in sizes.kinds]
        found["steps"] = rounds.steps(sizes, kinds, systems, place / "run", say)
        if "p99" in names:
            found["neighbour"] = rounds.neighbour(sizes, place / "run", say)
        if "memory" in names:
            found["memory"] = rounds.memory(sizes, place / "run", say)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return found | {"took_s": round(time.perf_counter() - began, 1)}


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
