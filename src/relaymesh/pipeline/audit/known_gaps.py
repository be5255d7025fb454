"""Findings that the audit leaves out because events are known to be missing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from relaymesh.pipeline.audit.stream_rules import STREAM_RULES

__all__ = ["KnownGap", "without_known_gaps"]


class KnownGap(Protocol):
    """Missing events of a partition, which are already reported elsewhere."""

    @property
    def partition(self) -> int: ...
    @property
    def last(self) -> int: ...


def without_known_gaps(found: DataFrame, gaps: Sequence[KnownGap]) -> DataFrame:
    """Violations that are only the two sides of such a gap.

    The missing events may have been about any message of their partition: no rule about messages can be
    judged there. Numbers, times and tokens can be judged: only the gap itself is no finding.
    """
    partitions = sorted({gap.partition for gap in gaps})
    about_messages = f.col("partition").isin(partitions) & ~f.col("rule").isin(*STREAM_RULES)
    behind: list[Column] = [
        (f.col("partition") == gap.partition) & (f.col("sequence") == gap.last + 1) for gap in gaps
    ]
    itself = (f.col("rule") == "sequence_gap") & reduce(lambda one, other: one | other, behind)
    return found.where(~f.coalesce(about_messages | itself, f.lit(False)))
