"""The worker of the demo that is killed: takes a message, says so, and never finishes.

Run as `python -m relaymesh.cli.demo_worker DIRECTORY AGENT`, by the demo.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from relaymesh.cli.output import json_text
from relaymesh.errors import MeshError
from relaymesh.sdk.mesh import Mesh

WORKING_S = 60.0


def work(directory: str, agent: str) -> None:
    mesh = Mesh(directory)
    delivery = mesh.agent(agent).receive(timeout=10)
    print(json_text({"id": delivery.id, "attempt": delivery.attempt, "token": delivery.token}), flush=True)
    time.sleep(WORKING_S)


def killed_worker(path: Path, agent: str) -> tuple[dict[str, Any], int]:
    """What a worker process said it had taken, before it was killed, and its process id."""
    command = [sys.executable, "-m", "relaymesh.cli.demo_worker", str(path), agent]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        try:
            line = worker.stdout.readline()
        finally:
            worker.kill()
    if not line:
        raise MeshError(
            f"the worker process of the demo ended with {worker.returncode} and took nothing",
            hint="what it wrote to stderr is above; run relaymesh demo again",
        )
    taken: dict[str, Any] = msgspec.json.decode(line)
    return taken, worker.pid


if __name__ == "__main__":
    work(sys.argv[1], sys.argv[2])
