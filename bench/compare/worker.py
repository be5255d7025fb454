"""`python -m bench.compare.worker SOURCE`: measures slices of one revision until its input ends.

Each line of input is a request, `{"work": ..., "params": ...}`; each line of output is a slice or an error.
"""

from __future__ import annotations

import dataclasses
import json
import os
import select
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.child import ROOT
from bench.compare.ratios import Slice
from bench.compare.revisions import Revision

SLICE_S_MAX = 120.0
STOP_S = 10.0


class FailedSlice(Exception):
    """A revision could not do the work; the text says why."""


class Worker:
    """A process that measures slices of one revision, seen from outside."""

    def __init__(self, revision: Revision, place: Path) -> None:
        place.mkdir(parents=True)
        self._revision = revision
        self._log = place / "worker.log"
        path = os.pathsep.join([str(revision.source), str(ROOT)])
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.compare.worker", str(revision.source)],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=place,
                env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"},
            )

    def measure(self, work: str, params: dict[str, Any]) -> Slice:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"work": work, "params": params}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, and its log says why
        ready, _, _ = select.select([self._process.stdout], [], [], SLICE_S_MAX)
        line = self._process.stdout.readline() if ready else b""
        found = json.loads(line) if line else {"error": self._silence(bool(ready))}
        if "error" in found:
            raise FailedSlice(f"{self._revision.name}: {work} {params}: {found['error']}")
        return Slice(**found)

    def _silence(self, ended: bool) -> str:
        if not ended:
            return f"not finished after {SLICE_S_MAX:.0f} s"
        return self._log.read_text(encoding="utf-8", errors="replace")[-2000:].strip() or "it ended"

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close its input, so that it stops its node and ends."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        if error is not None:
            self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def main() -> None:
    source = Path(sys.argv[1])
    import relaymesh

    if not Path(relaymesh.__file__).is_relative_to(source):
        raise SystemExit(f"relaymesh was imported from {relaymesh.__file__}, not from {source}")
    from bench.compare.workloads import Workloads

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with Workloads(Path.cwd()) as workloads:
        for line in sys.stdin:
            try:
                found = dataclasses.asdict(workloads.run(**json.loads(line)))
            except Exception:
                found = {"error": traceback.format_exc()[-2000:]}
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
