"""The process table, and the mark that every process of a run has in its environment.

By the mark the next supervisor finds processes after a supervisor died. It also finds a process that left its
group with `setsid`. It needs /proc. Without /proc (macOS), `MARKS_FOUND` is False, no marks are found, and
only the process group of a run is ended.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["MARK", "MARKS_FOUND", "Process", "alive", "look", "marks_alive", "processes"]

MARK = "RELAYMESH_RUN"
"""The environment variable that names the run a process belongs to."""

PROC = Path("/proc")
MARKS_FOUND = (PROC / "self" / "environ").exists()
ENVIRON_BYTES_MAX = 4 << 20
"""Larger than any environment: the kernel limits arguments and environment together."""

_PREFIX = MARK.encode() + b"="
_ENDED = frozenset("ZX")


class Process(NamedTuple):
    pid: int
    parent: int
    group: int
    session: int
    state: str
    started: int
    """In clock ticks since boot. With `pid` it names one process, also after the number is used again."""
    mark: str | None

    @property
    def ended(self) -> bool:
        """A zombie: it runs nothing and waits for its parent."""
        return self.state in _ENDED


def processes(*, with_marks: bool = True) -> Iterator[Process]:
    """Every process that this user can see, the newest first. Those that end meanwhile are left out.

    A chain of processes that fork and end is seen only if each is read as soon as it is listed.
    `with_marks`: read the environment of each, where the mark is. Without, `mark` is None.
    """
    if not MARKS_FOUND:
        return
    names = [entry.name for entry in os.scandir(PROC)]
    for pid in sorted((int(name) for name in names if name.isdigit()), reverse=True):
        found = look(pid, with_mark=with_marks)
        if found is not None:
            yield found


def look(pid: int, *, with_mark: bool = True) -> Process | None:
    """One process, or None if there is none of this number."""
    try:
        stat = _read(f"/proc/{pid}/stat", 4096)
        # The name stands in parentheses and may hold anything, also parentheses.
        fields = stat[stat.rindex(b")") + 2 :].split()
        state, parent, group, session, started = (
            fields[0].decode(),
            int(fields[1]),
            int(fields[2]),
            int(fields[3]),
            int(fields[19]),
        )
    except (OSError, ValueError, IndexError):
        return None
    mark = _mark_of(pid) if with_mark and state not in _ENDED else None
    return Process(pid, parent, group, session, state, started, mark)


def marks_alive(prefix: str = "") -> dict[str, list[int]]:
    """The marks of living processes that start with `prefix`, with the process ids."""
    found: dict[str, list[int]] = defaultdict(list)
    for process in processes():
        if process.mark is not None and process.mark.startswith(prefix) and not process.ended:
            found[process.mark].append(process.pid)
    return dict(found)


def alive(process: Process) -> bool:
    """Whether this very process still runs."""
    now = look(process.pid, with_mark=False)
    return now is not None and now.started == process.started and not now.ended


def _mark_of(pid: int) -> str | None:
    try:
        environ = _read(f"/proc/{pid}/environ", ENVIRON_BYTES_MAX)
    except OSError:  # ended, or of another user
        return None
    for line in environ.split(b"\0"):
        if line.startswith(_PREFIX):
            return line[len(_PREFIX) :].decode("utf-8", "replace")
    return None


def _read(path: str, most: int) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while most > 0 and (part := os.read(file, min(most, 65_536))):
            parts.append(part)
            most -= len(part)
        return b"".join(parts)
    finally:
        os.close(file)
