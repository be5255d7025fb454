"""What each mailbox's settings were at each moment."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from relaymesh.kernel.contract import DEFAULT_CONTRACT, OTHER
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.pipeline.silver.operations import is_one
from relaymesh.pipeline.silver.routes import END

__all__ = ["CONTRACT", "contract_default", "contract_retries", "default_retries", "settings_over_time"]

CONTRACT = "map<string, struct<retries: int, exit: string, alert: boolean, default: boolean>>"
"""A failure contract as the settings' JSON has it."""

_DEFAULTS = MailboxSettings()
_FIELDS = (
    "capacity bigint, capacity_bytes bigint, lease_ms bigint, max_retries int, ordered boolean,"
    " delivery_semantics string, halt_on_dead_letter boolean,"
    f" contract {CONTRACT}"
)


def settings_over_time(bronze: DataFrame) -> DataFrame:
    """(partition, mailbox, since, until, capacity, …): in force for events with since < sequence < until."""
    by_mailbox = Window.partitionBy("partition", "mailbox").orderBy("sequence")
    said = bronze.filter(is_one("OPEN_MAILBOX", "SUBSCRIBE", "UNSUBSCRIBE")).select(
        "partition", "mailbox", "sequence", "timestamp", "operation", "pattern", "settings"
    )
    parsed = said.withColumn("until", f.coalesce(f.lead("sequence").over(by_mailbox), f.lit(END))).filter(
        is_one("OPEN_MAILBOX", "SUBSCRIBE")
    )
    given = f.from_json("settings", _FIELDS)
    return parsed.withColumn("given", given).select(
        "partition",
        "mailbox",
        f.col("sequence").alias("since"),
        "until",
        "settings",
        f.coalesce("given.capacity", f.lit(_DEFAULTS.capacity)).alias("capacity"),
        f.coalesce("given.capacity_bytes", f.lit(_DEFAULTS.capacity_bytes)).alias("capacity_bytes"),
        f.col("given.max_retries").alias("mailbox_retries"),
        f.coalesce("given.ordered", f.lit(_DEFAULTS.ordered)).alias("ordered"),
        f.coalesce("given.delivery_semantics", f.lit(_DEFAULTS.delivery_semantics)).alias("semantics"),
        f.col("given.contract").alias("contract"),
    )


def default_retries(code: Column) -> Column:
    """Retries the default contract gives to an error of this code."""
    return f.coalesce(_default()[f.lower(code)], f.lit(DEFAULT_CONTRACT[OTHER].retries))


def contract_retries(contract: Column, code: Column) -> Column:
    """Retries of the row `kernel.contract.rule_for` finds: own, default, own `other`, default `other`."""
    return f.coalesce(
        contract[code]["retries"],
        contract[f.lower(code)]["retries"],
        contract[f.upper(code)]["retries"],
        _default()[f.lower(code)],
        contract[OTHER]["retries"],
        f.lit(DEFAULT_CONTRACT[OTHER].retries),
    )


def contract_default(contract: Column, code: Column) -> Column:
    """Whether `max_retries` takes the place of that row's retries; if not, it may only be smaller."""
    return (
        f.when(contract[code].isNotNull(), f.coalesce(contract[code]["default"], f.lit(False)))
        .when(_default()[code].isNotNull(), f.lit(True))
        .when(contract[OTHER].isNotNull(), f.coalesce(contract[OTHER]["default"], f.lit(False)))
        .otherwise(f.lit(True))
    )


def _default() -> Column:
    pairs = [f.lit(part) for name, rule in DEFAULT_CONTRACT.items() for part in (name, rule.retries)]
    return f.create_map(*pairs)
