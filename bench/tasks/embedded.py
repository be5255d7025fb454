"""Tasks in this process, on threads: `Mesh` with a handler on its pool of 8."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.meshes import settings
from bench.tasks.spent import Spent
from bench.tasks.workflows import AGENT, WARM_UP, check, requests
from relaymesh import Mesh

RESULT_S = 600.0


def measure(place: Path, *, work: str, count: int) -> dict[str, Any]:
    with Mesh(place / "data", settings=settings("synced")) as mesh:

        @mesh.step(AGENT)
        def same(delivery: Any) -> Any:
            return delivery.input

        mesh.submit(WARM_UP, 0).result(RESULT_S)
        asked = requests(work, count)
        spent = Spent()
        if work == "together":
            tasks = [mesh.submit(document, input) for document, input in asked]
            for (_, input), task in zip(asked, tasks, strict=True):
                check(work, input, task.result(RESULT_S))
        else:
            for document, input in asked:
                check(work, input, mesh.submit(document, input).result(RESULT_S))
        return spent.told(count)
