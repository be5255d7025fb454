"""Orphans of agents: a supervisor adopts them. Otherwise they may become zombies under an init that does not
reap.

A process whose parent ends becomes a child of the nearest ancestor that asked for it (Linux), else of init.
In a container init is often a program that does not expect children.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Collection

from relaymesh.agents.child import LEADERS
from relaymesh.agents.processes import processes

__all__ = ["adopt_orphans", "reap_orphans"]

PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> bool:
    """Make this process the new parent of orphans below it. False: this system cannot do that."""
    if not sys.platform.startswith("linux"):
        return False
    return bool(ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def reap_orphans(own: Collection[int] = ()) -> int:
    """Reap ended children that belong to no adapter and are not in `own`. Returns how many.

    `own`: children of this process that it started by other means and waits for itself.
    """
    me, reaped = os.getpid(), 0
    for process in processes():
        if process.ended and process.parent == me and process.pid not in LEADERS and process.pid not in own:
            try:
                reaped += os.waitpid(process.pid, os.WNOHANG)[0] != 0
            except ChildProcessError:
                continue
    return reaped
