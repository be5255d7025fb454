"""Rules about tasks and their steps. A task whose beginning is not known is not judged.

A finding names the event and says task and step in words. It names no mailbox: what is missing of any mailbox
may be about a step, so no task is judged where a record of its journal was set aside.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.window import WindowSpec

from relaymesh.pipeline.silver.operations import KEY, is_one
from relaymesh.pipeline.silver.plans import STEP, TASK, submitted_tasks
from relaymesh.pipeline.silver.step_messages import step_messages

__all__ = ["found_in_tasks", "task_violations"]

_SENDS = ("STEP_SENT", "STEPS_ADDED", "STEP_WAITS")
_MOVES = (*_SENDS, "STEP_ENDED", "TASK_CLOSING", "TASK_ENDED", "TASK_UNDOING")


def task_violations(bronze: DataFrame, steps: DataFrame) -> DataFrame:
    """All rules but the one about results."""
    known = submitted_tasks(bronze).select(*TASK)
    said = bronze.join(known, TASK)
    of_messages = _of_messages(bronze).join(known, TASK)
    every = (
        _ended_twice(said, of_messages),
        _needs(said, steps),
        _tokens(said, of_messages),
        _over(said, steps),
        _budgets(said, of_messages.join(_undoing(steps), STEP, "left_anti")),
    )
    return reduce(DataFrame.unionByName, every)


def found_in_tasks(rows: DataFrame, rule: str, detail: Column) -> DataFrame:
    """Findings, in the columns of the audit."""
    return rows.select(
        f.lit(rule).alias("rule"),
        "partition",
        f.lit(None).cast("string").alias("mailbox"),
        f.lit(None).cast("long").alias("message_sequence"),
        f.lit(None).cast("string").alias("message_id"),
        "sequence",
        "timestamp",
        detail.alias("detail"),
    )


def _of_messages(bronze: DataFrame) -> DataFrame:
    """Grants and acks of messages that belong to a step."""
    work = step_messages(bronze).select(*STEP, "mailbox", "message_sequence")
    events = bronze.filter(is_one("GRANT", "ACK")).select(
        *KEY, "sequence", "timestamp", "operation", "lease_token"
    )
    return events.join(work, [*KEY]).drop("mailbox")


def _before(*by: str) -> WindowSpec:
    return Window.partitionBy(*by).orderBy("sequence").rowsBetween(Window.unboundedPreceding, -1)


def _undoing(steps: DataFrame) -> DataFrame:
    """Steps that undo others: they are done while their task closes, whatever its budget is."""
    return steps.filter(f.col("kind") == "undo").select(*STEP)


def _ended_twice(said: DataFrame, of_messages: DataFrame) -> DataFrame:
    """STEP_ENDED completes a step, and so does an ack. The ack that follows STEP_ENDED adds nothing."""
    columns = [*STEP, "sequence", "timestamp", "operation", "message_sequence"]
    ends = (
        said.filter(is_one("STEP_ENDED"))
        .select(*columns)
        .unionByName(of_messages.filter(is_one("ACK")).select(*columns))
    )
    before = _before(*STEP)
    acked = f.min(f.when(is_one("ACK"), f.col("message_sequence"))).over(before)
    told = ends.withColumns({"earlier": f.count("*").over(before), "acked": acked})
    twice = (is_one("STEP_ENDED") & (f.col("earlier") > 0)) | (
        is_one("ACK") & (f.col("acked") != f.col("message_sequence"))
    )
    detail = f.format_string(
        "%s of step %d of task %s, which was completed before", "operation", "step", "task_id"
    )
    return found_in_tasks(told.filter(twice), "step_ended_twice", detail)


def _needs(said: DataFrame, steps: DataFrame) -> DataFrame:
    """The end of the task ends no need."""
    needs = steps.filter(f.col("needs").isNotNull()).select(
        *STEP, f.explode(f.split("needs", ",").cast("array<int>")).alias("need")
    )
    ends = steps.filter(f.col("ended_by") != "TASK_ENDED").select(
        *TASK, f.col("step").alias("need"), f.col("ended_sequence").alias("need_ended")
    )
    sent = said.filter(is_one(*_SENDS)).select(*STEP, "sequence", "timestamp")
    early = (
        sent.join(needs, STEP)
        .join(ends, [*TASK, "need"], "left")
        .filter(f.coalesce(f.col("need_ended") > f.col("sequence"), f.lit(True)))
        .groupBy(*STEP, "sequence", "timestamp")
        .agg(f.min("need").alias("need"))
    )
    detail = f.format_string(
        "step %d of task %s was sent, and step %d, which it needs, had not ended", "step", "task_id", "need"
    )
    return found_in_tasks(early, "need_not_ended", detail)


def _tokens(said: DataFrame, of_messages: DataFrame) -> DataFrame:
    columns = [*STEP, "sequence", "timestamp", "operation", "lease_token"]
    both = (
        said.filter(is_one("STEP_ENDED"))
        .select(*columns)
        .unionByName(of_messages.filter(is_one("GRANT")).select(*columns))
    )
    granted = f.last(f.when(is_one("GRANT"), f.col("lease_token")), ignorenulls=True).over(_before(*STEP))
    wrong = (
        both.withColumn("granted", granted)
        .filter(is_one("STEP_ENDED") & f.col("lease_token").isNotNull())
        .filter(~f.col("lease_token").eqNullSafe(f.col("granted")))
    )
    detail = f.format_string(
        "step %d of task %s ended by token %d; its last grant has %s",
        "step",
        "task_id",
        "lease_token",
        f.coalesce(f.col("granted").cast("string"), f.lit("none")),
    )
    return found_in_tasks(wrong, "outcome_token", detail)


def _over(said: DataFrame, steps: DataFrame) -> DataFrame:
    ends = said.groupBy(*TASK).agg(
        f.min(f.when(is_one("TASK_ENDED"), f.col("sequence"))).alias("ended"),
        f.min(f.when(is_one("TASK_CLOSING"), f.col("sequence"))).alias("closing"),
    )
    undoes = _undoing(steps).withColumn("undo", f.lit(True))
    moved = said.filter(is_one(*_MOVES)).select(*STEP, "sequence", "timestamp", "operation")
    ended = f.coalesce(f.col("sequence") > f.col("ended"), f.lit(False))
    closing = (
        is_one(*_SENDS)
        & f.coalesce(f.col("sequence") > f.col("closing"), f.lit(False))
        & ~f.coalesce("undo", f.lit(False))
    )
    late = moved.join(ends, TASK).join(undoes, STEP, "left").filter(ended | closing)
    state = f.when(ended, "had ended").otherwise("was closing")
    detail = f.format_string("%s of task %s, which %s", "operation", "task_id", state)
    return found_in_tasks(late, "task_over", detail)


def _budgets(said: DataFrame, of_messages: DataFrame) -> DataFrame:
    columns = [*TASK, "sequence", "timestamp", "operation"]
    both = (
        said.filter(is_one("BUDGET_PAUSED", "BUDGET_SET"))
        .select(*columns)
        .unionByName(of_messages.filter(is_one("GRANT")).select(*columns))
    )
    last = f.last(f.when(~is_one("GRANT"), f.col("operation")), ignorenulls=True).over(_before(*TASK))
    wrong = both.withColumn("last", last).filter(is_one("GRANT") & (f.col("last") == "BUDGET_PAUSED"))
    detail = f.format_string("a step of task %s was granted while its budget was used up", "task_id")
    return found_in_tasks(wrong, "budget_ignored", detail)
