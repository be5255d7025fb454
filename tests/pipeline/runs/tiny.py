"""A catalog of three tables, so that a run is quick: what runs do does not depend on which tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StructType


@dataclass(frozen=True, kw_only=True)
class Tiny:
    """A table, with the names of the catalog's own."""

    name: str
    layer: str
    schema: StructType
    inputs: tuple[str, ...]
    build: Callable[..., DataFrame]
    keys: tuple[str, ...]
    partition_by: tuple[str, ...] = ()
    version: int = 1


def columns(ddl: str) -> StructType:
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    return schema


def entries(bronze: DataFrame) -> DataFrame:
    """One row for each message and the events about it, kept by the day it came in."""
    about = bronze.where("message_sequence is not null")
    return about.groupBy("partition", "message_sequence").agg(
        f.min("event_date").alias("day"), f.count("*").alias("events"), f.max("sequence").alias("last")
    )


def operations(bronze: DataFrame) -> DataFrame:
    return bronze.groupBy("operation").agg(f.count("*").alias("events"))


def no_violations(entries: DataFrame) -> DataFrame:
    return entries.where("events < 0").select(f.lit("never").alias("rule"), "message_sequence")


def violations(entries: DataFrame) -> DataFrame:
    return entries.limit(3).select(f.lit("planted").alias("rule"), "message_sequence")


def tiny_catalog(audit: Callable[..., DataFrame] = no_violations) -> list[Tiny]:
    return [
        Tiny(
            name="entries",
            layer="silver",
            schema=columns("partition int, message_sequence long, day date, events long, last long"),
            inputs=("bronze",),
            build=entries,
            keys=("partition", "message_sequence"),
            partition_by=("day",),
        ),
        Tiny(
            name="operations",
            layer="gold",
            schema=columns("operation string, events long"),
            inputs=("bronze",),
            build=operations,
            keys=("operation",),
        ),
        Tiny(
            name="audit_violations",
            layer="audit",
            schema=columns("rule string, message_sequence long"),
            inputs=("entries",),
            build=audit,
            keys=(),
        ),
    ]
