"""Of each task that ended, the steps that decided how long it took.

The path is found from its end: the step that ended last, then the one of its needs that ended last, and so on
to a step that needs none. Between the end of one and the end of the next no other step held the task up.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from relaymesh.pipeline.gold.formulas import ms_between, share
from relaymesh.pipeline.schema.gold import CRITICAL_PATHS

__all__ = ["critical_paths"]

_TASK = ["partition", "task_id"]
_NODE = ("step", "after_step", "ended_sequence")


def critical_paths(tasks: DataFrame, steps: DataFrame) -> DataFrame:
    """Steps that ended with the task held nothing up: they are on no path."""
    over = tasks.filter(f.col("ended_at").isNotNull()).select(
        *_TASK, "submitted_at", f.col("latency_ms").alias("task_ms")
    )
    own = steps.filter(f.col("ended_by") != "TASK_ENDED").join(over, _TASK)
    on_path = (
        own.filter(f.col("parent").isNull() | (f.col("kind") == "undo"))
        .groupBy(*_TASK)
        .agg(f.collect_list(f.struct(*_NODE)).alias("nodes"))
        .select(*_TASK, f.explode(_walked(f.col("nodes"))).alias("step"))
    )
    order = Window.partitionBy(*_TASK).orderBy("step")
    begun = f.coalesce(f.lag("ended_at").over(order), "submitted_at")
    return (
        on_path.join(own, [*_TASK, "step"])
        .join(_last_items(own), [*_TASK, "step"], "left")
        .withColumn("place", f.row_number().over(order))
        .withColumn("begun_at", begun)
        .withColumns(
            {
                "day": f.col("submitted_date"),
                "agent": f.coalesce("item.agent", "agent"),
                "last_item": f.col("item.name"),
                "path_ms": ms_between("begun_at", "ended_at"),
                "waited_ms": f.coalesce("item.waited_ms", "waited_ms"),
                "ran_ms": f.coalesce("item.ran_ms", "ran_ms"),
                "latency_ms": f.col("task_ms"),
            }
        )
        .withColumn("path_share", share(f.col("path_ms"), f.col("latency_ms")))
        .to(CRITICAL_PATHS)
    )


def _walked(nodes: Column) -> Column:
    """The numbers of the steps on the path.

    Every step stands behind what it needs, so one pass over the steps, the highest number first, meets each
    step of the path after the one that leads to it: no recursion.
    """
    ends = f.transform(
        nodes, lambda node: f.struct(node["ended_sequence"].alias("at"), node["step"].alias("step"))
    )
    last = f.array_max(ends)["step"]
    start = f.struct(last.alias("next"), f.array().cast("array<int>").alias("path"))

    def walk(state: Column, node: Column) -> Column:
        found = f.struct(
            node["after_step"].alias("next"), f.concat(state["path"], f.array(node["step"])).alias("path")
        )
        return f.when(node["step"] == state["next"], found).otherwise(state)

    return f.aggregate(f.reverse(f.array_sort(nodes)), start, walk)["path"]


def _last_items(own: DataFrame) -> DataFrame:
    """Of each step with items or a group, the part that ended last: the step ended with it."""
    return (
        own.filter(f.col("parent").isNotNull() & (f.col("kind") != "undo"))
        .groupBy(*_TASK, f.col("parent").alias("step"))
        .agg(
            f.max_by(f.struct("name", "agent", "waited_ms", "ran_ms"), "ended_sequence").alias("item"),
        )
    )
