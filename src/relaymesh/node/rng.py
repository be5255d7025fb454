"""Randomness, as a port: a simulation passes a seeded one."""

from __future__ import annotations

import random
from typing import Protocol


class Rng(Protocol):
    def random(self) -> float:
        """Uniform in [0, 1)."""

    def getrandbits(self, k: int, /) -> int:
        """A number of `k` random bits."""


def system_rng() -> Rng:
    """A fast generator, seeded by the operating system. For jitter and ids, not for secrets."""
    return random.Random()
