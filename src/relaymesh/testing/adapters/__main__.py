"""`python -m relaymesh.testing.adapters module:Adapter`: one line a case. Exit code 0, or 9 if one failed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import msgspec

from relaymesh.errors import MeshError
from relaymesh.testing.adapters.cases import CASES, GIB
from relaymesh.testing.adapters.suite import Verdict, factory_of, judged
from relaymesh.testing.adapters.witness import supported

CHECK_FAILED = 9
USAGE = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the suite. Returns the exit code."""
    asked = _arguments().parse_args(argv)
    unknown = [name for name in asked.only if name not in CASES]
    if unknown or not supported():
        reason = (
            f"there is no case {unknown[0]!r}: {', '.join(CASES)}"
            if unknown
            else "the suite needs /proc, which this system does not have"
        )
        sys.stderr.write(f"{reason}\n")
        return USAGE
    sys.path.insert(0, "")
    try:
        make = factory_of(asked.adapter)
    except MeshError as error:
        sys.stderr.write(f"{error}\n")
        return USAGE
    found = []
    for verdict in judged(make, asked.bytes, tuple(asked.only)):
        found.append(verdict)
        if not asked.json:
            sys.stdout.write(_line(verdict))
            sys.stdout.flush()
    failed = [verdict.case for verdict in found if verdict.verdict == "failed"]
    if asked.json:
        answer = {"adapter": asked.adapter, "ok": not failed, "cases": found}
        sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
    else:
        sys.stdout.write(f"{len(found) - len(failed)} of {len(found)} cases hold\n")
    return CHECK_FAILED if failed else 0


def _line(verdict: Verdict) -> str:
    said = "; ".join(verdict.faults) or verdict.reason
    colon = ": " if said else ""
    return f"{verdict.verdict:<8} {verdict.case} ({verdict.seconds:.2f} s){colon}{said}\n"


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m relaymesh.testing.adapters",
        description="Does an adapter of agents keep its promises, whatever the agent does?",
    )
    parser.add_argument(
        "adapter", metavar="module:Adapter", help="an adapter, or what makes one from a Stage"
    )
    parser.add_argument(
        "--only", metavar="CASE", action="append", default=[], help="run this case; repeatable"
    )
    parser.add_argument(
        "--bytes", metavar="N", type=int, default=GIB, help="what the talkative cases write (default: 1 GiB)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object in place of the lines")
    return parser


if __name__ == "__main__":
    sys.exit(main())
