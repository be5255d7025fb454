"""How often attempts fail, by class of error, and what that predicts."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from relaymesh.pipeline.gold.formulas import p_drop, share
from relaymesh.pipeline.schema.gold import FAILURE_RATES
from relaymesh.pipeline.silver.mailbox_settings import CONTRACT, contract_default, contract_retries

__all__ = ["failure_rates"]

_MAILBOX = ["partition", "namespace", "mailbox"]
_CLASS = [*_MAILBOX, "code"]


def failure_rates(messages: DataFrame, attempts: DataFrame, agents: DataFrame) -> DataFrame:
    """One row per mailbox and class of error that occurred, and one (`*`) for all classes together."""
    counted = attempts.filter(f.col("burned") & (f.col("outcome") != "leased"))
    totals = counted.groupBy(*_MAILBOX).agg(f.count("*").alias("attempts"))
    settled = messages.filter((f.col("final_state") != "pending") & (f.col("attempts") > 0))
    tried = settled.groupBy(*_MAILBOX).agg(f.count("*").alias("messages"))
    classes = _failures(counted).join(_losses(settled), _CLASS, "full").na.fill(0)
    limited = classes.join(_limits(agents), ["partition", "mailbox"], "left").withColumn(
        "retries_allowed", _allowed()
    )
    everything = (
        limited.groupBy(*_MAILBOX)
        .agg(
            *[f.sum(name).alias(name) for name in ("failures", "retried", "dead", "dropped")],
            f.max("retries_allowed").alias("retries_allowed"),
        )
        .withColumn("code", f.lit("*"))
    )
    rows = limited.unionByName(everything, allowMissingColumns=True)
    all_failures = everything.select(*_MAILBOX, f.col("failures").alias("all_failures"))
    p_fail = share(f.col("failures"), f.col("attempts"))
    return (
        rows.join(totals, _MAILBOX, "left")
        .join(tried, _MAILBOX, "left")
        .join(all_failures, _MAILBOX)
        .withColumns(
            {
                "share_of_failures": share(f.col("failures"), f.col("all_failures")),
                "retry_rate": share(f.col("retried"), f.col("attempts")),
                "p_fail": p_fail,
                "p_drop_predicted": p_drop(p_fail, f.col("retries_allowed")),
                "p_drop_observed": share(f.col("dead") + f.col("dropped"), f.col("messages")),
            }
        )
        .to(FAILURE_RATES)
    )


def _failures(counted: DataFrame) -> DataFrame:
    return (
        counted.filter("failed")
        .groupBy(*_MAILBOX, f.coalesce("code", f.lit("unknown")).alias("code"))
        .agg(
            f.count("*").alias("failures"),
            f.count_if(f.col("outcome").isin("nack", "lease_expired", "reclaimed")).alias("retried"),
        )
    )


def _losses(settled: DataFrame) -> DataFrame:
    """Messages that ended badly after an attempt, by the class of their last error."""
    chosen = f.col("code").isin("dropped", "unsubscribed", "ttl_expired")
    bad = settled.filter(f.col("final_state").isin("dead", "dropped") & f.col("code").isNotNull() & ~chosen)
    return bad.groupBy(*_CLASS).agg(
        f.count_if(f.col("final_state") == "dead").alias("dead"),
        f.count_if(f.col("final_state") == "dropped").alias("dropped"),
    )


def _limits(agents: DataFrame) -> DataFrame:
    given = f.from_json("settings", f"max_retries int, contract {CONTRACT}")
    return agents.withColumn("given", given).select(
        "partition",
        f.col("address").alias("mailbox"),
        f.col("given.max_retries").alias("mailbox_retries"),
        f.col("given.contract").alias("contract"),
    )


def _allowed() -> Column:
    """As `kernel.contract.retry_limit`, for a message that asks for nothing itself."""
    rule = contract_retries(f.col("contract"), f.col("code"))
    default = contract_default(f.col("contract"), f.col("code"))
    asked = f.coalesce("mailbox_retries", rule)
    return f.when(rule == 0, 0).when(default, asked).otherwise(f.least(asked, rule))
