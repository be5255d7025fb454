"""How many workers a mailbox needs, and how much room."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from relaymesh.pipeline.gold.backlog import flows
from relaymesh.pipeline.gold.formulas import buffer_needed, workers_required
from relaymesh.pipeline.schema.gold import SIZING

__all__ = ["BURST_S", "sizing"]

BURST_S = 10.0
"""T_burst: how long a burst the buffer should take up. Raising it asks for more memory, in proportion."""

_MAILBOX = ["partition", "namespace", "mailbox"]
_HOLDER = [*_MAILBOX, "holder"]


def sizing(
    messages: DataFrame, attempts: DataFrame, agents: DataFrame, burst_s: float = BURST_S
) -> DataFrame:
    """W = ceil(lambda_p95 / mu_worker_p50) and a buffer of (lambda_peak - mu_peak) * T_burst, per mailbox."""
    capacities = agents.select("partition", f.col("address").alias("mailbox"), "capacity", "capacity_bytes")
    sized = (
        _arrivals(messages)
        .join(_workers(attempts), _MAILBOX, "left")
        .join(capacities, ["partition", "mailbox"], "left")
        .withColumn("burst_s", f.lit(burst_s))
        .withColumn("workers_required", workers_required(f.col("lambda_p95"), f.col("mu_worker_p50")))
        .withColumn(
            "buffer_messages", buffer_needed(f.col("lambda_peak"), f.col("mu_peak"), f.col("burst_s"))
        )
    )
    return (
        sized.withColumn("buffer_bytes", f.ceil(f.col("buffer_messages") * f.col("mean_bytes")))
        .withColumn(
            "fits",
            (f.col("buffer_messages") <= f.col("capacity"))
            & (f.col("buffer_bytes") <= f.col("capacity_bytes")),
        )
        .to(SIZING)
    )


def _arrivals(messages: DataFrame) -> DataFrame:
    """Rates per second over the whole span: seconds without a message count as seconds with none."""
    spans = messages.groupBy(*_MAILBOX).agg(
        f.min("accepted_at").alias("first_at"),
        f.max("accepted_at").alias("last_at"),
        f.count("*").alias("count"),
        f.avg("content_bytes").alias("mean_bytes"),
    )
    seconds = f.unix_seconds("last_at") - f.unix_seconds("first_at") + 1
    spans = spans.withColumn("span_s", seconds).withColumn("lambda_mean", f.col("count") / f.col("span_s"))
    busy = flows(messages)
    arriving = busy.filter(f.col("arrivals") > 0)
    counts = arriving.groupBy(*_MAILBOX).agg(f.count("*").alias("busy_s"))
    idle = spans.join(counts, _MAILBOX).select(
        *_MAILBOX,
        f.lit(0).cast("long").alias("arrivals"),
        (f.col("span_s") - f.col("busy_s")).alias("seconds"),
    )
    weighted = arriving.select(*_MAILBOX, "arrivals", f.lit(1).cast("long").alias("seconds")).union(
        idle.filter("seconds > 0")
    )
    rates = weighted.groupBy(*_MAILBOX).agg(
        f.percentile("arrivals", 0.95, f.col("seconds")).alias("lambda_p95"),
        f.max("arrivals").cast("double").alias("lambda_peak"),
    )
    peaks = busy.groupBy(*_MAILBOX).agg(f.max("completions").cast("double").alias("mu_peak"))
    return spans.join(rates, _MAILBOX).join(peaks, _MAILBOX)


def _workers(attempts: DataFrame) -> DataFrame:
    """What one worker gets done a second while it holds anything.

    Leases of one holder overlap when it takes several at once: its busy time is their union, so a batch of 35
    done in a second is 35 a second, and not 35 leases of a second each.
    """
    # Leases granted at one moment are one stretch, the longest of them: there is less to sort.
    stretches = (
        attempts.filter(f.col("ended_at").isNotNull())
        .groupBy(*_HOLDER, "granted_at")
        .agg(f.max("ended_at").alias("ended_at"), f.count_if(f.col("outcome") == "acked").alias("acked"))
    )
    before = Window.partitionBy(*_HOLDER).orderBy("granted_at").rowsBetween(Window.unboundedPreceding, -1)
    begin = f.greatest(f.unix_millis("granted_at"), f.coalesce("busy_until", f.lit(0)))
    new = f.greatest(f.unix_millis("ended_at") - begin, f.lit(0))
    holders = (
        stretches.withColumn("busy_until", f.max(f.unix_millis("ended_at")).over(before))
        .withColumn("busy", new)
        .groupBy(*_HOLDER)
        .agg(f.sum("busy").alias("busy_ms"), f.sum("acked").alias("acked"))
        .filter("acked > 0")
    )
    # Mesh time has milliseconds: less than one is counted as one.
    rate = f.col("acked") * 1000 / f.greatest("busy_ms", f.lit(1))
    return holders.groupBy(*_MAILBOX).agg(
        f.count("*").alias("holders"), f.percentile(rate, 0.5).alias("mu_worker_p50")
    )
