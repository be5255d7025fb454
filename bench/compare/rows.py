"""What is compared: each row is one workload with its parameters, run in short slices."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Measure = Literal["rate", "cpu", "bytes"]

DURABILITIES = ("synced", "batched", "memory")
BATCHES = (1, 100, 1000)
QUICK = ("mesh/memory/100", "async/batched/100", "recovery/live")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table.

    judge: the measure that decides. Processor time is steadier than the rate, which other processes and the
        disk set as well.
    turns: who is measured when in one block of slices; the next block has the two swapped. A block gives one
        ratio.
    blocks: in each round.
    fresh: run each slice in a process that has done nothing else.
    """

    key: str
    work: str
    params: dict[str, Any] = field(default_factory=dict)
    judge: Measure = "cpu"
    turns: str = "ABBA"
    blocks: int = 1
    fresh: bool = False

    def turns_in(self, turn: int) -> str:
        return self.turns if turn % 2 == 0 else self.turns.translate(str.maketrans("AB", "BA"))


def rows(quick: bool) -> list[Row]:
    every = [*_embedded(quick), *_remote(quick), *_state(quick)]
    return [row for row in every if row.key in QUICK] if quick else every


def chosen(every: list[Row], starts: list[str]) -> list[Row]:
    return [row for row in every if not starts or any(row.key.startswith(start) for start in starts)]


def _embedded(quick: bool) -> list[Row]:
    """`send`, `receive`, `ack` one by one, and `send_many`, `receive_many`, `ack_many`."""
    return [
        Row(
            key=f"{api}/{durability}/{batch}",
            work="async_mesh" if api == "async" else api,
            blocks=1 if quick else 3 if api == "mesh" else 2,
            params={"durability": durability, "batch": batch, "seconds": 0.05 if quick else 0.1},
        )
        for api in ("mesh", "async")
        for durability in DURABILITIES
        for batch in BATCHES
    ]


def _remote(quick: bool) -> list[Row]:
    seconds, blocks = (0.1, 1) if quick else (0.2, 2)
    return [
        Row(key="ws/1", work="websocket", params={"batch": 1, "seconds": seconds}, blocks=blocks),
        Row(key="ws/100", work="websocket", params={"batch": 100, "seconds": seconds}, blocks=blocks),
        Row(key="http/post", work="posts", params={"seconds": seconds}, blocks=blocks),
    ]


def _state(quick: bool) -> list[Row]:
    count = 5_000 if quick else 40_000
    return [
        Row(key="recovery/live", work="recovery", params={"what": "live", "count": count}),
        Row(key="recovery/settled", work="recovery", params={"what": "settled", "count": count}),
        Row(key="checkpoint", work="checkpoint", params={"count": count}, blocks=1 if quick else 3),
        Row(
            key="memory/pending",
            work="memory",
            params={"count": 100_000},
            judge="bytes",
            turns="AB",
            fresh=True,
        ),
    ]
