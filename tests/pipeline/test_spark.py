"""The session."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from relaymesh.errors import InvalidSettings
from relaymesh.pipeline.spark import spark_session
from tests.pipeline.source.journals import one_of_each, write_frames

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT_EVENTS = """
import sys
from relaymesh.pipeline.spark import spark_session

assert " " in sys.executable
print(spark_session(master="local[1]").read.format("relaymesh").load(sys.argv[1]).count())
"""


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


def test_the_format_is_found_when_the_path_of_python_has_a_space(tmp_path: Path) -> None:
    """Spark looks for formats in Python only if a shell finds that Python, and does not quote its path."""
    place = tmp_path / "a place"
    place.mkdir()
    write_frames(place, [one_of_each()])
    (place / "env").symlink_to(sys.prefix)
    python = place / "env" / "bin" / Path(sys.executable).name
    told = subprocess.run(
        [python, "-c", COUNT_EVENTS, place],
        env={name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    events = sum([record.count for record in one_of_each()])
    assert told.stdout.split() == [str(events)], told.stderr[-2000:]


@pytest.mark.skipif(importlib.util.find_spec("grpc") is not None, reason="Spark Connect is installed here")
def test_connect_without_its_packages_is_one_clear_line() -> None:
    with pytest.raises(
        InvalidSettings, match=r"^Spark Connect needs packages that are not installed"
    ) as caught:
        spark_session(remote="sc://localhost:15002")
    assert "\n" not in str(caught.value)
    assert "pyspark[connect]" in caught.value.hint
