"""Processes of a run: started from a module of this package, spoken to in JSON lines, ended by their id."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parents[2]
END_S = 20.0
HEAR_S = 240.0
"""Longer than anything that a child does between two lines."""


class Child:
    """`python -m tests.attacks.NAME`: gets one JSON object on stdin, then a line for each command."""

    def __init__(self, module: str, given: dict[str, Any], log: Path) -> None:
        self._module = module
        self._log = log.open("a+b")
        path = os.pathsep.join([str(ROOT), str(ROOT / "src"), *sys.path])
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"tests.attacks.{module}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
        )
        self.tell(given)

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self, line: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(line).encode() + b"\n")
        self._process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        """The next line. A child that ended without one is a defect of the run."""
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], HEAR_S)
        line = self._process.stdout.readline() if readable else b""
        if not line:
            self._log.seek(0)
            raise RuntimeError(f"{self._module} said nothing:\n{self._log.read().decode()[-4000:]}")
        found: dict[str, Any] = json.loads(line)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self._process.wait(END_S if kind is None else 0.1)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()


def commands() -> Any:
    """What the parent says, line by line; ends with the parent."""
    for line in sys.stdin:
        yield json.loads(line)


def say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)
