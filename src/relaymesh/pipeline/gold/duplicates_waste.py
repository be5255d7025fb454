"""Work done twice, and work that could not succeed."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from relaymesh.pipeline.gold.formulas import share
from relaymesh.pipeline.schema.gold import DUPLICATES_WASTE
from relaymesh.pipeline.silver.mailbox_settings import default_retries
from relaymesh.pipeline.silver.operations import KEY

__all__ = ["duplicates_waste"]


def duplicates_waste(attempts: DataFrame) -> DataFrame:
    """Per mailbox and day: redeliveries, attempts after what no retry can cure, time under lease lost."""
    nothing = {"hopeless": f.lit(False), "after_silence": f.lit(False)}
    seen = attempts.filter(f.col("delivery") == 1).withColumns(nothing).unionByName(_again(attempts))
    lost = f.when(f.col("outcome") != "acked", f.col("held_ms")).otherwise(0)
    return (
        seen.groupBy("partition", "namespace", "mailbox", f.col("granted_date").alias("day"))
        .agg(
            f.count("*").alias("deliveries"),
            f.count_if(f.col("delivery") > 1).alias("redeliveries"),
            f.count_if(f.col("after_silence")).alias("after_silence"),
            f.count_if(~f.col("burned")).alias("given_back"),
            f.count_if(f.col("hopeless")).alias("wasted_attempts"),
            f.coalesce(f.sum("held_ms"), f.lit(0)).alias("lease_ms"),
            f.coalesce(f.sum(lost), f.lit(0)).alias("wasted_lease_ms"),
        )
        .withColumn("wasted_share", share(f.col("wasted_attempts"), f.col("deliveries")))
        .withColumn("wasted_lease_share", share(f.col("wasted_lease_ms"), f.col("lease_ms")))
        .to(DUPLICATES_WASTE)
    )


def _again(attempts: DataFrame) -> DataFrame:
    """Redeliveries, with the outcomes of the earlier deliveries.

    They are joined with the deliveries that can matter: all three are few, where a window would sort all.
    """
    again = attempts.filter(f.col("delivery") > 1)
    final = (
        attempts.filter(f.col("failed") & (default_retries(f.col("code")) == 0))
        .groupBy(*KEY)
        .agg(f.min("delivery").alias("final_delivery"))
    )
    silent = attempts.filter(f.col("outcome").isin("lease_expired", "reclaimed")).select(
        *KEY, (f.col("delivery") + 1).alias("delivery"), f.lit(True).alias("silent")
    )
    hopeless = f.coalesce(f.col("final_delivery") < f.col("delivery"), f.lit(False))
    return (
        again.join(final, [*KEY], "left")
        .join(silent, [*KEY, "delivery"], "left")
        .withColumns({"hopeless": hopeless, "after_silence": f.coalesce("silent", f.lit(False))})
        .select(*attempts.columns, "hopeless", "after_silence")
    )
