"""Small data, large plans: compiling them would take longer than running them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLAIN = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@pytest.fixture(autouse=True, scope="package")
def interpreted(spark: SparkSession) -> Iterator[None]:
    """Plans are interpreted here, and compiled again elsewhere."""
    before = {name: spark.conf.get(name, None) for name in PLAIN}
    for name, value in PLAIN.items():
        spark.conf.set(name, value)
    yield
    for name, old in before.items():
        if old is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, old)
