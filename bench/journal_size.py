"""Journal bytes of a message's whole life: accepted, granted, acked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.contents import content
from bench.meshes import CAPACITY, settings
from relaymesh import Mesh

BATCHES = (1, 100, 1000)


def measure(place: Path, *, messages: int, size: int = 200) -> dict[str, Any]:
    """For each batch size; frame headers counted, preallocated space and checkpoints not."""
    found: dict[str, float] = {}
    for batch in BATCHES:
        with Mesh(place / f"data-{batch}", settings=settings("batched")) as mesh:
            producer, consumer = mesh.agent("producer"), mesh.agent("consumer", capacity=CAPACITY)
            message = {"to": "consumer", "content": content("json", size)}
            before = mesh.stats().journal_bytes
            sent = 0
            while sent < messages:
                producer.send_many([message] * batch)
                mesh.ack_many(consumer.receive_many(batch, timeout=5))
                sent += batch
            found[str(batch)] = (mesh.stats().journal_bytes - before) / sent
    return {"messages": messages, "size": size, "bytes_per_message": found}
