"""Resident memory of live tasks of one step, and of as many plain messages of the same content."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.meshes import CAPACITY, CAPACITY_BYTES, fill, settings, until_projected
from bench.resident import settled_rss_bytes
from bench.tasks.workflows import AGENT, small
from relaymesh import Mesh

WARM = 1_000


def measure(place: Path, *, tasks: int, messages: bool) -> dict[str, Any]:
    """`messages`: plain ones in place of tasks, as many bytes each."""
    with Mesh(place / "data", settings=settings("batched")) as mesh:
        mesh.agent(AGENT, capacity=CAPACITY, capacity_bytes=CAPACITY_BYTES)
        _add(mesh, range(WARM), messages)
        until_projected(mesh)
        before = settled_rss_bytes()
        _add(mesh, range(WARM, WARM + tasks), messages)
        until_projected(mesh)
        added = settled_rss_bytes() - before
        return {"live": tasks, "added_bytes": added, "bytes_each": added / tasks}


def _add(mesh: Mesh, numbers: range, messages: bool) -> None:
    if messages:
        content = {"task": "0" * 36, "step": "one", "workflow": "small", "input": numbers.stop}
        fill(mesh, AGENT, len(numbers), content)
        return
    document = small()
    for number in numbers:
        mesh.submit(document, number)
