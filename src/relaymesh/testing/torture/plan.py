"""Which cycle comes next: what is done to a worker, when, and which kind of worker it is. By seed alone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from relaymesh.testing.torture.workload import LEASE_MS

Deed = Literal["kill_at_work", "kill_opening", "kill_checkpoint", "pause", "stop", "restart"]

DEEDS: dict[Deed, int] = {
    "kill_at_work": 40,
    "kill_opening": 17,
    "kill_checkpoint": 13,
    "pause": 12,
    "stop": 10,
    "restart": 8,
}
"""How often each, in a hundred."""
WORK_S_MAX = 0.7
PAUSE_S_MIN = LEASE_MS / 1000 * 1.3
PAUSE_S_MAX = LEASE_MS / 1000 * 3


@dataclass(frozen=True, slots=True)
class Cycle:
    """One worker, from its start to its end."""

    deed: Deed
    on_a_loop: bool
    """An `AsyncMesh`; else a `Mesh`."""
    small: bool
    """Small segments, frequent checkpoints."""
    work_s: float
    share: float
    """Where in a stretch of unknown length it is met: in recovery, or in a checkpoint."""
    pause_s: float
    then_kill: bool
    """How a paused worker ends; else it is stopped."""


def cycles(seed: int) -> Iterator[Cycle]:
    """Without end. The first ones hold every deed once, so that a short run has seen each."""
    rng = random.Random(f"plan/{seed}")
    deeds = list(DEEDS)
    first = deeds.copy()
    rng.shuffle(first)
    while True:
        deed = first.pop() if first else rng.choices(deeds, list(DEEDS.values()))[0]
        yield Cycle(
            deed=deed,
            on_a_loop=rng.random() < 0.4,
            small=deed == "kill_checkpoint" or rng.random() < 0.5,
            work_s=rng.random() * WORK_S_MAX,
            share=rng.random(),
            pause_s=rng.uniform(PAUSE_S_MIN, PAUSE_S_MAX),
            then_kill=rng.random() < 0.6,
        )
