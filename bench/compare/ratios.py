"""From slices to a verdict: one ratio per block of slices, their median, and the interval around it.

A ratio is always "the second revision over the first, more is better": of messages a second, and inverted of
processor time a message and of bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.compare.rows import Measure, Row
from bench.quantile import median

COVERAGE = 0.9


@dataclass(frozen=True, kw_only=True)
class Slice:
    """What one revision did in its slices of a block: messages, and what they took."""

    amount: float
    wall_s: float = 0.0
    cpu_s: float = 0.0
    bytes: float = 0.0

    def __add__(self, other: Slice) -> Slice:
        return Slice(
            amount=self.amount + other.amount,
            wall_s=self.wall_s + other.wall_s,
            cpu_s=self.cpu_s + other.cpu_s,
            bytes=self.bytes + other.bytes,
        )

    def cost(self, measure: Measure) -> float:
        """What one message takes: seconds, processor seconds, or bytes."""
        return {"rate": self.wall_s, "cpu": self.cpu_s, "bytes": self.bytes}[measure] / self.amount


Block = tuple[Slice, Slice]


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """Of one measure of a row: the median of the blocks, and the interval that covers the true median."""

    measure: Measure
    median: float
    low: float
    high: float
    before: float
    after: float
    """Medians of the cost of a message, in seconds or bytes."""
    every: tuple[float, ...]

    @classmethod
    def of(cls, measure: Measure, blocks: Sequence[Block]) -> Ratio:
        every = [before.cost(measure) / after.cost(measure) for before, after in blocks]
        low, high = interval(every)
        return cls(
            measure=measure,
            median=median(every),
            low=low,
            high=high,
            before=median([before.cost(measure) for before, _ in blocks]),
            after=median([after.cost(measure) for _, after in blocks]),
            every=tuple(every),
        )


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A row's ratios; the first is the one that decides."""

    row: Row
    ratios: tuple[Ratio, ...]
    floor: float

    @classmethod
    def of(cls, row: Row, blocks: Sequence[Block], floor: float) -> Verdict:
        others: tuple[Measure, ...] = () if row.judge == "bytes" else ("rate", "cpu")
        measures = [row.judge, *(each for each in others if each != row.judge)]
        return cls(row=row, ratios=tuple(Ratio.of(each, blocks) for each in measures), floor=floor)

    @property
    def below(self) -> bool:
        """The deciding median is below the floor, or another measure is with its whole interval."""
        first, *others = self.ratios
        return first.median < self.floor or any(other.high < self.floor for other in others)

    @property
    def doubtful(self) -> bool:
        """Another measure has its median below the floor, but noise explains it."""
        return not self.below and any(ratio.median < self.floor for ratio in self.ratios)

    def as_dict(self) -> dict[str, Any]:
        return {
            "row": self.row.key,
            "judge": self.row.judge,
            "below": self.below,
            **{
                ratio.measure: {
                    "ratio": ratio.median,
                    "low": ratio.low,
                    "high": ratio.high,
                    "before": ratio.before,
                    "after": ratio.after,
                    "blocks": list(ratio.every),
                }
                for ratio in self.ratios
            },
        }


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The narrowest pair of order statistics that covers the median with COVERAGE; else the extremes.

    Each value is above the true median with probability 1/2, whatever the noise is like.
    """
    ordered = sorted(values)
    skip = 0
    while 2 * (skip + 2) <= len(ordered) and coverage(len(ordered), skip + 1) >= COVERAGE:
        skip += 1
    return ordered[skip], ordered[-1 - skip]


def coverage(count: int, skip: int = 0) -> float:
    """How likely the true median lies between the values that are left without `skip` on either side."""
    outside = sum(math.comb(count, each) for each in range(skip + 1))
    return max(0.0, 1 - 2 * outside / (1 << count))


def interval_coverage(count: int) -> float:
    skipped, _ = interval([float(each) for each in range(count)])
    return coverage(count, int(skipped))
