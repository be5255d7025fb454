"""What work costs: wall time, and CPU time of a process with everything under it."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

__all__ = ["Spent", "spent_by", "spent_by_command"]

_T = TypeVar("_T")
_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER: who outlives its parent becomes ours, and its CPU time with it."""


@dataclass(frozen=True)
class Spent:
    wall_s: float
    cpu_s: float

    def figures(self, events: int) -> dict[str, float]:
        return {
            "wall_s": round(self.wall_s, 2),
            "cpu_s": round(self.cpu_s, 2),
            "events_per_s": round(events / self.wall_s),
            "events_per_cpu_s": round(events / max(self.cpu_s, 0.01)),
        }


def spent_by(work: Callable[[], _T]) -> tuple[_T, Spent]:
    """Of a call, in this process and those below it."""
    cpu, wall = _cpu_s(), time.perf_counter()
    answer = work()
    return answer, Spent(time.perf_counter() - wall, _cpu_s() - cpu)


def spent_by_command(words: Sequence[str], log: Path, source: Path | None = None) -> Spent:
    """Of a command in a process of its own, until it and all it started are gone; raises if it fails.

    `source`: the directory of the package `relaymesh` that it uses, if not ours.
    """
    env = os.environ if source is None else {**os.environ, "PYTHONPATH": str(source)}
    known = _children()
    libc = ctypes.CDLL(None)
    libc.prctl(_SUBREAPER, 1, 0, 0, 0)
    before, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with log.open("wb") as output:
        done = subprocess.run([sys.executable, *words], stdout=output, stderr=output, env=env, check=False)
    took = time.perf_counter() - wall
    while orphans := _children() - known:  # Java ends a moment after the Python that started it
        for pid in orphans:
            os.waitpid(pid, 0)
    libc.prctl(_SUBREAPER, 0, 0, 0, 0)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}: {log.read_text()[-2000:]}")
    return Spent(took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def _children() -> set[int]:
    me = str(os.getpid())
    pids = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]
    return {pid for pid in pids if (fields := _stat(str(pid))) and fields[1] == me}


def _cpu_s() -> float:
    """CPU seconds of this process and everything under it, also of what has ended there."""
    ticks = os.sysconf("SC_CLK_TCK")
    pids = [each.name for each in Path("/proc").iterdir() if each.name.isdigit()]
    stats = {pid: fields for pid in pids if (fields := _stat(pid))}
    mine, found = {str(os.getpid())}, 0
    while len(mine) > found:
        found = len(mine)
        mine |= {pid for pid, fields in stats.items() if fields[1] in mine}
    return sum(sum(map(int, stats[pid][11:15])) for pid in mine if pid in stats) / ticks


def _stat(pid: str) -> list[str]:
    """The fields of /proc/<pid>/stat behind the name: state, parent, …, user, system, children's two."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
