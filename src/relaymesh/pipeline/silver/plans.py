"""Tasks as they were submitted: their plans."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from relaymesh.pipeline.silver.operations import is_one

__all__ = ["STEP", "TASK", "submitted_tasks"]

TASK = ["partition", "task_id"]
"""What names a task."""
STEP = [*TASK, "step"]
"""What names a step."""

_PLAN = "workflow string, version string, steps array<struct<needs: array<int>, handler: int>>"


def submitted_tasks(bronze: DataFrame) -> DataFrame:
    """One row per task whose beginning `bronze` holds. Others have no plan here, and are in no table."""
    plan = f.from_json("settings", _PLAN)
    return (
        bronze.filter(is_one("SUBMIT"))
        .withColumn("plan", plan)
        .filter(f.col("plan.steps").isNotNull())
        .select(
            *TASK,
            f.substring_index("sender", "/", 1).alias("namespace"),
            "plan.workflow",
            f.nullif("plan.version", f.lit("")).alias("version"),
            f.col("sender").alias("owner"),
            f.col("event_date").alias("submitted_date"),
            f.col("timestamp").alias("submitted_at"),
            f.col("sequence").alias("submitted_sequence"),
            f.col("plan.steps").alias("planned"),
        )
    )
