"""Tasks over a WebSocket: `relaymesh serve` in one process, the agent and the caller in another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.meshes import run_on_loop
from bench.peers import relaymesh_ws
from bench.tasks.on_loop import WORKERS, drive
from relaymesh import AsyncMesh


def measure(place: Path, *, work: str, count: int) -> dict[str, Any]:
    server = relaymesh_ws.start(place)
    try:
        mesh = AsyncMesh(f"http://127.0.0.1:{server.port}", workers=WORKERS)
        found: dict[str, Any] = run_on_loop(drive(mesh, work, count, server.cpu_s))
        return found
    finally:
        server.stop()
