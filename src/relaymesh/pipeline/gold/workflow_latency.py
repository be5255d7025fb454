"""How long tasks and their steps take, by workflow, step and day."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from relaymesh.pipeline.schema.gold import WORKFLOW_LATENCY

__all__ = ["workflow_latency"]

_PERCENTS = (50, 95)
_ACCURACY = 10_000
_TIMES = ("latency", "waited", "ran")
_ROW = ["partition", "namespace", "workflow", "kind", "step", "day"]


def workflow_latency(tasks: DataFrame, steps: DataFrame) -> DataFrame:
    """Percentiles of what ended in SUCCESS; a failure may be fast or slow for other reasons."""
    whole = tasks.select(
        *_ROW[:3],
        f.lit("task").alias("kind"),
        f.lit("*").alias("step"),
        f.col("submitted_date").alias("day"),
        "ended_at",
        "status",
        "latency_ms",
        *[f.lit(None).cast("long").alias(f"{name}_ms") for name in _TIMES[1:]],
    )
    parts = steps.select(
        *_ROW[:3],
        "kind",
        f.col("plan_step").alias("step"),
        f.col("submitted_date").alias("day"),
        "ended_at",
        "status",
        *[f"{name}_ms" for name in _TIMES],
    )
    done = f.col("status") == "SUCCESS"
    summed = (
        whole.unionByName(parts)
        .filter(f.col("ended_at").isNotNull())
        .groupBy(*_ROW)
        .agg(
            f.count("*").alias("ended"),
            f.count_if(done).alias("succeeded"),
            *[
                f.percentile_approx(
                    f.when(done, f.col(f"{name}_ms")), [percent / 100 for percent in _PERCENTS], _ACCURACY
                ).alias(name)
                for name in _TIMES
            ],
            f.max(f.when(done, f.col("latency_ms"))).alias("latency_max_ms"),
        )
    )
    each = {
        f"{name}_p{percent}_ms": f.col(name)[index].cast("double")
        for name in _TIMES
        for index, percent in enumerate(_PERCENTS)
    }
    return summed.withColumns(each).to(WORKFLOW_LATENCY)
