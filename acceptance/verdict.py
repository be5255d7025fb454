"""What a run has found: numbers, and the checks they have to pass."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Verdict:
    """One run. It has passed when every check has."""

    name: str
    what: str
    numbers: dict[str, Any] = field(default_factory=dict)
    checks: list[tuple[str, bool]] = field(default_factory=list)

    def check(self, claim: str, holds: bool) -> None:
        self.checks.append((claim, holds))

    @property
    def passed(self) -> bool:
        return bool(self.checks) and all(holds for _, holds in self.checks)

    def lines(self) -> list[str]:
        numbers = "  ".join(f"{name}={_shown(value)}" for name, value in self.numbers.items())
        return [
            f"{'PASS' if self.passed else 'FAIL'}  {self.name}: {self.what}",
            f"      {numbers}",
            *(f"      {'ok  ' if holds else 'NOT '} {claim}" for claim, holds in self.checks),
        ]

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "passed": self.passed,
            "numbers": self.numbers,
            "checks": [{"claim": claim, "holds": holds} for claim, holds in self.checks],
        }


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all values do not exceed."""
    if not values:
        return 0.0
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
