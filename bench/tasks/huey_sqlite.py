"""The same work on huey with SqliteHuey, fsync on: a queue with results, without workflows that survive.

A chain is a pipeline of `count` tasks; a small task is put and its result waited for; a fan-out, and small
tasks together, are `count` tasks put at once. A worker that dies loses its task: huey has no leases.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from bench.tasks.spent import Spent
from bench.tasks.workflows import check

SETTINGS = "fsync=True: WAL, synchronous=FULL; 4 worker threads that look every millisecond"
WORKERS = 4
POLL_S = 0.001
PIPELINE_MAX = 100
"""Tasks of one pipeline: huey writes the rest of it with each, and Python limits how deep that may be."""


def measure(place: Path, *, work: str, count: int) -> dict[str, Any]:
    from huey import SqliteHuey  # installed by `make bench` alone

    logging.getLogger("huey").setLevel(logging.ERROR)
    huey = SqliteHuey(filename=str(place / "huey.db"), fsync=True)

    @huey.task()
    def same(value: Any) -> Any:
        return value

    consumer = huey.create_consumer(
        workers=WORKERS, periodic=False, initial_delay=POLL_S, backoff=1, max_delay=POLL_S
    )
    consumer.start()
    try:
        same(0).get(blocking=True, backoff=1, max_delay=POLL_S)
        spent = Spent()
        if work == "chain":
            _chain(huey, same, count)
        elif work == "small":
            for number in range(count):
                check(work, number, same(number).get(blocking=True, backoff=1, max_delay=POLL_S))
        else:
            results = [same(number) for number in range(count)]
            items = [each.get(blocking=True, backoff=1, max_delay=POLL_S) for each in results]
            check("fan-out", {"items": list(range(count))}, items)
        return spent.told(count) | {"settings": SETTINGS}
    finally:
        consumer.stop(graceful=True)


def _chain(huey: Any, same: Any, count: int) -> None:
    """Pipelines one after the other, `count` tasks in all."""
    value = 1
    while count > 0:
        length = min(count, PIPELINE_MAX)
        pipeline = same.s(value)
        for _ in range(length - 1):
            pipeline = pipeline.then(same)
        value = huey.enqueue(pipeline).get(blocking=True, backoff=1, max_delay=POLL_S)[-1]
        count -= length
    check("chain", 1, value)
