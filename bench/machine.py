"""What a figure depends on besides the code: cores, Python, kernel, file system, load."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sqlite3
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

PACKAGES = ("relaymesh", "msgspec", "apsw", "uvloop", "huey", "persist-queue", "litequeue")


def facts(place: Path) -> dict[str, Any]:
    """The machine, for the head of a report. Names neither its user nor its paths."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "system": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "processor": processor(),
        "cores": usable_cores(),
        "memory_bytes": memory_bytes(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "switch_interval_ms": sys.getswitchinterval() * 1000,
        "sqlite": sqlite3.sqlite_version,
        "file_system": file_system(place),
        "load_average": [round(each, 2) for each in os.getloadavg()] if hasattr(os, "getloadavg") else [],
        "packages": {name: version(name) for name in PACKAGES},
    }


def usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()


def memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 0


def file_system(place: Path) -> str:
    """The type of the file system that holds `place`: the longest mount point above it."""
    best, kind = "", "unknown"
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return kind
    whole = str(place.resolve())
    for line in mounts:
        _, point, found, *_ = line.split(" ")
        if (whole == point or whole.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
            best, kind = point, found
    return kind


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
