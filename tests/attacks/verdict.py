"""What a run found: figures, and the claims that they have to keep."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

P99_MS_MAX = 100.0
TIMES_MAX = 5.0
EXCESS_BYTES_MAX = 536_870_912
COLUMNS = (
    "run",
    "p50 ms",
    "p99 ms",
    "http p99",
    "base p99",
    "RSS MB",
    "excess",
    "after",
    "others",
    "victim refused",
)


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


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What was measured. `errors`: what the victim met, by kind; `attackers`: the tally of each."""

    base: Latency
    attacked: Latency
    control: Latency | None
    errors: dict[str, int]
    attackers: dict[str, dict[str, Any]]
    peak_bytes: int
    excess_bytes: int
    after_bytes: int
    """Resident beside counted mail when the attackers are gone."""
    answers: bool
    others: float
    """Processors that programs outside of the run used during the attack."""


@dataclass
class Verdict:
    """One attack alone, or all at once. It has passed when every claim holds."""

    name: str
    seen: Seen
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
            f"{self.seen.attacked.p50:.0f}",
            f"{self.seen.attacked.p99:.0f}",
            f"{self.seen.attacked.http_p99:.0f}",
            f"{self.seen.base.worst_p99:.0f}",
            f"{self.seen.peak_bytes / 1e6:.0f}",
            f"{self.seen.excess_bytes / 1e6:.0f}",
            f"{self.seen.after_bytes / 1e6:.0f}",
            f"{self.seen.others:.1f}",
            ", ".join(f"{what} × {count}" for what, count in self.seen.errors.items()) or "0",
        ]

    def lines(self) -> list[str]:
        did = [
            f"      {name}: {given['done']} done, {given['refused']} refused, {given['cut']} cut, "
            f"{given['bytes'] / 1e6:.0f} MB, {given['processor_s']:.1f} s of processor time"
            f"{given['skipped'] and '; skipped: ' + given['skipped']}"
            f"{given['last_refusal'] and '; refused with ' + given['last_refusal']}"
            for name, given in self.seen.attackers.items()
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
            "p50_ms": self.seen.attacked.p50,
            "p99_ms": self.seen.attacked.p99,
            "http_p99_ms": self.seen.attacked.http_p99,
            "base_p99_ms": self.seen.base.worst_p99,
            "control_p99_ms": None if self.seen.control is None else self.seen.control.worst_p99,
            "rss_bytes": self.seen.peak_bytes,
            "excess_bytes": self.seen.excess_bytes,
            "after_bytes": self.seen.after_bytes,
            "processors_of_others": self.seen.others,
            "victim_refused": self.seen.errors,
            "attackers": self.seen.attackers,
            "broken": self.broken,
        }


def judged_base(seen: Seen) -> Verdict:
    """Its latency is what this machine gives: the others are read beside it."""
    return _judged("no attack", seen)


def judged_alone(name: str, seen: Seen, allowed_ms: float = P99_MS_MAX) -> Verdict:
    verdict = _judged(name, seen)
    verdict.claim(f"the victim's p99 is below {allowed_ms:.0f} ms", seen.attacked.worst_p99 < allowed_ms)
    return verdict


def judged_together(seen: Seen, floor_ms: float = 0.0, excess_max: int = EXCESS_BYTES_MAX) -> Verdict:
    """`floor_ms` is allowed in any case: a short run has too few samples for a ratio of small figures."""
    assert seen.control is not None
    verdict = _judged("all at once", seen, excess_max)
    beside = seen.control.worst_p99
    verdict.claim(
        f"the victim's p99 is at most {TIMES_MAX:g} times {beside:.0f} ms, that beside an equal load",
        seen.attacked.worst_p99 <= max(floor_ms, TIMES_MAX * beside),
    )
    return verdict


def _judged(name: str, seen: Seen, excess_max: int = EXCESS_BYTES_MAX) -> Verdict:
    verdict = Verdict(name, seen)
    for attacker, did in seen.attackers.items():
        verdict.claim(f"{attacker} attacked", did["bytes"] > 0 or bool(did["skipped"]))
    verdict.claim("nothing of the victim is refused", not seen.errors)
    verdict.claim(
        f"the node holds at most {excess_max >> 20} MiB beside counted mail",
        max(seen.excess_bytes, seen.after_bytes) < excess_max,
    )
    verdict.claim("the node answers when the attackers are gone", seen.answers)
    return verdict


def table(verdicts: Iterable[Verdict]) -> str:
    """The figures of all runs in Markdown."""
    rows = [list(COLUMNS), ["---"] * len(COLUMNS), *[verdict.row() for verdict in verdicts]]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all values do not exceed."""
    if not values:
        return math.inf
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
