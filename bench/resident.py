"""How much memory this process holds, and how much processor time each of its threads took."""

from __future__ import annotations

import gc
import os
import resource
import sys
import threading
import time
from pathlib import Path


def rss_bytes() -> int:
    """Resident memory now; the peak where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return peak_bytes()
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_bytes() -> int:
    """The most this process ever held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def settled_rss_bytes() -> int:
    """Resident memory once garbage is collected."""
    gc.collect()
    return rss_bytes()


def cpu_by_thread() -> dict[str, float]:
    """Seconds of processor time of each living thread, by name; those of one name together."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return {}
    times: dict[str, float] = {}
    for thread in threading.enumerate():
        if thread.ident is None:
            continue
        try:
            seconds = time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
        except OSError:
            continue
        times[thread.name] = times.get(thread.name, 0.0) + seconds
    return times
