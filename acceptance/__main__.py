"""`python -m acceptance`: the four runs, one verdict each."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from acceptance import duplicates, exit, outage, steady
from acceptance.plan import MINUTES, Plan
from acceptance.verdict import Verdict


def main() -> int:
    options = arguments()
    plan = Plan(options.minutes)
    runs: dict[str, Callable[[Path], Verdict]] = {
        "steady": lambda place: steady.run(
            place, seconds=plan.load_s, rate=options.rate, capacity=options.capacity
        ),
        "outage": lambda place: outage.run(
            place,
            times=plan.outage,
            rate=options.outage_rate,
            capacity=max(options.capacity, int(options.outage_rate * plan.outage.whole_s)),
        ),
        "duplicates": duplicates.run,
        "exit": exit.run,
    }
    verdicts = []
    with tempfile.TemporaryDirectory(prefix="relaymesh-acceptance-", dir=options.path) as folder:
        for name, run in runs.items():
            if options.only and name not in options.only:
                continue
            began = time.monotonic()
            verdict = run(Path(folder))
            verdict.numbers["took_s"] = round(time.monotonic() - began, 1)
            verdicts.append(verdict)
            print("\n".join(verdict.lines()), flush=True)
    passed = all(verdict.passed for verdict in verdicts)
    print("all runs passed" if passed else "not all runs passed")
    if options.json:
        found = {"passed": passed, "minutes": options.minutes, "runs": [v.as_json() for v in verdicts]}
        print(json.dumps(found))
    return 0 if passed else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m acceptance", description="Seed 001's acceptance runs.")
    parser.add_argument(
        "--minutes",
        type=float,
        default=MINUTES,
        help=f"of load, and of the outage; {MINUTES:g} by default",
    )
    parser.add_argument("--rate", type=float, default=300.0, help="target rate of the steady run, a second")
    parser.add_argument("--capacity", type=int, default=1000, help="buffer of a subscription, in messages")
    parser.add_argument("--outage-rate", type=float, default=40.0, help="rate of the outage run, a second")
    parser.add_argument("--only", action="append", choices=["steady", "outage", "duplicates", "exit"])
    parser.add_argument(
        "--path", type=Path, help="where to put data directories; the system's place if not said"
    )
    parser.add_argument("--json", action="store_true", help="the verdicts as JSON, on the last line")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
