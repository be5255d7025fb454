"""What a run of many seeds showed, for people and for programs."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field

from relaymesh.testing.simulation.plan import FAULTS
from relaymesh.testing.simulation.scenario import Played
from relaymesh.testing.simulation.trace import combined
from relaymesh.testing.simulation.verdict import Violation

COMMAND = "python -m relaymesh.testing.simulate --seed {seed} --trace"
BEHAVIOURS = (
    "client_crash",
    "stale_settle",
    "during_sync",
    "during_checkpoint",
    "slow_advance",
    "crash_before_advance",
    "crash_under_task",
    "crash_between_records",
    "clock_jump_under_task",
    "submit_again",
    "look_again",
    "late_result",
    "paused_owner",
    "late_result_taken",
    "late_result_refused",
    "cancel_race",
    "advance_refused",
    "refused_for_long",
    "letter_aged",
    "letter_aged_under_step",
    "key_aged",
    "task_shown",
    "payload_swept",
)
"""Counted too, but no faults of the machine: what clients did."""


@dataclass(slots=True)
class Report:
    """Fed with what was played, in the order of the seeds."""

    digests: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    messages: int = 0
    deliveries: int = 0
    cuts: set[tuple[int, int]] = field(default_factory=set)
    """Between which kinds of records of tasks a crash came, by their numbers."""

    def add(self, played: Played) -> None:
        self.digests.append(played.digest)
        self.faults.update(played.faults)
        self.cuts |= played.cuts
        self.messages += played.messages
        self.deliveries += played.deliveries
        if played.violation is not None:
            self.violations.append(played.violation)

    def json_line(self) -> str:
        return json.dumps(
            {
                "seeds": len(self.digests),
                "violations": len(self.violations),
                "faults": dict(sorted(self.faults.items())),
                "cuts": sorted(self.cuts),
                "trace_hash": combined(self.digests),
                "failing_seeds": [violation.seed for violation in self.violations],
            }
        )

    def table(self) -> str:
        """Fault kinds with their counts, those that never struck included."""
        kinds = [*FAULTS, *BEHAVIOURS]
        width = max(len(kind) for kind in kinds)
        rows = [f"  {kind:<{width}}  {self.faults[kind]:>8,}" for kind in kinds]
        return "\n".join(["  fault" + " " * (width - 3) + "   struck", *rows])

    def verdict(self) -> str:
        seeds = len(self.digests)
        work = f"{self.messages:,} messages, {self.deliveries:,} deliveries"
        if not self.violations:
            return f"{seeds:,} seeds, {work}: every invariant held. Trace hash {combined(self.digests)}"
        return f"{seeds:,} seeds, {work}: {len(self.violations)} VIOLATIONS"


def describe(violation: Violation) -> str:
    """The seed, the invariant, what was seen, what led to it, and the one command that shows it again."""
    lines = [
        f"seed {violation.seed} breaks {violation.invariant}:",
        f"  {violation.seen}",
        "the last lines of its trace:",
        *[f"  {line}" for line in violation.trace],
        "to see it again:",
        f"  {COMMAND.format(seed=violation.seed)}",
    ]
    return "\n".join(lines)
