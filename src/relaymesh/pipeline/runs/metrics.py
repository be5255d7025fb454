"""`pipeline_metrics`: what every run measured and expected, as a table like the others."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql.types import (
    BooleanType,
    DoubleType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from relaymesh.pipeline.runs.expectations import Measured

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["METRICS", "NAME", "VERSION", "metrics_frame"]

NAME = "pipeline_metrics"
VERSION = 1

METRICS = StructType(
    [
        StructField("run_id", StringType(), False, {"comment": "the run that measured it"}),
        StructField("measured_at", TimestampType(), False, {"comment": "when the run checked its tables"}),
        StructField("table_name", StringType(), False, {"comment": "table it is about"}),
        StructField("metric", StringType(), False, {"comment": "what was measured; of the audit, the rule"}),
        StructField("column_name", StringType(), True, {"comment": "column it is about, if any"}),
        StructField("value", DoubleType(), False, {"comment": "the number"}),
        StructField("most", DoubleType(), True, {"comment": "the largest it may be; null: nothing expected"}),
        StructField("severity", StringType(), False, {"comment": "info, warning or error"}),
        StructField("passed", BooleanType(), False, {"comment": "whether it was met"}),
    ]
)


def metrics_frame(spark: SparkSession, run_id: str, at: datetime, measured: Iterable[Measured]) -> DataFrame:
    rows = [
        (
            run_id,
            at,
            each.table,
            each.metric,
            each.column,
            float(each.value),
            None if each.most is None else float(each.most),
            each.severity,
            each.passed,
        )
        for each in measured
    ]
    return spark.createDataFrame(rows, METRICS)
