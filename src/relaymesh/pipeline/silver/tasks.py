"""One row per task, from its submit to its end."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from relaymesh.pipeline.schema.silver import TASKS
from relaymesh.pipeline.silver.operations import is_one
from relaymesh.pipeline.silver.plans import TASK, submitted_tasks

__all__ = ["tasks"]

_COUNTED = {
    "steps_succeeded": "SUCCESS",
    "steps_failed": "FAILED",
    "steps_timed_out": "TIMEOUT",
    "steps_skipped": "SKIPPED",
    "steps_cancelled": "CANCELLED",
    "steps_dead": "DEAD_LETTER",
}


def tasks(bronze: DataFrame, steps: DataFrame) -> DataFrame:
    """Every task that `bronze` submits, as it stands after all of `bronze`."""
    live = f.when(f.col("started_at").isNull(), "PENDING").when(f.col("stuck"), "DEAD_LETTER")
    told = (
        submitted_tasks(bronze)
        .join(_ends(bronze), TASK, "left")
        .join(_steps(steps), TASK, "left")
        .join(_budgets(bronze), TASK, "left")
    )
    ended = f.col("ended_sequence").isNotNull()
    return told.withColumns(
        {
            "status": f.coalesce("end_status", live.otherwise("RUNNING")),
            "latency_ms": f.unix_millis("ended_at") - f.unix_millis("submitted_at"),
            "paused": ~ended & f.coalesce("paused", f.lit(False)),
        }
    ).to(TASKS)


def _ends(bronze: DataFrame) -> DataFrame:
    end = f.struct("sequence", "timestamp", "status", "reason", "result_hash")
    return (
        bronze.filter(is_one("TASK_ENDED"))
        .groupBy(*TASK)
        .agg(f.min_by(end, "sequence").alias("end"))
        .select(
            *TASK,
            f.col("end.sequence").alias("ended_sequence"),
            f.col("end.timestamp").alias("ended_at"),
            f.col("end.status").alias("end_status"),
            f.nullif("end.reason", f.lit("")).alias("reason"),
            "end.result_hash",
        )
    )


def _steps(steps: DataFrame) -> DataFrame:
    """What the steps of each task add up to. A task is stuck when only dead letters are left to wait for."""
    status, live = f.col("status"), f.col("ended_sequence").isNull()
    moves = live & (
        status.isin("RETRYING", "ABANDONED")
        | ((status == "RUNNING") & ~f.col("kind").isin("fan_out", "group"))
        | ((status == "PENDING") & f.col("ready_at").isNotNull())
    )
    # a step that has items, goes on as others or waits for an event has no grant
    expanded = f.when(f.col("kind") == "item", f.col("ready_at")).when(
        f.col("messages") == 0, f.col("sent_at")
    )
    own_end = f.when(f.col("ended_by") != "TASK_ENDED", f.col("ended_at"))
    return steps.groupBy(*TASK).agg(
        f.count("*").alias("steps_total"),
        f.count("ended_sequence").alias("steps_ended"),
        *[f.count_if(status == state).alias(name) for name, state in _COUNTED.items()],
        *[f.sum(name).alias(name) for name in ("attempts", "failed", "abandoned", "cost_micros", "tokens")],
        f.min(f.least(f.col("first_granted_at"), own_end, expanded)).alias("started_at"),
        ((f.count_if(live & (status == "DEAD_LETTER")) > 0) & (f.count_if(moves) == 0)).alias("stuck"),
    )


def _budgets(bronze: DataFrame) -> DataFrame:
    """Whether the last thing said about the budget of a task is that it is used up."""
    last = f.max_by(is_one("BUDGET_PAUSED"), "sequence")
    return bronze.filter(is_one("BUDGET_PAUSED", "BUDGET_SET")).groupBy(*TASK).agg(last.alias("paused"))
