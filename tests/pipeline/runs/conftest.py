"""A warehouse over a mesh that has been at work for some days."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.pipeline.runs.traffic import Traffic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from relaymesh.pipeline.runs.pipeline import Pipeline


@pytest.fixture
def traffic(tmp_path: Path) -> Iterator[Traffic]:
    """Two days of it."""
    traffic = Traffic(tmp_path / "data")
    traffic.day()
    traffic.day()
    yield traffic
    traffic.mesh.close()


Opening = Callable[..., "Pipeline"]


@pytest.fixture
def pipeline(spark: SparkSession, traffic: Traffic, tmp_path: Path) -> Opening:
    """Opens a pipeline over it, on three small tables unless others are given."""
    from relaymesh.pipeline.runs.pipeline import Pipeline
    from relaymesh.pipeline.runs.settings import PipelineSettings
    from tests.pipeline.runs.tiny import tiny_catalog

    def opened(tables: Any = None, observer: Any = None, **settings: Any) -> Pipeline:
        chosen = {"directories": (traffic.path,), "warehouse": tmp_path / "tables", **settings}
        more = {} if observer is None else {"observer": observer}
        tables = tiny_catalog() if tables is None else tables
        return Pipeline(spark, PipelineSettings(**chosen), tables=tables, **more)

    return opened
