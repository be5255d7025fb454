"""The source and the writer on a real cluster: a Spark Standalone master and two workers, on loopback."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from relaymesh import Mesh
from relaymesh.errors import NotFound
from relaymesh.pipeline.java import find_java, use_java
from tests.pipeline.conftest import SETTINGS
from tests.pipeline.source.journals import read_rows, traffic, write_frames

DEADLINE_S = 300.0
ROOT = Path(__file__).parents[2]

JOB = """
import json, os, sys
from pyspark import TaskContext
from pyspark.sql import functions as f
from relaymesh.pipeline.spark import spark_session
from tests.pipeline.conftest import SETTINGS
from tests.pipeline.streaming import run_to_its_end

master, journal, mesh, out = sys.argv[1:]
spark = spark_session(master=master, app="cluster", settings={
    **SETTINGS,
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m", "spark.driver.memory": "512m", "spark.cores.max": "2",
    "spark.sql.shuffle.partitions": "2", "spark.locality.wait": "0s",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.executor.extraJavaOptions": SETTINGS["spark.driver.extraJavaOptions"],
})
events = spark.read.format("relaymesh").option("rowsPerPartition", 40).load(journal)

def places(batches):
    import pyarrow
    for batch in batches:
        yield pyarrow.RecordBatch.from_pydict({"cwd": [os.getcwd()] * batch.num_rows})

executors = events.mapInArrow(places, "cwd string").distinct().count()
stream = (spark.readStream.format("relaymesh").option("maxRowsPerBatch", 200).load(journal)
    .writeStream.format("parquet").option("path", out + "/rows")
    .option("checkpointLocation", out + "/checkpoint")
    .trigger(availableNow=True))
run_to_its_end(stream.start)
rows = spark.read.parquet(out + "/rows")

@f.udf("string")
def stumbling(number):
    context = TaskContext.get()
    if context.partitionId() == 1 and context.attemptNumber() == 0 and number % 10 == 9:
        raise RuntimeError("the first try of this task fails in the middle")
    return f"message {number}"

sent = spark.range(0, 40, 1, 2).select(f.lit("coder").alias("to"), stumbling("id").alias("content"))
sent.write.format("relaymesh").option("path", mesh).option("idPrefix", "job").mode("append").save()
def counted(frame):
    return list(frame.agg(f.count("*"), f.count_distinct("sequence")).first())

print("RESULT " + json.dumps({
    "executors": executors,
    "read": counted(events),
    "streamed": counted(rows),
}))
spark.stop()
"""


@contextmanager
def daemon(
    kind: str, *arguments: str, environ: dict[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A master or worker in the foreground, ended by its own process."""
    import pyspark

    home = Path(pyspark.__file__).parent
    run = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*run, "--port", "0", "--webui-port", "0", *arguments],
            env={**environ, "SPARK_HOME": str(home)},
            stdout=output,
            stderr=output,
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=20)


def said(log: Path, pattern: str, process: subprocess.Popen[bytes]) -> str:
    """Wait until the log has the pattern; its first group."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline and process.poll() is None:
        match = re.search(pattern, log.read_text(errors="replace"))
        if match:
            return match[1]
        time.sleep(0.1)
    pytest.fail(f"{log.name} never said {pattern}:\n{log.read_text(errors='replace')[-2000:]}")


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The URL of a master that two workers have joined."""
    environ = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": SETTINGS["spark.driver.extraJavaOptions"],
    }
    try:
        use_java(find_java(), environ)
    except NotFound as no_java:
        pytest.skip(str(no_java))
    with ExitStack() as stack:
        log = tmp_path / "master.log"
        process = stack.enter_context(daemon("master.Master", environ=environ, log=log))
        url = said(log, r"Starting Spark master at (spark://\S+)", process)
        joining: list[tuple[Path, subprocess.Popen[bytes]]] = []
        for number in (1, 2):
            log, work = tmp_path / f"worker-{number}.log", str(tmp_path / f"work-{number}")
            options = ["--cores", "1", "--memory", "700m", "--work-dir", work, url]
            joining.append(
                (log, stack.enter_context(daemon("worker.Worker", *options, environ=environ, log=log)))
            )
        for log, worker in joining:
            said(log, r"(Successfully registered) with master", worker)
        yield url


@pytest.mark.slow
def test_a_standalone_cluster_reads_each_event_once_and_sends_each_row_once(
    master: str, tmp_path: Path
) -> None:
    journal, mesh, out = tmp_path / "journal", tmp_path / "mesh", tmp_path / "out"
    write_frames(journal, traffic(60))
    with Mesh(mesh) as opened:
        opened.agent("coder")
    environ = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    run = [sys.executable, "-c", JOB, master, str(journal), str(mesh), str(out)]
    done = subprocess.run(
        run, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=900, check=False
    )
    found = re.search(r"RESULT (.*)", done.stdout)
    assert found, done.stderr[-4000:]
    result = json.loads(found[1])
    assert result["executors"] == 2
    assert result["read"] == [540, 540]
    assert result["streamed"] == [540, 540]
    logs = "".join(log.read_text(errors="replace") for log in tmp_path.glob("work-*/*/*/stderr"))
    assert "the first try of this task fails in the middle" in logs
    contents = [row["content"] for row in read_rows(mesh) if row["operation"] == "APPEND"]
    assert sorted(contents) == sorted(b'"message %d"' % number for number in range(40))
