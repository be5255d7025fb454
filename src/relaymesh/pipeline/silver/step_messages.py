"""Which messages are the work of which step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from relaymesh.pipeline.silver.operations import is_one
from relaymesh.pipeline.silver.plans import STEP

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

__all__ = ["step_messages"]

_ROOTS = StructType(
    [
        StructField("partition", IntegerType()),
        StructField("mailbox", StringType()),
        StructField("message_sequence", LongType()),
        StructField("root_mailbox", StringType()),
        StructField("root_sequence", LongType()),
        StructField("sent_sequence", LongType()),
        StructField("sent_ms", LongType()),
    ]
)


def step_messages(bronze: DataFrame) -> DataFrame:
    """(task, step, message, sent_sequence, sent_at, redriven): one row per message.

    STEP_SENT names the message. A redrive of its dead letter makes another one, and so on: what an envelope
    says proves nothing.
    """
    sent = bronze.filter(is_one("STEP_SENT")).select(
        *STEP,
        "mailbox",
        "message_sequence",
        f.col("sequence").alias("sent_sequence"),
        f.col("timestamp").alias("sent_at"),
        f.lit(False).alias("redriven"),
    )
    roots = sent.select(
        *STEP, f.col("mailbox").alias("root_mailbox"), f.col("message_sequence").alias("root_sequence")
    )
    again = (
        _redriven(bronze)
        .join(roots, ["partition", "root_mailbox", "root_sequence"])
        .withColumn("sent_at", f.timestamp_millis("sent_ms"))
        .withColumn("redriven", f.lit(True))
    )
    return sent.unionByName(again.select(*sent.columns))


def _redriven(bronze: DataFrame) -> DataFrame:
    """Every redriven message, with the message that died first: chains of redrives are followed in Python."""
    died = bronze.filter(is_one("DEAD_LETTER")).select(
        "partition",
        f.col("mailbox").alias("source_mailbox"),
        f.col("sequence").alias("dead_sequence"),
        f.col("message_sequence").alias("old_sequence"),
    )
    pairs = (
        bronze.filter(is_one("REDRIVE"))
        .select(
            "partition",
            "source_mailbox",
            "dead_sequence",
            "mailbox",
            "message_sequence",
            f.unix_millis("timestamp").alias("sent_ms"),
        )
        .join(died, ["partition", "source_mailbox", "dead_sequence"])
    )
    return pairs.groupBy("partition").applyInArrow(_follow, _ROOTS)


def _follow(pairs: pa.Table) -> pa.Table:
    """Runs in Python beside the executors: of each redriven message the first of its chain."""
    import pyarrow as pa  # noqa: PLC0415 - the driver plans without it
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415

    roots: dict[tuple[str, int], tuple[str, int]] = {}
    rows: list[dict[str, Any]] = []
    for pair in sorted(pairs.to_pylist(), key=lambda each: each["message_sequence"]):
        old = (pair["source_mailbox"], pair["old_sequence"])
        root = roots[pair["mailbox"], pair["message_sequence"]] = roots.get(old, old)
        rows.append(
            {
                "partition": pair["partition"],
                "mailbox": pair["mailbox"],
                "message_sequence": pair["message_sequence"],
                "root_mailbox": root[0],
                "root_sequence": root[1],
                "sent_sequence": pair["message_sequence"],  # a redrive is its own acceptance
                "sent_ms": pair["sent_ms"],
            }
        )
    return pa.Table.from_pylist(rows, schema=to_arrow_schema(_ROOTS))
