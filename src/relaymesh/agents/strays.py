"""Processes that lost their parent: the keeper becomes their parent and ends them.

A keeper that is a subreaper (Linux) becomes the parent of every process below it whose own parent ended. So
when a supervisor was killed, all processes that its agents started are below the keeper, in any group,
session or environment.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Collection

from relaymesh.agents.processes import processes

__all__ = ["become_subreaper", "below", "end_strays"]

PR_SET_CHILD_SUBREAPER = 36
WITHIN_S = 10.0


def become_subreaper() -> bool:
    """Make this process adopt processes below it that lose their parent. Returns whether it can."""
    if not sys.platform.startswith("linux"):
        return False
    return bool(ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def below(pid: int, besides: Collection[int] = ()) -> list[int]:
    """Every living process below this one, except `besides` and all below them."""
    children: dict[int, list[int]] = {}
    living: set[int] = set()
    for process in processes(with_marks=False):
        children.setdefault(process.parent, []).append(process.pid)
        if not process.ended:
            living.add(process.pid)
    found: list[int] = []
    waiting = [pid]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in besides:
                waiting.append(child)
                if child in living:
                    found.append(child)
    return found


def end_strays(besides: Collection[int], reap: Callable[[], None], within_s: float = WITHIN_S) -> int:
    """Kill all that is below this process, except these children. Returns how many were killed.

    All are stopped before one is killed, because a stopped process starts no further one. `reap` reaps the
    ended ones.
    """
    me, until = os.getpid(), time.monotonic() + within_s
    killed: set[int] = set()
    while (found := below(me, besides)) and time.monotonic() < until:
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in found:
                _send(pid, number)
        killed.update(found)
        reap()
        time.sleep(0.005)
    reap()
    return len(killed)


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass
