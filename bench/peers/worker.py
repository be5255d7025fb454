"""A client process of one run: `python -m bench.peers.worker` reads what it is to do as JSON from stdin.

It connects, says so, waits for the start, and answers with a last line of JSON.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from bench.peers.flow import Flow, Shape
from bench.quantile import percentile


def work(
    *, peer: str, port: int, roles: list[str], part: int, flow: str, shape: dict[str, Any]
) -> dict[str, Any]:
    module = importlib.import_module(f"bench.peers.{peer}")
    traffic = Started(Path(flow), Shape(**shape), part)
    module.drive(port, roles, traffic)
    cpu = time.process_time() - traffic.cpu_at_start
    ages = traffic.settled_ages()
    return {
        "cpu_s": cpu,
        "p50_ms": percentile(ages, 0.5) * 1000,
        "p99_ms": percentile(ages, 0.99) * 1000,
        "max_ms": max(ages, default=0.0) * 1000,
    }


class Started(Flow):
    """A flow that notes when its process was let go, so that importing and connecting cost nothing."""

    def __init__(self, path: Path, shape: Shape, part: int) -> None:
        super().__init__(path, shape)
        self._part = part
        self.cpu_at_start = 0.0

    def until_go(self) -> None:
        self.ready(self._part)
        super().until_go()
        self.cpu_at_start = self.cpu_at_start or time.process_time()


def main() -> None:
    print(json.dumps(work(**json.loads(sys.stdin.read()))))


if __name__ == "__main__":
    main()
