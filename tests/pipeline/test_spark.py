"""The session."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import pytest

from relaymesh.errors import InvalidSettings
from relaymesh.pipeline.spark import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_times_are_utc_and_nothing_listens(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.uiWebUrl is None
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"
    assert spark.range(10).count() == 10


def test_a_session_that_runs_is_used_again(spark: SparkSession) -> None:
    assert spark_session(master="local[2]") is spark


def test_a_master_and_a_connect_server_are_two_things() -> None:
    with pytest.raises(InvalidSettings, match="not both"):
        spark_session(master="local[1]", remote="sc://localhost")


@pytest.mark.skipif(importlib.util.find_spec("grpc") is not None, reason="Spark Connect is installed here")
def test_connect_without_its_packages_is_one_clear_line() -> None:
    with pytest.raises(
        InvalidSettings, match=r"^Spark Connect needs packages that are not installed"
    ) as caught:
        spark_session(remote="sc://localhost:15002")
    assert "\n" not in str(caught.value)
    assert "pyspark[connect]" in caught.value.hint
