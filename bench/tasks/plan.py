"""What is measured, of which systems, and how much of it."""

from __future__ import annotations

from dataclasses import dataclass

OURS = {
    "threads": "RelayMesh, threads",
    "loop": "RelayMesh, event loop",
    "websocket": "RelayMesh, WebSocket",
}
PEERS = {"dbos": "DBOS (SQLite)", "huey": "huey (SQLite)"}
MODULES = {
    "threads": "tasks.embedded",
    "loop": "tasks.on_loop",
    "websocket": "tasks.websocket",
    "dbos": "tasks.dbos_sqlite",
    "huey": "tasks.huey_sqlite",
}
SPANS = ("p99", "memory")
"""Measured of RelayMesh alone."""
TARGETS = {"chain": 5, "small": 10, "fan-out": 50}
"""How many times as fast as DBOS."""
NEIGHBOUR_MS = 5.0


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of work: so many steps for us, and so many for those that take much longer."""

    work: str
    ours: int
    theirs: int


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Rounds; kinds of work by name; items beside which a neighbour is measured; live tasks."""

    rounds: int
    kinds: dict[str, Kind]
    items: int
    tasks: int


WHOLE = Sizes(
    rounds=3,
    kinds={
        "chain": Kind(work="chain", ours=1000, theirs=300),
        "small, one by one": Kind(work="small", ours=1000, theirs=200),
        "small, together": Kind(work="together", ours=1000, theirs=200),
        "fan-out 1,000": Kind(work="fan-out", ours=1_000, theirs=300),
        "fan-out 10,000": Kind(work="fan-out", ours=10_000, theirs=0),
    },
    items=10_000,
    tasks=100_000,
)
QUICK = Sizes(
    rounds=1,
    kinds={
        "chain": Kind(work="chain", ours=200, theirs=50),
        "small, one by one": Kind(work="small", ours=200, theirs=50),
        "small, together": Kind(work="together", ours=200, theirs=50),
        "fan-out 1,000": Kind(work="fan-out", ours=1_000, theirs=100),
    },
    items=2_000,
    tasks=5_000,
)
"""A peer with 0 is not measured; its figure of the smaller fan-out counts."""


def chosen(only: list[str], names: list[str]) -> list[str]:
    """Those that begin so; all of them without a choice."""
    return [name for name in names if not only or any(name.startswith(start) for start in only)]
