"""Looking for a planted bug: seeds of the simulator, one after the other, until one shows it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from relaymesh.testing.planted.bug import Bug
from relaymesh.testing.simulation.scenario import run_seeds
from relaymesh.testing.simulation.verdict import Violation

__all__ = ["SEEDS_MAX", "Caught", "catch", "first_violation"]

SEEDS_MAX = 400


@dataclass(frozen=True)
class Caught:
    """What came of looking for one bug.

    violation: None when it was missed. seeds: how many were played. reached: how often it ran.
    """

    bug: Bug
    violation: Violation | None
    seeds: int
    reached: int
    seconds: float

    @property
    def caught(self) -> bool:
        return self.violation is not None

    @property
    def verdict(self) -> str:
        """The invariant that does not hold; a bug that never ran was not missed, it was not tried."""
        if self.violation is not None:
            return self.violation.invariant
        return "MISSED" if self.reached else "NEVER REACHED"


def catch(bug: Bug, seeds: int = SEEDS_MAX, first_seed: int = 0) -> Caught:
    """Plant the bug and play seeds until one breaks an invariant, at most so many."""
    began = time.perf_counter()
    with bug.planted() as reached:
        played, violation = first_violation(range(first_seed, first_seed + seeds))
    return Caught(bug, violation, played, reached.times, time.perf_counter() - began)


def first_violation(seeds: range) -> tuple[int, Violation | None]:
    """How many seeds were played, and what the last of them broke."""
    played = 0
    for played, outcome in enumerate(run_seeds(seeds), 1):
        if outcome.violation is not None:
            return played, outcome.violation
    return played, None
