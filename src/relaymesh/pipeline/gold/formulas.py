"""The seeds' formulas as columns, in one place so that they can be checked by hand."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

__all__ = ["buffer_needed", "ms_between", "p_drop", "recurrence", "share", "workers_required"]


def workers_required(lambda_p95: Column, mu_p50: Column, queue_peak: Column, drain_s: Column) -> Column:
    """W >= ceil(lambda_p95 / mu_worker_p50); null where no worker's rate is known.

    Checked against the queue that was seen: not more workers than there ever were messages at once, and
    enough to work off that queue in `drain_s`.
    """
    formula = f.least(f.ceil(lambda_p95 / mu_p50), queue_peak)
    return f.when(mu_p50 > 0, f.greatest(formula, f.ceil(queue_peak / (mu_p50 * drain_s)), f.lit(1)))


def buffer_needed(lambda_peak: Column, mu_peak: Column, burst_s: Column) -> Column:
    """ceil((lambda_peak - mu_peak) * T_burst) messages; none when what comes in also goes out."""
    return f.ceil(f.greatest(lambda_peak - mu_peak, f.lit(0.0)) * burst_s)


def p_drop(p_fail: Column, retries: Column) -> Column:
    """p_fail^(r + 1): every one of r + 1 independent attempts fails."""
    return f.pow(p_fail, retries + 1)


def recurrence(flows: DataFrame, by: list[str], step: str) -> DataFrame:
    """Add `backlog` to rows of `arrivals` and `completions`: B(t+1) = max(0, B(t) + I(t) - C(t)), from B = 0.

    Without a loop: with S the running sum of I - C, B is S minus the lowest S so far (or 0 if that is lower).
    Steps in which nothing happens change nothing and need no row.
    """
    so_far = Window.partitionBy(*by).orderBy(step).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    summed = flows.withColumn("net", f.sum(f.col("arrivals") - f.col("completions")).over(so_far))
    lowest = f.least(f.min("net").over(so_far), f.lit(0))
    return summed.withColumn("backlog", f.col("net") - lowest).drop("net")


def share(part: Column, whole: Column) -> Column:
    """part / whole; null of nothing."""
    return f.when(whole > 0, part / whole)


def ms_between(begin: str, end: str) -> Column:
    return f.unix_millis(end) - f.unix_millis(begin)
