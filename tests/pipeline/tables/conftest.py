"""All golden journals through all tables, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.pipeline.tables.golden import journals
from tests.pipeline.tables.journal import bronze

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from relaymesh.pipeline.catalog import Table

Rows = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="package")
def golden(spark: SparkSession) -> dict[str, DataFrame]:
    """Every table of the catalog, each made from the rows of those before it."""
    from relaymesh.pipeline.catalog import build_all

    def keep(table: Table, built: DataFrame) -> DataFrame:
        return spark.createDataFrame(built.collect(), built.schema)

    return build_all(bronze(spark, *journals()), keep)


@pytest.fixture(scope="package")
def rows(golden: dict[str, DataFrame]) -> Rows:
    """`rows(table, partition, mailbox=…)`: what it says of one journal, without what it leaves empty."""
    kept: dict[str, list[dict[str, Any]]] = {}

    def find(table: str, partition: int | None, **wanted: object) -> list[dict[str, Any]]:
        if table not in kept:
            kept[table] = [row.asDict() for row in golden[table].collect()]
        found = [row for row in kept[table] if row.get("partition") == partition]
        found = [row for row in found if all(row[name] == value for name, value in wanted.items())]
        return [{name: value for name, value in row.items() if value is not None} for row in found]

    return find
