"""One row per step of a task, with items and added steps, from ready to its end."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from relaymesh.pipeline.schema.silver import STEPS
from relaymesh.pipeline.silver.operations import KEY, RETURNS, SETTLES, is_one
from relaymesh.pipeline.silver.plans import STEP, TASK, submitted_tasks
from relaymesh.pipeline.silver.step_messages import step_messages

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

__all__ = ["ABANDONING", "steps"]

ABANDONING = ("lease_expired", "reclaimed", "abandoned")
"""Outcomes of attempts in which the holder, not the work, failed."""

_OWN = (
    "SUBMIT", "STEP_SENT", "STEPS_ADDED", "STEP_WAITS", "STEP_WITHDRAWN", "TASK_UNDOING", "STEP_ENDED",
    "TASK_ENDED",
)  # fmt: skip
_COLUMNS = (
    *TASK, "sequence", "at", "operation", "step", "status", "items", "code", "reason", "error", "lease_token",
    "result_hash", "settings", "mailbox", "message_sequence", "dead_sequence",
)  # fmt: skip
_ADDED_LATER = ("namespace", "workflow", "submitted_date", "cost_micros", "tokens")


def _folded_field(field: StructField) -> StructField:
    """Times leave the fold as milliseconds, so that no zone is involved."""
    kind = LongType() if isinstance(field.dataType, TimestampType) else field.dataType
    return StructField(field.name, kind, True)


_FOLDED = StructType([_folded_field(field) for field in STEPS if field.name not in _ADDED_LATER])
_TIMES = [field.name for field in STEPS if isinstance(field.dataType, TimestampType)]


def steps(bronze: DataFrame, step_attempts: DataFrame) -> DataFrame:
    """Every step of every task that `bronze` submits, as it stands after all of `bronze`.

    Each task is folded by itself, event by event: see step_fold.py.
    """
    tasks = submitted_tasks(bronze).select(*TASK, "namespace", "workflow", "submitted_date")
    used = step_attempts.groupBy(*STEP).agg(
        f.sum("cost_micros").alias("cost_micros"), f.sum("tokens").alias("tokens")
    )
    folded = _events(bronze).groupBy(*TASK).applyInArrow(_fold, _FOLDED)
    return (
        folded.withColumns({name: f.timestamp_millis(name) for name in _TIMES})
        .join(tasks, TASK)
        .join(used, STEP, "left")
        .to(STEPS)
    )


def _fold(events: pa.Table) -> pa.Table:
    """Runs in Python beside the executors: the events of one task to rows of its steps."""
    import pyarrow as pa  # noqa: PLC0415 - the driver plans without it
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415

    from relaymesh.pipeline.silver.step_fold import StepFold  # noqa: PLC0415

    given = events.to_pylist()
    task = {name: given[0][name] for name in TASK}
    rows = [task | row for row in StepFold(given).rows()]
    return pa.Table.from_pylist(rows, schema=to_arrow_schema(_FOLDED))


def _events(bronze: DataFrame) -> DataFrame:
    """Every event that says something about a step: of its task, of its messages, of its dead letters."""
    work = step_messages(bronze)
    own = bronze.filter(is_one(*_OWN) & f.col("task_id").isNotNull())
    asked = own.filter(is_one("STEP_WAITS") & f.col("message_sequence").isNotNull()).select(*TASK, *KEY[:2])
    linked = work.select(*TASK, *KEY[:2]).unionByName(asked)
    settled = _without_names(bronze.filter(is_one("GRANT", *RETURNS, *SETTLES))).join(linked, [*KEY])
    again = (
        _without_names(bronze.filter(is_one("REDRIVE")))
        .drop("step")
        .join(work.filter("redriven").select(*STEP, *KEY[:2]), [*KEY])
    )
    died = settled.filter(is_one("DEAD_LETTER")).select(
        *TASK, "mailbox", f.col("sequence").alias("dead_sequence")
    )
    purged = _without_names(bronze.filter(is_one("PURGE"))).join(
        died, ["partition", "mailbox", "dead_sequence"]
    )
    return reduce(DataFrame.unionByName, (_told(each) for each in (own, settled, again, purged)))


def _without_names(events: DataFrame) -> DataFrame:
    """Without the columns in which senders name a task."""
    return events.drop("task_id")


def _told(events: DataFrame) -> DataFrame:
    at: Column = f.unix_millis("timestamp").alias("at")
    return events.select(*[at if name == "at" else f.col(name) for name in _COLUMNS])
