"""One measurement in a process of its own, so that no other has touched its memory.

`python -m bench.child NAME` reads its parameters as JSON from stdin and answers with a last line of JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

MEASURES = (
    "throughput",
    "latency",
    "one_by_one",
    "recovery",
    "memory",
    "growth",
    "journal_size",
    "tasks.embedded",
    "tasks.on_loop",
    "tasks.websocket",
    "tasks.dbos_sqlite",
    "tasks.huey_sqlite",
    "tasks.neighbour",
    "tasks.live",
)


def run(name: str, place: Path, params: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    """Measure in a fresh process. A failure is a result too: `{"error": ...}`."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])  # this tree, whatever is installed
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"}
    began = time.perf_counter()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "bench.child", name],
            input=json.dumps({"place": str(place), **params}),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"not finished after {timeout_s:.0f} s"}
    finally:
        shutil.rmtree(place, ignore_errors=True)
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        return {"error": done.stderr.strip()[-2000:] or f"exit code {done.returncode}"}
    result: dict[str, Any] = json.loads(lines[-1])
    result["whole_s"] = round(time.perf_counter() - began, 2)
    return result


def measure_of(name: str) -> Callable[..., dict[str, Any]]:
    if name not in MEASURES:
        raise SystemExit(f"there is no measurement {name!r}: {', '.join(MEASURES)}")
    module = importlib.import_module(f"bench.{name}")
    measure: Callable[..., dict[str, Any]] = module.measure
    return measure


def main() -> None:
    params = json.loads(sys.stdin.read() or "{}")
    place = Path(params.pop("place"))
    print(json.dumps(measure_of(sys.argv[1])(place, **params)))


if __name__ == "__main__":
    main()
