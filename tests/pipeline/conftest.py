"""One Spark session for all tests of a process: starting Java once costs seconds enough."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent

SETTINGS = {
    "spark.driver.memory": "1g",
    # Short runs: start fast. Spark's classes are sound, and half of a start is loading them.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=160m -XX:+UseSerialGC"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
    # Small data, large plans: compiling them would take longer than running them.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.warehouse.dir": "/nonexistent",  # tests name the directories they write to
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """py4j leaves closing its sockets to the garbage collector, and says so when warnings are errors."""
    from tests.spreading import group_of

    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))
            if group_of(item.nodeid):
                item.add_marker(pytest.mark.spark)
            elif "spark" in getattr(item, "fixturenames", ()):
                raise pytest.UsageError(f"{item.nodeid} uses Spark: name its file in tests/spreading.py")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """`local[2]`, no UI, one shuffle partition, no adaptive plans, nothing compiled, UTC."""
    pytest.importorskip("pyspark", reason="the pipeline's packages are not installed")
    from relaymesh.errors import NotFound
    from relaymesh.pipeline.spark import spark_session

    try:
        session = spark_session(master="local[2]", app="tests", settings=SETTINGS)
    except NotFound as no_java:
        pytest.skip(str(no_java))
    yield session
    gateway = session.sparkContext._gateway
    session.stop()
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()  # what Java waits for to end itself
        gateway.proc.wait(timeout=30)
