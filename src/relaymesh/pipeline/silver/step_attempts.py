"""One row per attempt at a step: who had it, how it ended, what it cost."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from relaymesh.pipeline.schema.silver import STEP_ATTEMPTS
from relaymesh.pipeline.silver.operations import KEY, is_one
from relaymesh.pipeline.silver.plans import STEP, TASK, submitted_tasks
from relaymesh.pipeline.silver.step_messages import step_messages

__all__ = ["last_usage", "step_attempts"]


def step_attempts(bronze: DataFrame, attempts: DataFrame) -> DataFrame:
    """Every delivery of a message that is the work of a step, with the usage that its holder reported."""
    tasks = submitted_tasks(bronze).select(*TASK, "namespace", "workflow", "submitted_date")
    work = step_messages(bronze).select(*STEP, "mailbox", "message_sequence")
    return (
        attempts.drop("namespace")
        .join(work, [*KEY])
        .join(tasks, TASK)
        .join(last_usage(bronze), ["partition", "lease_token"], "left")
        .to(STEP_ATTEMPTS)
    )


def last_usage(bronze: DataFrame) -> DataFrame:
    """What each attempt used: reports are running totals, so the last one of a token counts."""
    said = f.struct("cost_micros", "tokens", f.col("timestamp").alias("usage_at"))
    return (
        bronze.filter(is_one("USAGE"))
        .groupBy("partition", "lease_token")
        .agg(f.max_by(said, "sequence").alias("last"))
        .select("partition", "lease_token", "last.*")
    )
