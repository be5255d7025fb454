"""The tables of tasks, against a plain loop over the same journal, and against what the mesh itself says."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from relaymesh.kernel.records import UsageNoted
from relaymesh.pipeline.silver.step_fold import StepFold
from tests.kernel.tasks.scene import Scene
from tests.pipeline.tasks.conftest import OF_TASKS
from tests.pipeline.tasks.fold import Row
from tests.pipeline.tasks.test_fold import board_of, events_of, task_of


def plain(rows: list[Row]) -> list[tuple[tuple[str, Any], ...]]:
    """Rows in an order of their own, times without a zone as Spark gives them."""

    def value(each: Any) -> Any:
        if isinstance(each, datetime) and each.tzinfo is not None:
            return each.astimezone(UTC).replace(tzinfo=None)
        return round(each, 9) if isinstance(each, float) else each

    return sorted((tuple((name, value(row[name])) for name in sorted(row)) for row in rows), key=repr)


@pytest.mark.parametrize("table", OF_TASKS)
def test_a_table_is_what_a_loop_over_the_journal_makes(
    table: str, built: dict[str, list[Row]], folded: dict[str, list[Row]]
) -> None:
    made = plain([row for row in built[table] if row["partition"] == 0])
    expected = plain(folded[table])
    assert [row for row in made if row not in expected] == [row for row in expected if row not in made]
    assert made == expected
    assert made


def test_the_steps_of_random_scenes_are_what_the_fold_says(
    scenes: list[Scene], built: dict[str, list[Row]]
) -> None:
    """Spark finds the events of a task: those of redriven and purged messages, and of questions too."""
    for partition, scene in enumerate(scenes, 1):
        rows = [row for row in built["steps"] if row["partition"] == partition]
        expected = StepFold(events_of(scene)).rows()
        times = [name for name in expected[0] if name.endswith("_at")]
        for row in expected:
            for name in times:
                row[name] = None if row[name] is None else datetime.fromtimestamp(row[name] / 1_000, UTC)
        own = [{name: row[name] for name in expected[0]} for row in rows]
        assert plain(own) == plain(expected), f"scene {partition - 1}"


def test_the_tasks_of_random_scenes_are_as_the_kernel_says(
    scenes: list[Scene], built: dict[str, list[Row]]
) -> None:
    known = {row["partition"]: row for row in built["tasks"]}
    for partition, scene in enumerate(scenes, 1):
        board = board_of(scene)
        task, row = task_of(board).task, known[partition]
        assert (row["status"], row["steps_total"], row["steps_ended"]) == (
            task.status,
            task.steps_total,
            task.steps_ended,
        ), f"scene {partition - 1}"
        if "t1" in board.tasks and not board.tasks["t1"].undos:
            assert row["paused"] == bool(board.tasks["t1"].paused), f"scene {partition - 1}"


def test_cost_is_the_last_report_of_each_attempt(
    events: list[Row], scenes: list[Scene], built: dict[str, list[Row]]
) -> None:
    ledger: dict[tuple[int, int], tuple[int, int]] = {}
    for row in events:
        if row["partition"] == 0 and row["operation"] == "USAGE":
            ledger[0, row["lease_token"]] = (row["cost_micros"], row["tokens"])
    assert sum(cost for cost, _ in ledger.values()) == 3_750_001
    for partition, scene in enumerate(scenes, 1):
        for record in scene.records:
            if isinstance(record, UsageNoted):
                ledger[partition, record.token] = (record.cost_micros, record.tokens)
    cost, tokens = (sum(used[place] for used in ledger.values()) for place in (0, 1))
    assert cost > 3_750_001
    for table in ("step_attempts", "steps", "tasks", "task_cost"):
        assert sum(row["cost_micros"] or 0 for row in built[table]) == cost, table
        assert sum(row["tokens"] or 0 for row in built[table]) == tokens, table
