"""Plant every bug and look for it: `python -m relaymesh.testing.planted`.

docs/explanation/planted-bugs.md says why.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from relaymesh.testing.planted import BUGS, Bug, UnknownBug, bug_named
from relaymesh.testing.planted.catching import SEEDS_MAX, Caught, catch, first_violation
from relaymesh.testing.planted.page import listing, rows, with_table
from relaymesh.testing.simulation.report import describe

PAGE = Path("docs/explanation/planted-bugs.md")
EPILOG = """\
Seeds 0, 1, 2 ... are played with the bug until an invariant breaks. Then the product without any bug plays
every seed that was used, and must break none. The exit code is 1 when a bug was missed.
"""


def main(argv: Sequence[str] | None = None) -> int:
    options = _parse(argv)
    if options.list:
        _say(listing(options.bugs))
        return 0
    caught: list[Caught] = []
    for bug in options.bugs:
        caught.append(catch(bug, options.seeds))
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{len(caught)} of {len(options.bugs)} bugs\r")
    seeds_max = max(each.seeds for each in caught)
    _, unhealthy = first_violation(range(seeds_max))
    if not options.json:
        _say(rows(caught))
    if unhealthy is not None:
        _say("without any bug " + describe(unhealthy), error=options.json)
    if options.write_docs:
        PAGE.write_text(with_table(PAGE, caught), encoding="utf-8")
    missed = [each.bug.name for each in caught if not each.caught]
    found = {"bugs": len(caught), "caught": len(caught) - len(missed), "missed": missed}
    found |= {"seeds_max": seeds_max, "healthy": unhealthy is None}
    _say(json.dumps(found))
    return 1 if missed or unhealthy is not None else 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m relaymesh.testing.planted",
        description="Plant each known bug into the product, and show that the simulator catches it.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", metavar="NAME", action="append", help="this bug alone; may be repeated")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, metavar="N", help=f"at most N ({SEEDS_MAX})")
    parser.add_argument("--list", action="store_true", help="name the bugs, and plant none")
    parser.add_argument("--json", action="store_true", help="print nothing but the last line")
    parser.add_argument("--write-docs", action="store_true", help=f"write the table into {PAGE}")
    options = parser.parse_args(argv)
    if options.seeds <= 0:
        parser.error(f"--seeds must be more than 0, not {options.seeds}")
    if options.write_docs and (options.only or not PAGE.is_file()):
        parser.error("--write-docs writes the whole table, from the top of a source tree")
    options.bugs = _bugs(parser, options.only)
    return options


def _bugs(parser: argparse.ArgumentParser, names: list[str] | None) -> Sequence[Bug]:
    try:
        return BUGS if names is None else [bug_named(name) for name in names]
    except UnknownBug as error:
        parser.error(str(error))


def _say(text: str, *, error: bool = False) -> None:
    (sys.stderr if error else sys.stdout).write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
