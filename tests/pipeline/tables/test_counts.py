"""Counted from the files or by Spark: the same numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = [(1, "a", 1.0), (1, "a", None), (2, None, None), (2, None, 3.0), (None, "b", 4.0)]


def test_rows_nulls_and_keys_are_the_same_from_footers_and_from_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from relaymesh.pipeline.tables import counts

    df = spark.createDataFrame(ROWS, "n int, word string, value double")
    df.repartition(2).write.parquet(str(tmp_path / "run_id=x" / "table"))
    files = sorted((tmp_path / "run_id=x" / "table").glob("*.parquet"))
    for keys in (("n", "word"), ("value",), ()):
        here = counts.count_files(files, ("n", "value"), keys)
        assert here == counts.count_rows(df, ("n", "value"), keys)
        assert here is not None
        assert (here.rows, here.nulls) == (5, {"n": 1, "value": 2})
    assert counts.count_files([], ("n",), ("n",)) == counts.Counts(rows=0, nulls={"n": 0}, keys=0)
    monkeypatch.setattr(counts, "ROWS_MAX", 4)
    assert counts.count_files(files, ("n",), ("n",)) is None, (
        "more than one process should hold: Spark counts"
    )
