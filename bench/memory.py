"""Resident memory: an idle mesh, a mailbox, a million pending messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.resident import peak_bytes, rss_bytes, settled_rss_bytes


def measure(place: Path, *, pending: int = 0, size: int = 200) -> dict[str, Any]:
    """Resident memory with so many messages waiting, in the process that sent them.

    `added_bytes` is what a second mailbox with as many adds: the first has warmed the store's cache and the
    allocator, which a mailbox is not to be charged for.
    """
    from relaymesh import Mesh

    imported = rss_bytes()
    from bench.contents import content
    from bench.meshes import CAPACITY, CAPACITY_BYTES, fill, settings, until_projected

    with Mesh(place / "data", settings=settings("batched")) as mesh:
        for name in ("first", "second"):
            mesh.agent(name, capacity=CAPACITY, capacity_bytes=CAPACITY_BYTES)
        fill(mesh, "first", 1, content("json", size))
        until_projected(mesh)
        steps = [settled_rss_bytes()]
        for name in ("first", "second") if pending <= 100_000 else ("first",):
            fill(mesh, name, pending, content("json", size))
            until_projected(mesh)
            steps.append(settled_rss_bytes())
        return {
            "pending": pending,
            "size": size,
            "imported_bytes": imported,
            "idle_bytes": steps[0],
            "rss_bytes": steps[1],
            "first_added_bytes": steps[1] - steps[0],
            "added_bytes": steps[-1] - steps[-2],
            "bytes_per_message": (steps[-1] - steps[-2]) / pending if pending else 0.0,
            "peak_bytes": peak_bytes(),
        }
