"""`python -m bench.pipeline.before_after REV`: the commands people wait for, on two revisions, in turns.

    python -m bench.pipeline.before_after 83eb5a2                 this tree against that revision
    python -m bench.pipeline.before_after 83eb5a2 --events 0      without the large journal: a few minutes
    python -m bench.pipeline.before_after --write-docs            the last results into the docs

Each round runs every command on both, the other one first each time, in processes and warehouses of its own.
The journals are the same for both. What is told is the best round of each, and the ratio of those.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import machine
from bench.compare.revisions import WORKING_TREE, Revision, UnknownRevision, extract
from bench.journals import write_journal
from bench.pipeline.spent import Spent, spent_by_command
from bench.report import Report, Table, markdown_tables, number, plain_tables, put_between, told_of

RESULTS = Path("bench/results")
LATEST = RESULTS / "pipeline-before-after.json"
DOCUMENT = Path("docs/benchmarks-pipeline.md")
BEGIN = "<!-- before and after: begin, written by `python -m bench.pipeline.before_after --write-docs` -->"
END = "<!-- before and after: end -->"
EVENTS = 2_000_000
ROUNDS = 3
SAMPLE, IDLE, LARGE = "`report build --sample`", "`pipeline run`, nothing new", "`report build`"
_COMMAND = "import sys; from relaymesh.cli.main import main; sys.exit(main(sys.argv[1:]))"


def main() -> int:
    options = arguments()
    if options.write_docs:
        found = json.loads(LATEST.read_text(encoding="utf-8"))
        put_between(DOCUMENT, BEGIN, END, markdown(found))
        print(f"{DOCUMENT} now has the figures of {LATEST}")
        return 0
    RESULTS.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="before-after-", dir=RESULTS.absolute()))
    try:
        revisions = [extract(options.before, place / "before"), extract(WORKING_TREE, place / "after")]
        found = run(revisions, place, options.rounds, options.events)
    except UnknownRevision as error:
        print(error, file=sys.stderr)
        return 2
    finally:
        shutil.rmtree(place, ignore_errors=True)
    LATEST.write_text(json.dumps(found, indent=1), encoding="utf-8")
    print(plain(found))
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline.before_after", description=__doc__)
    parser.add_argument("before", metavar="REV", nargs="?", default="HEAD", help="git revision (HEAD)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"of the small commands ({ROUNDS})")
    parser.add_argument("--events", type=int, default=EVENTS, help=f"of the large one; 0: none ({EVENTS:,})")
    parser.add_argument("--write-docs", action="store_true", help="put the last results into the docs")
    return parser.parse_args()


def run(revisions: Sequence[Revision], place: Path, rounds: int, events: int) -> Report:
    facts = machine.facts(place)
    facts["packages"] = {name: machine.version(name) for name in ("relaymesh", "pyspark", "pyarrow")}
    rows: dict[str, list[list[Spent]]] = {SAMPLE: [[], []], IDLE: [[], []]}
    for turn in range(rounds):
        for which in (0, 1) if turn % 2 == 0 else (1, 0):
            own = place / f"{turn}-{which}"
            own.mkdir()
            _say(f"round {turn + 1}: {revisions[which].name}")
            for name, spent in small(revisions[which], own).items():
                rows[name][which].append(spent)
            shutil.rmtree(own)
    if events:
        journal = place / "large"
        told = write_journal(journal, events)
        rows[f"{LARGE}, {told:,} events"] = [
            [large(revision, journal, place / f"large-{which}")] for which, revision in enumerate(revisions)
        ]
    return {
        "machine": facts,
        "revisions": [each.name for each in revisions],
        "rounds": rounds,
        "rows": {name: [[asdict(each) for each in own] for own in both] for name, both in rows.items()},
    }


def small(revision: Revision, place: Path) -> dict[str, Spent]:
    """The sample, and then a run over what it left, which has nothing new; the second of two."""
    data, page = place / "data", place / "sample.html"
    sample = command(revision, place, "report", "build", "--sample", "--dir", str(data), "--out", str(page))
    command(revision, place, "pipeline", "run", "--dir", str(data))
    return {SAMPLE: sample, IDLE: command(revision, place, "pipeline", "run", "--dir", str(data))}


def large(revision: Revision, journal: Path, place: Path) -> Spent:
    """From the journal to the page, ingest included."""
    place.mkdir()
    _say(f"the large journal: {revision.name}")
    places = ("--dir", str(journal), "--warehouse", str(place / "tables"), "--out", str(place / "page.html"))
    return command(revision, place, "report", "build", *places)


def command(revision: Revision, place: Path, *words: str) -> Spent:
    return spent_by_command(["-c", _COMMAND, *words], place / "log", source=revision.source)


def table(found: Report) -> Table:
    head = ["command", "wall s before", "wall s after", "ratio", "CPU s before", "CPU s after", "ratio"]
    rows = []
    for name, (before, after) in found["rows"].items():
        cells = [name]
        for measure in ("wall_s", "cpu_s"):
            one, two = best(before, measure), best(after, measure)
            cells += [number(one), number(two), f"{number(one / two)}×"]
        rows.append(cells)
    return head, rows


def best(rounds: Sequence[Mapping[str, Any]], measure: str) -> float:
    return max(0.01, min(float(each[measure]) for each in rounds))


def where_and_when(found: Report) -> str:
    where, packages = told_of(found["machine"])
    before, after = found["revisions"]
    load = found["machine"]["load_average"] or "unknown"
    large = (
        ", of the large journal one" if any(name.startswith(f"{LARGE},") for name in found["rows"]) else ""
    )
    return (
        f"{where}; load average at the start {load}; before: {before}, after: {after}; best of"
        f" {found['rounds']} rounds{large}. {packages}."
    )


TABLES = (("Before and after", table),)


def plain(found: Report) -> str:
    return "\n\n".join([where_and_when(found), *plain_tables(found, TABLES)])


def markdown(found: Report) -> str:
    return "\n\n".join([where_and_when(found), *markdown_tables(found, TABLES)])


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
