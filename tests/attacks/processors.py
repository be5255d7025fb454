"""Who uses the processors of this machine: the processes of a run, and others, whose load is noise."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
IDLE_COLUMNS = (3, 4)
"""Of the numbers of `/proc/stat`: idle, and waiting for a disk."""


class Elsewhere:
    """From its construction on: how many processors were used by processes that are not of the run."""

    def __init__(self, own: Iterable[int]) -> None:
        self._own = list(own)
        self._began = time.monotonic()
        self._busy_s, self._own_s = busy_s(), used_s(self._own)

    def processors(self, more_own_s: float) -> float:
        """`more_own_s`: processor time of processes of the run that have come and gone meanwhile."""
        own_s = used_s(self._own) - self._own_s + more_own_s
        return max(0.0, busy_s() - self._busy_s - own_s) / (time.monotonic() - self._began)


def busy_s() -> float:
    """Processor time of all processes since the machine started."""
    line = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0]
    ticks = [int(number) for number in line.split()[1:9]]
    return sum(count for column, count in enumerate(ticks) if column not in IDLE_COLUMNS) / TICKS


def used_s(processes: Iterable[int]) -> float:
    """Processor time of these processes; one that has ended has none."""
    total = 0
    for process in processes:
        try:
            fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total / TICKS
