"""Crash states and flipped bits by the hundred thousand, on the real journal.

    python -m relaymesh.testing.crashes --states 500000 --jobs 2
    python -m relaymesh.testing.crashes --bit-flips --jobs 2
    python -m relaymesh.testing.crashes --replay rotation:41:5a0c…

The last line is JSON: `states` looked at, `distinct` among them, `recoveries`, `refused`, `silent`
(acknowledged data changed or missing without a word: must be 0), `failed`, `took_s`. The exit code is 1
when anything was not as promised; each such state is printed with the command that replays it.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import sys
import time
from functools import partial
from typing import Any

from relaymesh.testing.enumeration.flips import Flips, flip_bits, journal_of_64_kib
from relaymesh.testing.enumeration.search import Found, replay, search

__all__ = ["enumerate_states", "flip_every_bit", "main"]

COMMAND = "python -m relaymesh.testing.crashes"
SHOWN_MAX = 20
PARTS_PER_JOB = 8


def enumerate_states(states: int, jobs: int = 1) -> Found:
    """Recover at least that many different crash states (fewer only when there are no more)."""
    if jobs == 1:
        return search(states)
    total = Found()
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for found in pool.imap_unordered(partial(_search_share, -(-states // jobs), jobs), range(jobs)):
            total.add(found)
    return total


def _search_share(states: int, shares: int, share: int) -> Found:
    logging.disable(logging.WARNING)
    return search(states, share=share, shares=shares)


def flip_every_bit(jobs: int = 1, every: int = 1, *, mark: bool) -> Flips:
    """Turn every bit (or every `every`-th), each alone, with the mark file or without it."""
    if jobs == 1:
        return flip_bits(journal_of_64_kib(mark=mark), step=every)
    total = Flips()
    parts = jobs * PARTS_PER_JOB
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for flips in pool.imap_unordered(partial(_flip_part, mark, every, parts), range(parts)):
            total.add(flips)
    return total


def _flip_part(mark: bool, every: int, parts: int, part: int) -> Flips:
    return flip_bits(journal_of_64_kib(mark=mark), start=part * every, step=parts * every)


def main(arguments: list[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    if asked.replay:
        return _replay(asked.replay)
    began = time.perf_counter()
    result = _run_flips(asked) if asked.bit_flips else _run_states(asked)
    result["took_s"] = round(time.perf_counter() - began, 1)
    _say(json.dumps(result))
    return 1 if result["silent"] or result["failed"] else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=COMMAND, description="crashes and bit flips on the real journal")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--states", type=int, metavar="N", help="recover N different crash states")
    what.add_argument("--bit-flips", action="store_true", help="flip every bit of a 64 KiB journal")
    what.add_argument("--replay", metavar="PLACE", help="recover one state again, as printed by a failed run")
    parser.add_argument("--every", type=int, default=1, metavar="K", help="only every K-th bit")
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="processes (default 1)")
    parser.add_argument("--json", action="store_true", help="print nothing but the last line")
    return parser


def _run_states(asked: argparse.Namespace) -> dict[str, Any]:
    logging.disable(logging.WARNING)  # each torn tail is warned of, half a million times
    found = enumerate_states(asked.states, asked.jobs)
    if not asked.json:
        for life, count in sorted(found.by_life.items(), key=lambda item: -item[1]):
            _say(f"{count:>9,}  {life}")
    for failure in found.failures[:SHOWN_MAX]:
        _say(f"FAILED {failure.why}\n       {COMMAND} --replay {failure.place}")
    silent = sum(failure.silent for failure in found.failures)
    return {
        "states": found.considered,
        "distinct": len(found.digests),
        "recoveries": found.recoveries,
        "refused": len(found.failures) - silent,
        "silent": silent,
        "failed": len(found.failures),
    }


def _run_flips(asked: argparse.Namespace) -> dict[str, Any]:
    total = Flips()
    for mark in (True, False):
        flips = flip_every_bit(asked.jobs, asked.every, mark=mark)
        if not asked.json:
            words = ", ".join(f"{count:,} {word}" for word, count in sorted(flips.verdicts.items()))
            _say(f"{'with' if mark else 'without'} the mark file: {words}")
        total.add(flips)
    for told in total.failures[:SHOWN_MAX]:
        _say(f"FAILED {told}")
    return {
        "states": total.verdicts.total(),
        "distinct": total.verdicts.total(),
        "recoveries": total.verdicts.total(),
        "refused": total.verdicts["refused"],
        "torn": total.verdicts["torn tail"],
        "harmless": total.verdicts["whole"],
        "known_limit": total.known_limit,
        "silent": total.silent,
        "failed": total.unexpected,
    }


def _replay(place: str) -> int:
    failure = replay(place)
    _say("recovered as promised" if failure is None else f"FAILED {failure.why}")
    return 0 if failure is None else 1


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
