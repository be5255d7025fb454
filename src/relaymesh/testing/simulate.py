"""Run the simulator: `python -m relaymesh.testing.simulate --seeds 2000`.

docs/explanation/simulation.md says what it plays and what it checks.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import count

from relaymesh.testing.simulation.report import Report, describe
from relaymesh.testing.simulation.scenario import Played, run_seed, run_seeds

CHUNK = 25
SHOWN_MAX = 5
EPILOG = """\
A seed decides everything: the same seed gives the same trace hash in any process. A violation is printed
with its seed, the invariant's name, the last lines of the trace, and the command that shows it again.

  python -m relaymesh.testing.simulate --seeds 2000           what `make test` runs
  python -m relaymesh.testing.simulate --seeds 100000 --jobs 8
  python -m relaymesh.testing.simulate --minutes 10           as many seeds as fit
  python -m relaymesh.testing.simulate --seed 4711 --trace    one seed, line by line
"""


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code: 0 when every invariant held, 1 when one did not."""
    options = _parse(argv)
    report = Report()
    show = _Progress(quiet=options.json)
    if options.trace:
        played = run_seed(options.first, keep_trace=True)
        report.add(played)
        _say("\n".join(played.trace))
    else:
        for played in _all_played(options.first, options.seeds, options.jobs, options.minutes):
            report.add(played)
            show.seed(report)
            if played.violation is not None and len(report.violations) <= SHOWN_MAX:
                show.clear()
                _say(describe(played.violation), error=options.json)
    show.clear()
    if options.trace and report.violations:
        _say(describe(report.violations[0]), error=options.json)
    if options.json:
        _say(report.json_line())
    else:
        _say(f"{report.table()}\n{report.verdict()}")
    return 1 if report.violations else 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m relaymesh.testing.simulate",
        description="Play a node, its disk, its clock and its clients from seeds, and check every promise.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, metavar="N", help="how many seeds (100, or 1 with --seed)")
    parser.add_argument("--seed", type=int, metavar="S", help="play this seed; with --seeds, begin with it")
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="J", help="processes (1); the hash is the same"
    )
    parser.add_argument("--minutes", type=float, metavar="M", help="stop after so many minutes")
    parser.add_argument("--trace", action="store_true", help="print every line of one seed's trace")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    options = parser.parse_args(argv)
    options.first = options.seed or 0
    if options.seeds is None and options.minutes is None:
        options.seeds = 100 if options.seed is None else 1
    for name in ("seeds", "jobs", "minutes"):
        value = getattr(options, name)
        if value is not None and value <= 0:
            parser.error(f"--{name} must be more than 0, not {value}")
    return options


def _all_played(first: int, seeds: int | None, jobs: int, minutes: float | None) -> Iterator[Played]:
    """In the order of the seeds, whichever process played them; whole chunks until the time is up."""
    chunks = _chunks(first, seeds)
    end = None if minutes is None else time.monotonic() + 60 * minutes
    if jobs == 1:
        for chunk in chunks:
            yield from run_seeds(chunk)
            if end is not None and time.monotonic() >= end:
                return
        return
    with ProcessPoolExecutor(jobs) as pool:
        waiting: list[Future[list[Played]]] = []
        for chunk in chunks:
            waiting.append(pool.submit(play, chunk))
            if len(waiting) >= 2 * jobs:
                yield from waiting.pop(0).result()
            if end is not None and time.monotonic() >= end:
                break
        for future in waiting:
            yield from future.result()


def _chunks(first: int, seeds: int | None) -> Iterable[range]:
    if seeds is None:
        return (range(start, start + CHUNK) for start in count(first, CHUNK))
    last = first + seeds
    return (range(start, min(start + CHUNK, last)) for start in range(first, last, CHUNK))


def play(chunk: range) -> list[Played]:
    """One chunk, in a process of the pool."""
    return list(run_seeds(chunk))


class _Progress:
    """One line that is written over, if stderr is a terminal."""

    def __init__(self, *, quiet: bool) -> None:
        self._on = not quiet and sys.stderr.isatty()
        self._shown_at = 0.0

    def seed(self, report: Report) -> None:
        if self._on and time.monotonic() - self._shown_at > 0.2:
            self._shown_at = time.monotonic()
            faults = sum(report.faults.values())
            sys.stderr.write(
                f"\r{len(report.digests):,} seeds, {faults:,} faults, {len(report.violations)} violations "
            )
            sys.stderr.flush()

    def clear(self) -> None:
        if self._on:
            sys.stderr.write("\r" + " " * 70 + "\r")


def _say(text: str, *, error: bool = False) -> None:
    (sys.stderr if error else sys.stdout).write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
