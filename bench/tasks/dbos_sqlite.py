"""The same work on DBOS with its system database in SQLite, as it sets SQLite itself.

A chain is a workflow that calls `count` steps; a small task is a workflow of one step; a fan-out is a
workflow that starts `count` child workflows of one step and waits for all (`DBOS.start_workflow`, which is
faster than its queues).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.tasks.spent import Spent
from bench.tasks.workflows import check

SETTINGS = "SQLite as DBOS sets it: rollback journal, synchronous=FULL; no admin server, no tracing"


def measure(place: Path, *, work: str, count: int) -> dict[str, Any]:
    from dbos import DBOS  # installed by `make bench` alone

    config: Any = {
        "name": "bench",
        "system_database_url": f"sqlite:///{place / 'system.sqlite'}",
        "run_admin_server": False,
        "enable_otlp": False,
        "log_level": "ERROR",
    }
    DBOS(config=config)

    @DBOS.step()
    def same(value: Any) -> Any:
        return value

    @DBOS.workflow()
    def chain(steps: int, value: Any) -> Any:
        for _ in range(steps):
            value = same(value)
        return value

    @DBOS.workflow()
    def small(value: Any) -> Any:
        return same(value)

    @DBOS.workflow()
    def fan_out(items: list[Any]) -> list[Any]:
        started = [DBOS.start_workflow(small, item) for item in items]
        return [each.get_result() for each in started]

    DBOS.launch()
    try:
        small(0)
        spent = Spent()
        if work == "chain":
            check(work, 1, chain(count, 1))
        elif work == "small":
            for number in range(count):
                check(work, number, small(number))
        elif work == "together":
            started = [DBOS.start_workflow(small, number) for number in range(count)]
            for number, each in enumerate(started):
                check(work, number, each.get_result())
        else:
            items = list(range(count))
            check(work, {"items": items}, fan_out(items))
        return spent.told(count) | {"settings": SETTINGS}
    finally:
        DBOS.destroy()
