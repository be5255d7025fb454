"""`python -m bench.pipeline`: measure, print the tables, keep the JSON."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from bench import machine
from bench.journals import write_journal
from bench.pipeline import report
from bench.pipeline.engines import beside_each_other
from bench.pipeline.into_bronze import decode, ingest
from bench.pipeline.to_report import build_report, build_sample, run_idle

RESULTS = Path("bench/results")
LATEST = RESULTS / "pipeline.json"
DOCUMENT = Path("docs/benchmarks-pipeline.md")
PACKAGES = ("relaymesh", "pyspark", "pyarrow", "duckdb", "polars", "msgspec")
EVENTS = (2_000_000, 4_000_000)
QUICK = (100_000,)
TARGETS = {"events_per_cpu_s": 50_000, "report_s": 60}
"""3,000,000 events a minute and core into bronze; the report on two million events in a minute."""


def main() -> int:
    options = arguments()
    if options.write_docs:
        report.write_docs(json.loads(LATEST.read_text(encoding="utf-8")), DOCUMENT)
        print(f"{DOCUMENT} now has the figures of {LATEST}")
        return 0
    sizes = tuple(sorted(options.events or (QUICK if options.quick else EVENTS)))
    found = run(sizes, options.cores, sample=not options.no_sample)
    RESULTS.mkdir(parents=True, exist_ok=True)
    LATEST.write_text(json.dumps(found, indent=1), encoding="utf-8")
    print(report.plain(found))
    print(f"\n{LATEST} holds all of it")
    wrong = [
        name
        for each in found["runs"]
        for name, told in each["engines"]["queries"].items()
        if not told["same"]
    ]
    if wrong:
        say(f"engines do not agree on {', '.join(wrong)}")
    return 1 if wrong else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description="Measure the pipeline.")
    parser.add_argument("--quick", action="store_true", help=f"on {QUICK[0]:,} events only")
    parser.add_argument("--events", type=int, action="append", metavar="N", help="events (may be repeated)")
    parser.add_argument("--cores", type=int, default=2, help="cores that Spark may use (2)")
    parser.add_argument("--no-sample", action="store_true", help="leave out `report build --sample`")
    parser.add_argument("--write-docs", action="store_true", help="put the last results into the docs")
    return parser.parse_args()


def run(sizes: tuple[int, ...], cores: int, *, sample: bool) -> dict[str, Any]:
    began = time.perf_counter()
    place = (RESULTS / "pipeline").absolute()
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    try:
        facts = machine.facts(place)
        facts["packages"] = {name: machine.version(name) for name in PACKAGES}
        found = {"machine": facts, "cores": cores, "targets": TARGETS}
        if sample:
            say("report build --sample")
            found["sample"] = build_sample(place)
        found["runs"] = [measure(place / str(events), events, cores) for events in sizes]
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return found | {"took_s": round(time.perf_counter() - began, 1)}


def measure(place: Path, wanted: int, cores: int) -> dict[str, Any]:
    """One journal, all the way."""
    from relaymesh.pipeline.tables.store import TableStore

    place.mkdir()
    journal, warehouse = place / "data", place / "tables"
    events = write_journal(journal, wanted)
    found: dict[str, Any] = {"events": events}
    found["journal_bytes"] = sum(file.stat().st_size for file in journal.glob("*/*.rmj"))
    say(f"{events:,} events: decode")
    found["decode"] = decode(journal, events)
    session = start(events, cores)
    try:
        for name, into in (("cold", warehouse), ("warm", place / "again")):
            say(f"{events:,} events: into bronze, {name}")
            found[name] = ingest(session, journal, into, events)
    finally:
        end(session)
    shutil.rmtree(place / "again")
    say(f"{events:,} events: bronze to report")
    found["report"] = build_report(journal, warehouse, place, events, cores)
    found["idle"] = run_idle(journal, warehouse, place)
    session = start(events, cores)
    try:
        say(f"{events:,} events: Spark, DuckDB and Polars")
        found["engines"] = beside_each_other(session, TableStore.open(warehouse))
    finally:
        end(session)
    shutil.rmtree(place)
    return found


def start(events: int, cores: int) -> Any:
    """Spark as the commands of the pipeline set it for so many events."""
    from relaymesh.pipeline.runs.session import session_settings
    from relaymesh.pipeline.spark import spark_session

    master = f"local[{cores}]"
    return spark_session(master=master, app="bench", settings=session_settings(events, master))


def end(session: Any) -> None:
    """Stop Spark, and the Java it ran in: the next one starts cold."""
    from pyspark import SparkContext

    gateway = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=60)
    SparkContext._gateway = SparkContext._jvm = None


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
