"""Random plans, random fates: the kernel says what a dumb model says, after every kernel step.

`RELAYMESH_TASK_SCENARIOS` sets how many; `python -m tests.kernel.tasks.scene` plays as many as you like.
"""

from __future__ import annotations

import os

import pytest

from relaymesh.testing.planted import bug_named
from tests.kernel.tasks.scene import play

SCENARIOS = int(os.environ.get("RELAYMESH_TASK_SCENARIOS", "600"))
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_the_kernel_agrees_with_the_model(part: int) -> None:
    ends: set[str | None] = set()
    large: set[str | None] = set()
    for seed in range(part, SCENARIOS, PARTS):
        scene = play(seed)
        assert scene.model is not None, seed
        ends.add(scene.model.end)
        if len(scene.model.plan.steps) == 60:
            large.add(scene.model.end)
    assert ends == {"SUCCESS", "FAILED", "TIMEOUT", "CANCELLED"}
    assert large >= {"SUCCESS", "FAILED"}


@pytest.mark.parametrize("part", range(PARTS))
def test_small_plans_in_which_much_goes_wrong(part: int) -> None:
    for seed in range(100_000 + part, 100_000 + SCENARIOS, PARTS):
        play(seed, acts=80, most=3)


NOTICED = (
    "first_need_is_enough",
    "successor_sent_twice",
    "handler_runs_anyway",
    "output_of_another_step",
    "window_ignored",
    "fan_in_off_by_one",
    "result_of_another_step",
    "result_dropped",
    "late_result_after_another_grant",
    "late_result_revives_step",
    "abandonments_unlimited",
    "failures_not_counted",
    "soft_cancel_is_hard",
    "failure_goes_unnoticed",
    "timeout_from_submit",
    "purge_leaves_step_waiting",
    "redriven_letter_forgets_its_step",
    "caught_death_waits",
)


@pytest.mark.parametrize("name", NOTICED)
def test_the_model_notices_a_kernel_that_is_wrong(name: str) -> None:
    with bug_named(name).planted() as reached, pytest.raises(AssertionError):
        play_all(range(300))
    assert reached.times


def play_all(seeds: range) -> None:
    for seed in seeds:
        play(seed)
