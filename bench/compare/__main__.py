"""`python -m bench.compare REV`: take turns, print the ratios, fail if a row fell below the floor."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import machine
from bench.child import ROOT
from bench.compare.ratios import Block, Slice, Verdict
from bench.compare.revisions import WORKING_TREE, Revision, UnknownRevision, extract
from bench.compare.rows import Row, chosen, rows
from bench.compare.table import table
from bench.compare.worker import FailedSlice, Worker

BELOW, FAILED, USAGE = 9, 1, 2
ROUNDS, QUICK_ROUNDS = 7, 3
RESULTS = ROOT / "bench" / "results"


def main() -> int:
    options = arguments()
    selected = chosen(rows(options.quick), options.rows)
    if options.list:
        print("\n".join(row.key for row in selected))
        return 0
    if not selected:
        say(f"no row is called {', '.join(options.rows)}; --list names them")
        return USAGE
    RESULTS.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="compare-", dir=RESULTS))
    try:
        return compare(options, selected, place)
    except UnknownRevision as error:
        say(str(error))
        return USAGE
    except FailedSlice as error:
        say(str(error))
        return FAILED
    finally:
        shutil.rmtree(place, ignore_errors=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__)
    parser.add_argument("before", metavar="REV", nargs="?", default="HEAD", help="git revision (HEAD)")
    parser.add_argument(
        "after",
        metavar="OTHER",
        nargs="?",
        default=WORKING_TREE,
        help="git revision, or a directory with a src/relaymesh (the working tree)",
    )
    parser.add_argument("--floor", type=float, default=0.97, help="the least ratio that passes (0.97)")
    parser.add_argument("--rounds", type=int, metavar="N", help=f"({ROUNDS}; {QUICK_ROUNDS} with --quick)")
    parser.add_argument(
        "--rows",
        action="append",
        default=[],
        metavar="NAME",
        help="rows whose name starts so, such as mesh/synced (may be repeated)",
    )
    parser.add_argument("--quick", action="store_true", help="few rows, short slices, 3 rounds")
    parser.add_argument("--list", action="store_true", help="name the rows and stop")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    options = parser.parse_args()
    options.rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    return options


def compare(options: argparse.Namespace, selected: list[Row], place: Path) -> int:
    began = time.perf_counter()
    sides = (extract(options.before, place / "A"), extract(options.after, place / "B"))
    found = measured(sides, selected, options.rounds, place)
    verdicts = [Verdict.of(row, found[row.key], options.floor) for row in selected]
    before, after = (side.name for side in sides)
    if options.json:
        facts = machine.facts(place)
        took_s = round(time.perf_counter() - began, 1)
        print(json.dumps(report(verdicts, before, after, options) | {"took_s": took_s, "machine": facts}))
    else:
        print(table(verdicts, before, after, options.floor, options.rounds))
    return BELOW if any(each.below for each in verdicts) else 0


def report(verdicts: list[Verdict], before: str, after: str, options: argparse.Namespace) -> dict[str, Any]:
    return {
        "before": before,
        "after": after,
        "floor": options.floor,
        "rounds": options.rounds,
        "interval": "order statistics",
        "rows": [each.as_dict() for each in verdicts],
    }


def measured(
    sides: tuple[Revision, Revision], selected: list[Row], rounds: int, place: Path
) -> dict[str, list[Block]]:
    """Every row in every round. Both revisions get fresh processes for each round."""
    found: dict[str, list[Block]] = {row.key: [] for row in selected}
    for turn in range(rounds):
        here = place / f"round-{turn}"
        with Worker(sides[0], here / "A") as first, Worker(sides[1], here / "B") as second:
            for number, row in enumerate(selected):
                say(f"round {turn + 1} of {rounds}: {row.key}")
                for block in range(row.blocks):
                    swap = turn * row.blocks + block + number
                    found[row.key].append(
                        fresh_block(row, swap, sides, here)
                        if row.fresh
                        else one_block(row, swap, (first, second))
                    )
        shutil.rmtree(here, ignore_errors=True)
    return found


def one_block(row: Row, turn: int, workers: tuple[Worker, Worker]) -> Block:
    """A, B, B, A: a machine that gets slower or faster meanwhile does so for both."""
    totals = [Slice(amount=0), Slice(amount=0)]
    for letter in row.turns_in(turn):
        side = "AB".index(letter)
        totals[side] += workers[side].measure(row.work, row.params)
    return totals[0], totals[1]


def fresh_block(row: Row, turn: int, sides: tuple[Revision, Revision], place: Path) -> Block:
    totals = [Slice(amount=0), Slice(amount=0)]
    for number, letter in enumerate(row.turns_in(turn)):
        side = "AB".index(letter)
        with Worker(sides[side], place / f"{row.work}-{number}") as worker:
            totals[side] += worker.measure(row.work, row.params)
    return totals[0], totals[1]


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
