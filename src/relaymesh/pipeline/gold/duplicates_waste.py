"""Work done twice, and work that could not succeed."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from relaymesh.pipeline.gold.formulas import share
from relaymesh.pipeline.schema.gold import DUPLICATES_WASTE
from relaymesh.pipeline.silver.mailbox_settings import default_retries
from relaymesh.pipeline.silver.operations import KEY

__all__ = ["duplicates_waste"]


def duplicates_waste(attempts: DataFrame) -> DataFrame:
    """Per mailbox and day: redeliveries, attempts after what no retry can cure, time under lease lost."""
    before = Window.partitionBy(*KEY).orderBy("sequence").rowsBetween(Window.unboundedPreceding, -1)
    final = f.col("failed") & (default_retries(f.col("code")) == 0)
    last = f.lag("outcome").over(Window.partitionBy(*KEY).orderBy("sequence"))
    seen = attempts.withColumn("hopeless", f.coalesce(f.max(final).over(before), f.lit(False))).withColumn(
        "last", last
    )
    lost = f.when(f.col("outcome") != "acked", f.col("held_ms")).otherwise(0)
    return (
        seen.groupBy("partition", "namespace", "mailbox", f.col("granted_date").alias("day"))
        .agg(
            f.count("*").alias("deliveries"),
            f.count_if(f.col("delivery") > 1).alias("redeliveries"),
            f.count_if(f.col("last").isin("lease_expired", "reclaimed")).alias("after_silence"),
            f.count_if(~f.col("burned")).alias("given_back"),
            f.count_if(f.col("hopeless")).alias("wasted_attempts"),
            f.coalesce(f.sum("held_ms"), f.lit(0)).alias("lease_ms"),
            f.coalesce(f.sum(lost), f.lit(0)).alias("wasted_lease_ms"),
        )
        .withColumn("wasted_share", share(f.col("wasted_attempts"), f.col("deliveries")))
        .withColumn("wasted_lease_share", share(f.col("wasted_lease_ms"), f.col("lease_ms")))
        .to(DUPLICATES_WASTE)
    )
