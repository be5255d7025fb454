"""Which steps a workflow's time goes into."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from relaymesh.pipeline.gold.formulas import share
from relaymesh.pipeline.schema.gold import CRITICAL_STEPS

__all__ = ["critical_steps"]

_WORKFLOW = ["partition", "namespace", "workflow"]
_PERCENTS = (50, 95)
_ACCURACY = 10_000


def critical_steps(critical_paths: DataFrame) -> DataFrame:
    """The parts of a step in the critical paths of all tasks of its workflow."""
    whole = (
        critical_paths.filter("place = 1")
        .groupBy(*_WORKFLOW)
        .agg(f.count("*").alias("tasks"), f.sum("latency_ms").alias("all_ms"))
    )
    summed = critical_paths.groupBy(*_WORKFLOW, f.col("name").alias("step")).agg(
        f.count("*").alias("on_path"),
        f.sum("path_ms").alias("path_ms"),
        f.sum("waited_ms").alias("waited_ms"),
        f.sum("ran_ms").alias("ran_ms"),
        f.percentile_approx("path_ms", [percent / 100 for percent in _PERCENTS], _ACCURACY).alias("part"),
    )
    each = {
        f"path_p{percent}_ms": f.col("part")[index].cast("double") for index, percent in enumerate(_PERCENTS)
    }
    return (
        summed.join(whole, _WORKFLOW)
        .withColumn("path_share", share(f.col("path_ms"), f.col("all_ms")))
        .withColumns(each)
        .to(CRITICAL_STEPS)
    )
