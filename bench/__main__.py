"""`python -m bench`: run the plan, judge the figures, print the tables, keep the JSON."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from bench import child, machine, report
from bench.disk_sync import RawDisk
from bench.figures import Results, judge
from bench.plan import Job, jobs

RESULTS = Path("bench/results")
DOCUMENT = Path("docs/benchmarks.md")
PROFILED = ("throughput", "one_by_one", "recovery")


def main() -> int:
    options = arguments()
    latest = RESULTS / "latest.json"
    if options.write_docs:
        report.write_docs(json.loads(latest.read_text(encoding="utf-8")), DOCUMENT)
        print(f"{DOCUMENT} now has the figures of {latest}")
        return 0
    chosen = [job for job in jobs(options.quick) if wanted(job, options.only)]
    if options.list:
        print("\n".join(job.key for job in chosen))
        return 0
    if not chosen:
        print(f"no measurement is called {', '.join(options.only)}; --list names them", file=sys.stderr)
        return 2
    found = run(chosen, options.quick, profile=not (options.quick or options.no_profile))
    RESULTS.mkdir(parents=True, exist_ok=True)
    latest.write_text(json.dumps(found, indent=1), encoding="utf-8")
    print(report.plain(found))
    print(f"\n{latest} holds all of it")
    return 1 if any("error" in each for all in found["results"].values() for each in all) else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure RelayMesh.")
    parser.add_argument("--quick", action="store_true", help="smaller and shorter: under 2 minutes")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="measurements whose name starts so (may be repeated), such as throughput/mesh or recovery",
    )
    parser.add_argument("--list", action="store_true", help="name the measurements and stop")
    parser.add_argument("--no-profile", action="store_true", help="do not profile what misses its figure")
    parser.add_argument("--write-docs", action="store_true", help="put the last results into the docs")
    return parser.parse_args()


def wanted(job: Job, only: list[str]) -> bool:
    return not only or any(job.key.startswith(name) for name in only)


def run(chosen: list[Job], quick: bool, profile: bool) -> dict[str, Any]:
    began = time.perf_counter()
    place = RESULTS / "tmp"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    try:
        facts = machine.facts(place)
        with RawDisk(place / "disk") as disk:
            facts["sync"] = {"rate": disk.for_seconds(0.5 if quick else 2.0), **disk.summary()}
        results = interleaved(chosen, place)
        figures = judge(results)
        profiles = profile_missed(chosen, figures, place) if profile else {}
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return {
        "machine": facts,
        "quick": quick,
        "took_s": round(time.perf_counter() - began, 1),
        "figures": figures,
        "results": results,
        "profiles": profiles,
    }


def interleaved(chosen: list[Job], place: Path) -> Results:
    """Every job once, then those that are repeated again: a bad minute does not hit one job alone."""
    results: Results = {job.key: [] for job in chosen}
    rounds = max(job.repeats for job in chosen)
    for turn in range(rounds):
        for job in chosen:
            if turn < job.repeats:
                say(f"{job.key} ({turn + 1} of {job.repeats})")
                results[job.key].append(child.run(job.measure, place / "run", job.params, job.timeout_s))
    return results


def profile_missed(chosen: list[Job], figures: list[dict[str, Any]], place: Path) -> dict[str, Any]:
    """Run what missed its figure once more under the profiler; that run is no figure."""
    missed = {row["job"] for row in figures if row["verdict"] == "missed"}
    profiles = {}
    for job in chosen:
        if job.key in missed and job.measure in PROFILED:
            say(f"profile of {job.key}")
            params = {**job.params, "profile": True}
            if job.measure == "one_by_one":
                params["peers"] = False
            found = child.run(job.measure, place / "run", params, job.timeout_s)
            if "error" in found:
                say(f"no profile: {found['error'].splitlines()[-1]}")
            else:
                profiles[job.key] = found["profile"]
    return profiles


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
