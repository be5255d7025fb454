"""Checks the sums of tasks: they are counted in bronze, in silver and in gold.

Tasks whose submit bronze does not hold are in no table, and in none of these numbers. So the sums are checked
even if the beginning of a journal is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from relaymesh.pipeline.silver.plans import TASK, submitted_tasks
from relaymesh.pipeline.silver.step_attempts import last_usage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["READS", "reconcile_tasks"]

READS = ("tasks", "steps", "step_attempts", "task_outcomes", "task_cost")
"""The tables that are compared."""
_ENDS = {"succeeded": "SUCCESS", "failed": "FAILED", "timed_out": "TIMEOUT", "cancelled": "CANCELLED"}
_USED = ("cost_micros", "tokens")


def reconcile_tasks(bronze: DataFrame, tables: Mapping[str, DataFrame]) -> dict[str, Any]:
    """The numbers of bronze, those of silver and gold, and the names of those that differ.

    `steps_said` counts steps that STEP_ENDED ended, `steps_ended` all that ended.
    """
    told = _in_bronze(bronze)
    silver = _in_silver(tables["tasks"], tables["steps"], tables["step_attempts"])
    gold = _in_gold(tables["task_outcomes"], tables["task_cost"])
    off = [name for name, number in told.items() if silver[name] != number]
    off += [name for name, number in gold.items() if silver[name] != number and name not in off]
    return told | {"in_silver": silver, "in_gold": gold, "off": off, "balanced": not off}


def _in_bronze(bronze: DataFrame) -> dict[str, int]:
    known = submitted_tasks(bronze).select(*TASK)
    mine = bronze.join(known, TASK)
    operation, status = f.col("operation"), f.col("status")
    ended = operation == "TASK_ENDED"
    counts = {
        "submitted": f.count_if(operation == "SUBMIT"),
        **{name: f.count_if(ended & (status == end)) for name, end in _ENDS.items()},
        "steps_said": f.count_if(operation == "STEP_ENDED"),
    }
    return _numbers(mine, counts) | _numbers(last_usage(mine), _sums(_USED))


def _in_silver(tasks: DataFrame, steps: DataFrame, step_attempts: DataFrame) -> dict[str, int]:
    over = f.col("ended_at").isNotNull()
    of_tasks = {
        "submitted": f.count("*"),
        **{name: f.count_if(over & (f.col("status") == end)) for name, end in _ENDS.items()},
    }
    of_steps = {
        "steps_said": f.count_if(f.col("ended_by") == "STEP_ENDED"),
        "steps_ended": f.count_if(over),
    }
    used = _numbers(step_attempts, _sums(_USED))
    return _numbers(tasks, of_tasks) | _numbers(steps, of_steps) | used


def _in_gold(task_outcomes: DataFrame, task_cost: DataFrame) -> dict[str, int]:
    counted = _numbers(task_outcomes, _sums(("submitted", *_ENDS, "steps_ended")))
    return counted | _numbers(task_cost, _sums(_USED))


def _sums(names: tuple[str, ...]) -> dict[str, Column]:
    return {name: f.sum(name) for name in names}


def _numbers(rows: DataFrame, counts: Mapping[str, Column]) -> dict[str, int]:
    [row] = rows.agg(*[count.alias(name) for name, count in counts.items()]).collect()
    return {name: row[name] or 0 for name in counts}
