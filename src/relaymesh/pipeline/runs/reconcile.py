"""Checks the sums: they are counted from bronze's operations and again from the rows of silver.

    accepted = acked + dropped + dead + pending

`accepted` counts entries: a publish counts once for each mailbox it went to, a redrive once more. `dead`
counts dead letters; of these `redriven` went back and `purged` were removed. Refused messages and duplicates
leave no record in the journal, and are in none of these numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from relaymesh.pipeline.bronze.spans import Forgotten

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["begun_after", "reconcile"]

_SETTLED = {"acked": "ACK", "dropped": "DROP", "dead": "DEAD_LETTER"}


def reconcile(
    bronze: DataFrame, messages: DataFrame | None, *, whole: bool
) -> tuple[dict[str, Any], datetime | None]:
    """The numbers, with `balanced`, and the time of the newest event, which the same read of bronze gives.

    `whole` is false when the beginning of a journal was gone before the first run: then some settled messages
    have no known acceptance, and the sums are reported but not judged.
    """
    counted = {
        row.operation: row
        for row in bronze.groupBy("operation")
        .agg(
            f.count("*").alias("events"),
            f.sum("targets").alias("targets"),
            f.unix_micros(f.max("timestamp")).alias("newest"),
        )
        .collect()
    }
    events = {operation: row.events for operation, row in counted.items()}
    published = counted["PUBLISH"].targets or 0 if "PUBLISH" in counted else 0
    told: dict[str, Any] = {
        "accepted": events.get("APPEND", 0) + events.get("REDRIVE", 0) + published,
        **{word: events.get(operation, 0) for word, operation in _SETTLED.items()},
        "redriven": events.get("REDRIVE", 0),
        "purged": events.get("PURGE", 0),
    }
    told["pending"] = told["accepted"] - sum(told[word] for word in _SETTLED)
    told["in_messages"] = None if messages is None else _states(messages)
    told["judged"] = whole
    told["balanced"] = told["pending"] >= 0 and _same(told, told["in_messages"])
    newest = max((row.newest for row in counted.values()), default=None)
    return told, None if newest is None else datetime.fromtimestamp(newest / 1e6, UTC)


def begun_after(bronze: DataFrame, forgotten: Iterable[Forgotten]) -> DataFrame:
    """Without events about messages that began in forgotten days: those are in no table."""
    for each in forgotten:
        before = (f.col("partition") == each.partition) & (f.col("message_sequence") <= each.last)
        bronze = bronze.where(~f.coalesce(before, f.lit(False)))
    return bronze


def _states(messages: DataFrame) -> dict[str, int]:
    rows = messages.groupBy("final_state").agg(f.count("*").alias("rows")).collect()
    states = {row.final_state: row["rows"] for row in rows}
    return {word: states.get(word, 0) for word in (*_SETTLED, "pending")} | {"accepted": sum(states.values())}


def _same(told: Mapping[str, Any], counted: Mapping[str, int] | None) -> bool:
    return counted is None or all(told[word] == count for word, count in counted.items())
