"""The directories of before read to the same tables as before: figures were written by the code of then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.tables.golden_directories import FIGURES, figures, golden_directories, published

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.slow
def test_golden_directories_read_to_the_same_rows_in_every_table(spark: SparkSession, tmp_path: Path) -> None:
    """They have no mesh ids: each is named by its oldest segment, and none is taken for another."""
    store = published(spark, tmp_path)
    assert figures(store) == json.loads(FIGURES.read_text())
    names = [each.source for each in store.published().inputs]
    assert len(set(names)) == len(golden_directories())
    assert all(name.startswith("journal-") for name in names)
