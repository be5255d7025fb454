"""A Spark session with the settings every table here counts on: UTC, no UI, few words.

Local by default, on whatever Java there is. The same code runs on a cluster (`master`) or against a Spark
Connect server (`remote`); there, Java and the settings of the cluster are its own.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from relaymesh.errors import InvalidSettings
from relaymesh.pipeline.java import find_java, quiet_java, use_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark_session"]

log = logging.getLogger("relaymesh.pipeline")

_ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A note of the line of Python for each expression, asked of Java call by call: most of the cost of f.col.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # read as a time by DuckDB and Polars
}
_ON_A_MASTER = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # As many files open at once as a batch has days: rows need not be sorted by day before they are written.
    "spark.sql.maxConcurrentOutputFileWriters": "32",
}
_LOGGING = Path(__file__).with_name("log4j2.properties")
_LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "8",
}


def spark_session(
    *,
    master: str | None = None,
    remote: str | None = None,
    app: str = "relaymesh",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session; the running one if there is one.

    master: where Spark runs; None is the one given to spark-submit, else `local[*]`.
    remote: a Spark Connect server, `sc://host:port`; then no Java is needed here.
    settings: Spark settings that win over ours.
    """
    if remote is not None:
        if master is not None:
            raise InvalidSettings("give master or remote, not both", hint="remote= is for Spark Connect")
        return _connect(remote, app, {**_ALWAYS, **(settings or {})})
    from pyspark.sql import SparkSession  # noqa: PLC0415 - a second of imports, for those who need it

    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit started Java, and knows the master
    if not submitted:
        java = find_java()
        use_java(quiet_java(java))
        log.info("Spark runs on %s", java)
        master = master or "local[*]"
    chosen = {
        **_ALWAYS,
        **_ON_A_MASTER,
        "spark.driver.defaultJavaOptions": f"'-Dlog4j2.configurationFile={_LOGGING.as_uri()}'",
    }
    if master is not None and master.startswith("local"):
        chosen |= _LOCAL
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(app)
    if master is not None:
        builder = builder.master(master)
    for name, value in {**chosen, **(settings or {})}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    if not submitted:
        _make_known(session)
    return session


def _make_known(session: SparkSession) -> None:
    """Register the format where Spark will not look for it.

    Spark asks a shell whether there is a Python, and does not quote its path. If the path has a space, Spark
    finds no format that is written in Python.
    """
    if " " in os.environ.get("PYSPARK_PYTHON", ""):
        from relaymesh.pipeline.source.format import RelayMeshSource  # noqa: PLC0415 - it needs a pyspark

        session.dataSource.register(RelayMeshSource)


def _connect(remote: str, app: str, settings: Mapping[str, str]) -> SparkSession:
    from pyspark.errors import PySparkImportError  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    try:
        importlib.import_module("grpc")  # where there is no main module, Spark ends the process over it
        builder = SparkSession.builder.remote(remote).appName(app)
        for name, value in settings.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()
    except (PySparkImportError, ImportError) as error:
        missing = str(error).splitlines()[0]
        raise InvalidSettings(
            f"Spark Connect needs packages that are not installed here: {missing}",
            hint='pip install "pyspark[connect]==4.3.0", or use master= in place of remote=',
        ) from error
