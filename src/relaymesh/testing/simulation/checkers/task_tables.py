"""The tables of tasks, steps and keys, caught up: they say what the journal says."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

from relaymesh.store import SqliteStore
from relaymesh.testing.simulation.task_ledger import KEY_MS, TaskLedger
from relaymesh.testing.simulation.told import StepTold, TaskTold, same
from relaymesh.testing.simulation.verdict import Violation

TASKS = """SELECT task_id, workflow, status, owner, idempotency_key, request, created_at_ms, ended_at_ms,
    steps_total, steps_ended, sequence, through, result FROM tasks"""
STEPS = """SELECT task_id, number, name, agent_id, status, attempt, failed, abandoned, ended_at_ms, output
    FROM steps"""
KEYS = "SELECT idempotency_key, status, result_ref, result_hash, processed_at_ms FROM idempotency"


def check_task_tables(store: SqliteStore, told: TaskLedger, now: int) -> None:
    """A task that ended 7 days ago may be there or not."""
    reader = store._reader
    kept = [task for task in told.tasks.values() if not task.end or task.ended_at + KEY_MS > now]
    old = {task.id for task in told.tasks.values() if task not in kept}
    tasks = {row[0]: row[1:] for row in reader.execute(TASKS) if row[0] not in old}
    steps = {row[:2]: row[2:] for row in reader.execute(STEPS) if row[0] not in old}
    _compare("task", {id: row[:-1] for id, row in tasks.items()}, {task.id: _task(task) for task in kept})
    all_steps = {(task.id, step.number): step for task in kept for step in task.steps}
    _compare(
        "step",
        {name: row[:-1] for name, row in steps.items()},
        {name: _step(step) for name, step in all_steps.items()},
    )
    for task in kept:
        _check_value(f"the result of task {task.id}", tasks[task.id][-1], task.result, task.end == "SUCCESS")
    for name, step in all_steps.items():
        if steps[name][-1] is not None:  # it is not kept when no step reads it any more
            _check_value(f"the output of {step}", steps[name][-1], step.output, step.ended)
    _check_keys(reader.execute(KEYS), told, old)


def _compare(what: str, rows: dict[Any, Any], truth: dict[Any, Any]) -> None:
    for name in rows.keys() | truth.keys():
        if rows.get(name) != truth.get(name):
            raise Violation(
                "store_is_state", f"{what} {name}: {rows.get(name)} in the store, {truth.get(name)} in truth"
            )


def _task(task: TaskTold) -> tuple[Any, ...]:
    waiting = "DEAD_LETTER" if task.dead else "RUNNING"
    return (
        task.plan[0],
        task.end or waiting,
        task.owner,
        task.key,
        task.request,
        task.at,
        task.ended_at if task.end else None,
        len(task.steps),
        sum(step.ended for step in task.steps),
        task.sequence,
        task.through,
    )


def _step(step: StepTold) -> tuple[Any, ...]:
    status = "DEAD_LETTER" if step.status == "DEAD" else step.status
    if step.expanded and not step.ended:
        status = "RUNNING"
    return (
        step.name,
        step.plan["mailbox"],
        status,
        step.attempts,
        step.failed,
        step.abandoned,
        step.ended_at if step.ended else None,
    )


def _check_value(what: str, stored: bytes | None, told: Any, there: bool) -> None:
    if (stored is not None) != there or (stored is not None and not same(json.loads(stored), told)):
        raise Violation("store_is_state", f"{what} is {stored!r} in the store, {told if there else None!r}")


def _check_keys(rows: Any, told: TaskLedger, old: set[str]) -> None:
    """Of several runs of one key, the last that ended."""
    stored = {row[0]: row[1:] for row in rows if row[2] not in old}
    truth: dict[str, tuple[Any, ...]] = {}
    hashes: dict[str, str | None] = {}
    for task in sorted(told.tasks.values(), key=lambda each: each.through):
        if task.end:
            truth.pop(task.key, None)
            if task.id not in old:
                truth[task.key] = task.end, task.id, task.ended_at
                hashes[task.key] = None if task.raw is None else sha256(task.raw).hexdigest()
    _compare("key", {key: (*row[:2], row[3]) for key, row in stored.items()}, truth)
    _compare("the hash of key", {key: row[2] for key, row in stored.items()}, {k: hashes[k] for k in truth})
