"""Three days of workflows through all tables, once, and the same days folded by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.kernel.tasks.scene import Scene, play
from tests.pipeline.source.journals import read_rows
from tests.pipeline.tables.journal import bronze
from tests.pipeline.tasks.desk import rows_of
from tests.pipeline.tasks.fold import Fold, Row
from tests.pipeline.tasks.workdays import Workdays, lived

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from relaymesh.pipeline.catalog import Table

SCENES = 30
OF_TASKS = (
    "step_attempts",
    "steps",
    "tasks",
    "task_outcomes",
    "workflow_latency",
    "step_retries",
    "critical_paths",
    "critical_steps",
    "task_cost",
)
NEEDED = ("attempts", *OF_TASKS)


@pytest.fixture(scope="package")
def workdays(tmp_path_factory: pytest.TempPathFactory) -> Workdays:
    return lived(tmp_path_factory.mktemp("workdays") / "data")


@pytest.fixture(scope="package")
def events(workdays: Workdays, scenes: list[Scene]) -> list[Row]:
    """Their journal as rows of bronze, and random scenes of the kernel, each as a partition of its own."""
    rows = read_rows(workdays.path)
    for partition, scene in enumerate(scenes, 1):
        rows += rows_of(scene.records, partition, first=0)
    return rows


@pytest.fixture(scope="package")
def scenes() -> list[Scene]:
    """Waits, undoing, budgets and growing plans, as the kernel writes them."""
    return [play(seed) for seed in range(SCENES)]


@pytest.fixture(scope="package")
def folded(events: list[Row]) -> dict[str, list[Row]]:
    """The work days alone."""
    return Fold([row for row in events if row["partition"] == 0]).tables()


@pytest.fixture(scope="package")
def built(spark: SparkSession, events: list[Row]) -> dict[str, list[dict[str, Any]]]:
    """Every table about tasks, each made from the rows of those before it."""
    from relaymesh.pipeline.catalog import BRONZE, TABLES

    def keep(table: Table, made: DataFrame) -> DataFrame:
        return spark.createDataFrame(made.collect(), made.schema)

    made = {BRONZE: bronze(spark, events)}
    for each in TABLES:
        if each.name in NEEDED:
            made[each.name] = keep(each, each.build(**{name: made[name] for name in each.inputs}))
    del made[BRONZE]
    return {name: [row.asDict() for row in table.collect()] for name, table in made.items()}
