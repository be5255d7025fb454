"""A hundred lines of Java become one, which says what happened to which file, and what to do."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from relaymesh.errors import MeshError, NotFound
from relaymesh.pipeline.spark_failure import LENGTH_MAX, SparkFailed, one_line, spark_failures

STACK = "\n".join(f"\tat org.apache.spark.Some.method{n}(Some.scala:{n})" for n in range(60))
CORRUPT = f"""An error occurred while calling o448.parquet.
: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file \
file:///w/bronze/batch=00000000-x/event_date=2026-03-01/part-00000.parquet.  SQLSTATE: KD001
{STACK}
Caused by: java.lang.RuntimeException: \
file:/w/bronze/batch=00000000-x/event_date=2026-03-01/part-00000.parquet \
is not a Parquet file. Expected magic number at tail, but found [120, 120, 120, 120]
{STACK}
"""
UNWRITABLE = f"""An error occurred while calling o1112.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure
{STACK}
Caused by: java.io.IOException: Mkdirs failed to create file:/w/tables/latency/run_id=x/_temporary/0
{STACK}
"""
MOVED = f"""[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance: Traceback (most recent
{STACK}
relaymesh.errors.NotFound: there is no data directory /old (if it was moved, name its new place)
"""


def test_a_corrupt_file_of_bronze_is_named_with_its_cause_and_how_to_make_it_anew() -> None:
    error = one_line(CORRUPT)
    assert isinstance(error, SparkFailed)
    assert "part-00000.parquet is not a Parquet file" in error.message
    assert "reads anew what the journals have" in error.hint
    assert "SQLSTATE" not in error.message


def test_a_folder_that_cannot_be_written_is_named() -> None:
    error = one_line(UNWRITABLE)
    assert "Mkdirs failed to create file:/w/tables/latency" in error.message
    assert "who owns the folder" in error.hint


def test_an_error_of_ours_that_crossed_spark_is_ours_again() -> None:
    error = one_line(MOVED)
    assert type(error) is NotFound
    assert error.message == "there is no data directory /old"
    assert error.hint == "if it was moved, name its new place"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "x" * 10_000,
        CORRUPT,
        UNWRITABLE,
        "relaymesh.errors.NoSuchThing: odd (",
        "An error occurred",
    ],
)
def test_whatever_spark_says_is_one_short_line(text: str) -> None:
    error = one_line(text)
    assert isinstance(error, MeshError)
    assert "\n" not in error.message
    assert 0 < len(error.message) <= LENGTH_MAX


def test_other_errors_pass_untouched() -> None:
    with pytest.raises(ZeroDivisionError), spark_failures():
        raise ZeroDivisionError
    with pytest.raises(FileNotFoundError), spark_failures():
        raise FileNotFoundError("x")
