"""Tasks on an event loop, in this process or over a WebSocket: `AsyncMesh`, up to 100 handlers at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.meshes import run_on_loop, settings
from bench.tasks.spent import Spent
from bench.tasks.workflows import AGENT, WARM_UP, check, requests
from relaymesh import AsyncMesh

RESULT_S = 600.0
WORKERS = (4, 100)
IN_FLIGHT = 64
"""Tasks of which a caller waits for the results at once."""


def measure(place: Path, *, work: str, count: int) -> dict[str, Any]:
    mesh = AsyncMesh(place / "data", settings=settings("synced"), workers=WORKERS)
    found: dict[str, Any] = run_on_loop(drive(mesh, work, count, lambda: 0.0))
    return found


async def drive(mesh: AsyncMesh, work: str, count: int, other_cpu_s: Callable[[], float]) -> dict[str, Any]:
    async with mesh:
        await mesh.agent(AGENT)

        @mesh.step(AGENT)
        async def same(delivery: Any) -> Any:
            return delivery.input

        await (await mesh.submit(WARM_UP, 0)).result(RESULT_S)
        asked = requests(work, count)
        spent = Spent(other_cpu_s)
        free = asyncio.Semaphore(IN_FLIGHT if work == "together" else 1)

        async def run(document: dict[str, Any], input: Any) -> None:
            async with free:
                check(work, input, await (await mesh.submit(document, input)).result(RESULT_S))

        await asyncio.gather(*[run(document, input) for document, input in asked])
        return spent.told(count)
