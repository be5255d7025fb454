"""The result of a task is made from the results of its last steps: their hashes must agree.

Of one last step it is the result itself; of several an object, of a step with items a list. Their
`parts_hash` follows from the hashes of the parts. Not judged: several last steps of which one has items,
steps that went on as other steps, and failures that the plan catches, whose text the mesh makes up.
"""

from __future__ import annotations

from hashlib import sha256

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from relaymesh.pipeline.audit.task_rules import found_in_tasks
from relaymesh.pipeline.silver.operations import is_one
from relaymesh.pipeline.silver.plans import STEP, TASK, submitted_tasks

__all__ = ["result_violations"]

_NULL = sha256(b"null").hexdigest()


def result_violations(bronze: DataFrame, steps: DataFrame) -> DataFrame:
    """Tasks whose result is not what their last steps returned."""
    ended = bronze.filter(is_one("TASK_ENDED") & (f.col("status") == "SUCCESS")).select(
        *TASK, "sequence", "timestamp", "result_hash", "parts_hash"
    )
    told = ended.join(_expected(bronze, steps), TASK)
    whole = f.col("whole") != f.col("result_hash")  # null, and not judged, where one is not known
    parts = f.col("parts").isNotNull() & ~f.col("parts").eqNullSafe(f.col("parts_hash"))
    detail = f.format_string("the result of task %s is not what its last steps returned", "task_id")
    return found_in_tasks(told.filter(f.coalesce(whole, f.lit(False)) | parts), "result_differs", detail)


def _expected(bronze: DataFrame, steps: DataFrame) -> DataFrame:
    """(task, whole, parts): hashes as they should be; null where they are not known."""
    values = steps.select(*STEP, "kind", _own(f.col("kind").isin("fan_out", "group")).alias("value")).join(
        _lists(steps), STEP, "left"
    )
    leaves = _last_steps(bronze).join(values, STEP)
    gathered = leaves.groupBy(*TASK).agg(
        f.count("*").alias("leaves"),
        f.count("value").alias("known"),
        f.max("value").alias("value"),
        f.max("list").alias("list"),
        _joined(f.struct("step", "value")).alias("object"),
    )
    one = f.col("leaves") == 1
    return gathered.select(
        *TASK,
        f.when(one, f.col("value")).alias("whole"),
        f.when(one, f.col("list")).when(f.col("known") == f.col("leaves"), f.col("object")).alias("parts"),
    )


def _own(unknown: Column) -> Column:
    """The hash of a step's own result; null where it is not known."""
    said = f.col("result_hash")
    null = (f.col("status") == "SKIPPED") | f.coalesce(f.col("ended_by") == "ACK", f.lit(False))
    return (
        f.when(unknown, None)
        .when(f.col("status") == "SUCCESS", f.coalesce(said, f.when(null, _NULL)))
        .when(null, _NULL)
    )


def _lists(steps: DataFrame) -> DataFrame:
    """Of each step with items: the hash of the hashes of their results, if all are known."""
    fans = steps.filter((f.col("kind") == "fan_out") & (f.col("status") == "SUCCESS")).select(*STEP)
    parts = steps.filter(f.col("parent").isNotNull() & (f.col("kind") != "undo"))
    items = parts.select(
        *TASK,
        f.col("parent").alias("step"),
        f.col("step").alias("item"),
        _own(f.col("kind").isin("fan_out", "group")).alias("value"),
    )
    gathered = (
        fans.join(items, STEP, "left")
        .groupBy(*STEP)
        .agg(
            f.count("item").alias("items"),
            f.count("value").alias("known"),
            _joined(f.struct("item", "value")).alias("list"),
        )
    )
    return gathered.filter(f.col("items") == f.col("known")).select(*STEP, "list")


def _joined(part: Column) -> Column:
    """`parts_hash` of the values of these parts, in their order."""
    hashes = f.transform(
        f.array_sort(f.collect_list(part)), lambda each: f.coalesce(each["value"], f.lit(""))
    )
    return f.sha2(f.array_join(hashes, ""), 256)


def _last_steps(bronze: DataFrame) -> DataFrame:
    """The steps that no other needs, as the kernel chooses them: handlers only if there are no others."""
    planned = submitted_tasks(bronze).select(*TASK, f.posexplode("planned").alias("step", "given"))
    needed = planned.select(*TASK, f.explode("given.needs").alias("step"))
    handlers = planned.select(*TASK, f.col("given.handler").alias("step"), f.lit(True).alias("handles"))
    ends = planned.select(*STEP).join(needed, STEP, "left_anti").join(handlers.distinct(), STEP, "left")
    told = ends.withColumn("handles", f.coalesce("handles", f.lit(False)))
    some = told.groupBy(*TASK).agg(f.min("handles").alias("only_handlers"))
    return told.join(some, TASK).filter(f.col("only_handlers") | ~f.col("handles")).select(*STEP)
