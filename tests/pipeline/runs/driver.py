"""A pipeline in a process of its own, killed with its Java at a given point.

    echo '["run", "refresh: table written", 2]' | python -m tests.pipeline.runs.driver DATA WAREHOUSE

starts Java, reads what to do, and kills itself when that stage is reached for the second time.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from relaymesh.pipeline.runs.pipeline import Pipeline
from relaymesh.pipeline.runs.settings import PipelineSettings
from relaymesh.pipeline.runs.stages import Stage
from relaymesh.pipeline.spark import spark_session
from tests.pipeline.conftest import SETTINGS
from tests.pipeline.runs.tiny import tiny_catalog

BATCH_EVENTS = 40


def main(data: str, warehouse: str) -> None:
    spark = spark_session(master="local[2]", app="driver", settings=SETTINGS)
    java = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    command, stage, left = json.loads(sys.stdin.readline())

    def pull_the_plug(reached: Stage, detail: str, done: int, of: int) -> None:
        nonlocal left
        left -= reached == Stage(stage)
        if left == 0:
            os.kill(java, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    settings = PipelineSettings(
        directories=(Path(data),), warehouse=Path(warehouse), batch_events=BATCH_EVENTS
    )
    pipeline = Pipeline(spark, settings, tables=tiny_catalog(), observer=pull_the_plug)
    getattr(pipeline, command)()


if __name__ == "__main__":
    main(*sys.argv[1:])
