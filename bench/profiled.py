"""Where the time of one thread goes: the standard profiler, its top lines as plain data.

The profiler slows every call down, so a profiled run is never a figure.
"""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TOP = 15


class Profile:
    """The profile of a block; empty when it was not wanted."""

    def __init__(self, wanted: bool) -> None:
        self._profiler = cProfile.Profile() if wanted else None

    @contextmanager
    def running(self) -> Iterator[None]:
        if self._profiler is None:
            yield
            return
        self._profiler.enable()
        try:
            yield
        finally:
            self._profiler.disable()

    def top(self) -> list[dict[str, Any]]:
        """The functions with the most time of their own."""
        if self._profiler is None:
            return []
        stats: dict[tuple[str, int, str], tuple[int, int, float, float, Any]]
        stats = pstats.Stats(self._profiler).stats  # type: ignore[attr-defined]
        whole = sum(row[2] for row in stats.values()) or 1.0
        rows = sorted(stats.items(), key=lambda item: -item[1][2])[:TOP]
        return [
            {
                "function": _name(file, function),
                "calls": calls,
                "own_ms": round(own * 1000, 1),
                "share": round(own / whole, 4),
            }
            for (file, _, function), (_, calls, own, _, _) in rows
        ]


def _name(file: str, function: str) -> str:
    if file in ("~", ""):
        return function.strip("<>").replace("built-in method ", "").replace("method ", "")
    parts = Path(file).with_suffix("").parts
    for package in ("relaymesh", "bench"):
        if package in parts:
            return ".".join(parts[len(parts) - 1 - parts[::-1].index(package) :]) + f".{function}"
    return f"{parts[-1]}.{function}"
