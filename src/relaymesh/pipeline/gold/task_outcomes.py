"""Tasks submitted and ended, by workflow and day."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from relaymesh.pipeline.schema.gold import TASK_OUTCOMES

__all__ = ["task_outcomes"]

_WORKFLOW = ["partition", "namespace", "workflow"]
_ENDS = {"succeeded": "SUCCESS", "failed": "FAILED", "timed_out": "TIMEOUT", "cancelled": "CANCELLED"}
_SUMS = ("submitted", *_ENDS, "steps_ended", "live", "waiting_dead", "paused")


def task_outcomes(tasks: DataFrame, steps: DataFrame) -> DataFrame:
    """Counts per workflow and day on which each thing happened; days without any have no row."""
    status, live = f.col("status"), f.col("ended_at").isNull()
    began = _counted(
        tasks,
        "submitted_at",
        submitted=f.count("*"),
        live=f.count_if(live),
        waiting_dead=f.count_if(live & (status == "DEAD_LETTER")),
        paused=f.count_if("paused"),
    )
    ended = _counted(
        tasks.filter(~live), "ended_at", **{name: f.count_if(status == end) for name, end in _ENDS.items()}
    )
    of_steps = _counted(steps.filter(~live), "ended_at", steps_ended=f.count("*"))
    every = reduce(
        lambda left, right: left.unionByName(right, allowMissingColumns=True), (began, ended, of_steps)
    )
    return (
        every.groupBy(*_WORKFLOW, "day")
        .agg(*[f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in _SUMS])
        .to(TASK_OUTCOMES)
    )


def _counted(rows: DataFrame, time: str, **counts: Column) -> DataFrame:
    day = f.to_date(time).alias("day")
    return rows.groupBy(*_WORKFLOW, day).agg(*[count.alias(name) for name, count in counts.items()])
