"""`python -m tests.attacks`: every attack alone beside a victim, then all at once."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Iterator

from tests.attacks.catalogue import ATTACKS
from tests.attacks.run import alone, baseline, together
from tests.attacks.stage import Plan
from tests.attacks.verdict import Verdict, table


def main() -> int:
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # unwinds, and so ends every process it started
    plan = Plan(seconds=options.seconds, base_s=min(5.0, options.seconds), share=options.share)
    verdicts = []
    for verdict in runs(options, plan):
        verdicts.append(verdict)
        print("\n".join(verdict.lines()), file=sys.stderr if options.json else sys.stdout, flush=True)
    passed = all(verdict.passed for verdict in verdicts)
    if options.json:
        print(json.dumps({"passed": passed, "runs": [verdict.as_json() for verdict in verdicts]}))
    else:
        print(table(verdicts))
        print("the victim noticed nothing" if passed else "not every claim held")
    return 0 if passed else 1


def runs(options: argparse.Namespace, plan: Plan) -> Iterator[Verdict]:
    yield baseline(plan)
    if not options.all_at_once:
        for name in options.only or ATTACKS:
            yield alone(name, plan)
    if options.all_at_once or not options.only:
        yield together(plan, options.only)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.attacks", description=__doc__)
    parser.add_argument("--only", action="append", choices=list(ATTACKS), help="this one; may be given again")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each attack; 10 by default")
    parser.add_argument(
        "--share", type=float, default=1.0, help="of one processor, for all attackers together; 1 by default"
    )
    parser.add_argument("--all-at-once", action="store_true", help="leave out each attack alone")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
