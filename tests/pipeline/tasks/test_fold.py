"""The fold of steps against the kernel: random plans, and random things that happen to them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from relaymesh.kernel.records import TaskEnded
from relaymesh.kernel.state import State
from relaymesh.kernel.tasks.board import Board
from relaymesh.kernel.tasks.views import StepView, TaskShown, shown
from relaymesh.pipeline.silver.operations import OF_TASKS
from relaymesh.pipeline.silver.step_fold import StepFold
from tests.kernel.driver import through_the_journal
from tests.kernel.tasks.scene import Scene, play
from tests.pipeline.tasks.desk import rows_of
from tests.pipeline.tasks.fold import Row

SCENES = 150
COMPARED = ("step", "name", "status", "attempts", "code", "reason", "ended_at")


def events_of(scene: Scene) -> list[Row]:
    """The rows of its journal, with the step of each redriven message."""
    rows = rows_of(scene.records, 0, first=0)
    letters = {row["sequence"]: row["message_sequence"] for row in rows if row["operation"] == "DEAD_LETTER"}
    steps = {row["message_sequence"]: row["step"] for row in rows if row["operation"] == "STEP_SENT"}
    for row in rows:
        row["at"] = round(row["timestamp"].timestamp() * 1_000)
        if row["operation"] == "REDRIVE":
            row["step"] = steps.get(letters[row["dead_sequence"]])
            steps[row["message_sequence"]] = row["step"]
    return [row for row in rows if row["operation"] != "REDRIVE" or row["step"] is not None]


def board_of(scene: Scene) -> Board:
    """The kernel's board after a replay: one that is not live forgets tasks that end."""
    state = State()
    for record in through_the_journal(scene.records):
        state.board.live = isinstance(record, TaskEnded)
        state.apply(record)
    return state.board


def task_of(board: Board) -> TaskShown:
    """What the kernel says of the task."""
    return shown(board.tasks["t1"]) if "t1" in board.tasks else board.over["t1"]


def told(view: StepView) -> dict[str, Any]:
    return {
        "step": view.number,
        "name": view.name,
        "status": view.status,
        "attempts": view.attempt,
        "code": view.code or None,
        "reason": view.reason or None,
        "ended_at": None if view.ended_at < 0 else view.ended_at,
    }


@pytest.mark.parametrize("first", range(0, SCENES, 10))
def test_the_fold_says_what_the_kernel_says(first: int) -> None:
    for seed in range(first, first + 10):
        scene = play(seed)
        made = StepFold(events_of(scene)).rows()
        expected = [told(view) for view in task_of(board_of(scene)).steps]
        assert [{name: row[name] for name in COMPARED} for row in made] == expected, f"scene {seed}"


def test_the_scenes_hold_everything_that_can_happen_to_a_task() -> None:
    seen: Counter[str] = Counter()
    for seed in range(60):
        seen.update(row["operation"] for row in events_of(play(seed)))
    assert seen.keys() >= {*OF_TASKS, "REDRIVE", "PURGE"}
