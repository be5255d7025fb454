"""What a run found: figures, and the claims that they have to keep."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

P99_MS_MAX = 100.0
TIMES_MAX = 5.0
EXCESS_BYTES_MAX = 536_870_912
COLUMNS = ("run", "p50 ms", "p99 ms", "http p99", "base p99", "RSS MB", "excess", "after", "victim refused")


@dataclass(frozen=True)
class Latency:
    """Of the victim in one phase, in milliseconds: trips from send to ack, and sends over HTTP."""

    trips: Sequence[float]
    requests: Sequence[float]

    @property
    def p50(self) -> float:
        return percentile(self.trips, 0.5)

    @property
    def p99(self) -> float:
        return percentile(self.trips, 0.99)

    @property
    def http_p99(self) -> float:
        return percentile(self.requests, 0.99)

    @property
    def worst_p99(self) -> float:
        return max(self.p99, self.http_p99)


@dataclass
class Verdict:
    """One attack alone, or all at once. It has passed when every claim holds."""

    name: str
    base: Latency
    attacked: Latency
    control: Latency | None
    peak_bytes: int
    excess_bytes: int
    after_bytes: int
    errors: dict[str, int]
    attackers: dict[str, dict[str, Any]]
    claims: list[tuple[str, bool]] = field(default_factory=list)

    def claim(self, words: str, holds: bool) -> None:
        self.claims.append((words, holds))

    @property
    def passed(self) -> bool:
        return bool(self.claims) and all(holds for _, holds in self.claims)

    @property
    def broken(self) -> list[str]:
        return [words for words, holds in self.claims if not holds]

    def row(self) -> list[str]:
        return [
            self.name,
            f"{self.attacked.p50:.0f}",
            f"{self.attacked.p99:.0f}",
            f"{self.attacked.http_p99:.0f}",
            f"{self.base.worst_p99:.0f}",
            f"{self.peak_bytes / 1e6:.0f}",
            f"{self.excess_bytes / 1e6:.0f}",
            f"{self.after_bytes / 1e6:.0f}",
            ", ".join(f"{what} × {count}" for what, count in self.errors.items()) or "0",
        ]

    def lines(self) -> list[str]:
        did = [
            f"      {name}: {given['done']} done, {given['refused']} refused, {given['cut']} cut, "
            f"{given['bytes'] / 1e6:.0f} MB, {given['processor_s']:.1f} s of processor time"
            f"{given['skipped'] and '; skipped: ' + given['skipped']}"
            f"{given['last_refusal'] and '; refused with ' + given['last_refusal']}"
            for name, given in self.attackers.items()
        ]
        figures = "  ".join(f"{name} {value}" for name, value in zip(COLUMNS, self.row(), strict=True))
        return [
            f"{'PASS' if self.passed else 'FAIL'}  {figures}",
            *did,
            *[f"      NOT {words}" for words in self.broken],
        ]

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "passed": self.passed,
            "p50_ms": self.attacked.p50,
            "p99_ms": self.attacked.p99,
            "http_p99_ms": self.attacked.http_p99,
            "base_p99_ms": self.base.worst_p99,
            "control_p99_ms": None if self.control is None else self.control.worst_p99,
            "rss_bytes": self.peak_bytes,
            "excess_bytes": self.excess_bytes,
            "after_bytes": self.after_bytes,
            "victim_refused": self.errors,
            "attackers": self.attackers,
            "broken": self.broken,
        }


def table(verdicts: Iterable[Verdict]) -> str:
    """The figures of all runs in Markdown."""
    rows = [list(COLUMNS), ["---"] * len(COLUMNS), *[verdict.row() for verdict in verdicts]]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all values do not exceed."""
    if not values:
        return math.inf
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
