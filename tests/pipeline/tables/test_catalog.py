"""The catalog is whole: every table has its schema, its words, its place; patterns route as in the kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from relaymesh.kernel.address import pattern_matches
from relaymesh.pipeline.catalog import BRONZE, TABLES, Table, table
from relaymesh.pipeline.reference import tables_page
from relaymesh.pipeline.silver.routes import pattern_regex
from tests.pipeline.tables.conftest import Rows
from tests.pipeline.tables.golden import journals
from tests.project.tree import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

each_table = pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)


@each_table
def test_a_table_is_what_its_schema_says(table: Table, golden: dict[str, DataFrame]) -> None:
    def told(schema: StructType) -> list[tuple[object, ...]]:
        return [(field.name, field.dataType, field.metadata) for field in schema]

    assert told(golden[table.name].schema) == told(table.schema)


@each_table
def test_every_column_says_what_it_holds(table: Table) -> None:
    assert [field.name for field in table.schema if not field.metadata.get("comment")] == []
    assert table.description.endswith(".")
    assert {*table.keys, *table.partition_by} <= set(table.schema.fieldNames())


@each_table
def test_the_key_names_a_row(table: Table, golden: dict[str, DataFrame]) -> None:
    made = [tuple(row[name] for name in table.keys) for row in golden[table.name].collect()]
    assert len(set(made)) == len(made)


def test_a_table_stands_after_its_inputs() -> None:
    known = {BRONZE}
    for each in TABLES:
        assert set(each.inputs) <= known
        known.add(each.name)
    assert table("sizing").layer == "gold"
    with pytest.raises(KeyError, match="there is no table 'sizes'"):
        table("sizes")


def test_the_golden_journals_are_sound(rows: Rows) -> None:
    assert [rows("audit_violations", number) for number in range(len(journals()))] == [[]] * len(journals())


def test_the_reference_page_is_current() -> None:
    page = ROOT / "docs" / "reference" / "tables.md"
    assert page.read_text(encoding="utf-8") == tables_page(), (
        "write tables_page() to docs/reference/tables.md"
    )


def test_a_pattern_covers_the_topics_that_the_kernel_says(spark: SparkSession) -> None:
    words = ["a", "b", "a+b", "a-b", "a@b", "é", "a.b", "a.b.c", "b.a", "a.a.a.a", "ab"]
    spaces = ["default", "de.fault", "other"]
    patterns = [*words, "*", "**", "a.*", "*.b", "a.**", "*.*", "a.*.c", "a.b.**", "*.**", "a+b.*"]
    topics = [f"{space}/{topic}" for space in spaces for topic in words]
    full = [f"{space}/{pattern}" for space in spaces for pattern in patterns]
    pairs = [(pattern, topic) for pattern in full for topic in topics]
    rows = spark.createDataFrame(pairs, "pattern string, topic string")
    matched = rows.withColumn("regex", pattern_regex(rows["pattern"])).selectExpr(
        "pattern", "topic", "topic rlike regex as covers"
    )
    wrong = [
        (row.pattern, row.topic)
        for row in matched.collect()
        if row.covers != pattern_matches(row.pattern, row.topic)
    ]
    assert wrong == []
    assert any(pattern_matches(*pair) for pair in pairs)
