"""A worker in a process of its own: claims whatever it can, notes it, and is done with it.

python racer.py BUS WORKER LOG STOP
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TextIO


def main(bus: Path, me: str, log: Path, stop: Path) -> None:
    mine = bus / "processing" / me
    mine.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as notes:
        while not stop.exists():
            if not work(bus, mine, notes):
                time.sleep(0.002)


def work(bus: Path, mine: Path, notes: TextIO) -> int:
    won = 0
    for file in sorted(bus.glob("inbox/*/[!.]*.meta.json")):
        try:
            claimed = file.rename(mine / file.name)
        except FileNotFoundError:
            continue  # the other was faster
        won += 1
        print(file.name, file=notes, flush=True)
        claimed.rename(bus / "done" / file.name)
    return won


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
