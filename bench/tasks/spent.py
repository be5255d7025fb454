"""Wall time and processor time of some work, for each of its steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


class Spent:
    """`other_cpu_s`: processor time of other processes that take part."""

    def __init__(self, other_cpu_s: Callable[[], float] = lambda: 0.0) -> None:
        self._other_cpu_s = other_cpu_s
        self._wall = time.perf_counter()
        self._cpu = time.process_time()
        self._other = other_cpu_s()

    def told(self, steps: int) -> dict[str, Any]:
        wall = time.perf_counter() - self._wall
        cpu = time.process_time() - self._cpu + self._other_cpu_s() - self._other
        return {"steps": steps, "wall_s": wall, "rate": steps / wall, "cpu_us": cpu / steps * 1e6}
