"""A process that uses a share of a processor and does not touch the node: the measure for attackers."""

from __future__ import annotations

import os
import time

from tests.attacks.attacker import NICENESS
from tests.attacks.children import commands, say
from tests.attacks.pace import Pace

ROUND = 10_000


def main() -> None:
    lines = commands()
    given = next(lines)
    os.nice(NICENESS)
    say({"ready": True})
    next(lines)
    pace = Pace(max(given["share"], 0.001))
    until = time.monotonic() + given["seconds"]
    while time.monotonic() < until:
        sum(range(ROUND))
        pace.keep()
    say({"processor_s": pace.processor_s})


if __name__ == "__main__":
    main()
