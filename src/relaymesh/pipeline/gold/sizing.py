"""How many workers a mailbox needs, and how much room."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from relaymesh.pipeline.gold.backlog import flows
from relaymesh.pipeline.gold.formulas import buffer_needed, recurrence, workers_required
from relaymesh.pipeline.schema.gold import SIZING

__all__ = ["BURST_S", "DRAIN_S", "sizing"]

BURST_S = 10.0
"""T_burst: the length of a burst that the buffer should absorb. Raising it needs more memory, in proportion.
"""

DRAIN_S = 60.0
"""How soon the longest observed queue should be worked off. Raising it needs fewer workers."""

_MAILBOX = ["partition", "namespace", "mailbox"]
_HOLDER = [*_MAILBOX, "holder"]


def sizing(
    messages: DataFrame,
    attempts: DataFrame,
    agents: DataFrame,
    burst_s: float = BURST_S,
    drain_s: float = DRAIN_S,
) -> DataFrame:
    """W = ceil(lambda_p95 / mu_worker_p50), checked against the queue, and a buffer for a burst, per mailbox.

    The buffer is (lambda_peak - mu_peak) * T_burst.
    """
    capacities = agents.select("partition", f.col("address").alias("mailbox"), "capacity", "capacity_bytes")
    sized = (
        _arrivals(messages)
        .join(_queues(messages), _MAILBOX)
        .join(_workers(attempts), _MAILBOX, "left")
        .join(capacities, ["partition", "mailbox"], "left")
        .withColumn("burst_s", f.lit(burst_s))
        .withColumn("drain_s", f.lit(drain_s))
        .withColumn(
            "workers_required",
            workers_required(
                f.col("lambda_p95"), f.col("mu_worker_p50"), f.col("queue_peak"), f.col("drain_s")
            ),
        )
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
    """Rates per second. The mean is over the whole span; p95 is over the seconds in which messages came.

    A mailbox with one burst an hour is quiet in 99 of 100 seconds, but the workers must handle the burst.
    """
    spans = messages.groupBy(*_MAILBOX).agg(
        f.min("accepted_at").alias("first_at"),
        f.max("accepted_at").alias("last_at"),
        f.count("*").alias("count"),
        f.avg("content_bytes").alias("mean_bytes"),
    )
    seconds = f.unix_seconds("last_at") - f.unix_seconds("first_at") + 1
    spans = spans.withColumn("span_s", seconds).withColumn("lambda_mean", f.col("count") / f.col("span_s"))
    came = f.when(f.col("arrivals") > 0, f.col("arrivals"))
    rates = (
        flows(messages)
        .groupBy(*_MAILBOX)
        .agg(
            f.count(came).alias("busy_s"),
            f.percentile(came, 0.95).alias("lambda_p95"),
            f.max("arrivals").cast("double").alias("lambda_peak"),
            f.max("completions").cast("double").alias("mu_peak"),
        )
    )
    return spans.join(rates, _MAILBOX)


def _queues(messages: DataFrame) -> DataFrame:
    """The most messages that were due and unsettled at once. A delayed message needs no worker yet."""
    due = messages.withColumn("accepted_at", f.least("due_at", f.coalesce("settled_at", "due_at")))
    seconds = recurrence(flows(due), _MAILBOX, "second")
    # A second's arrivals count before its completions: what came and went within it was there.
    held = f.greatest(f.col("backlog") + f.col("completions"), f.col("arrivals"))
    return seconds.groupBy(*_MAILBOX).agg(f.max(held).alias("queue_peak"))


def _workers(attempts: DataFrame) -> DataFrame:
    """How many messages one worker settles a second while it holds any.

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
