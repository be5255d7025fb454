"""Schedules: which tick runs, and how often."""

# ruff: noqa: ARG001 - a wrong function takes what the right one takes

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from relaymesh.kernel.decision import Decision
from relaymesh.kernel.records import ScheduleFired
from relaymesh.kernel.schedules import firing
from relaymesh.kernel.schedules.commands import Fired, FireSchedule
from relaymesh.kernel.schedules.schedule import Schedule
from relaymesh.kernel.schedules.schedules import Schedules
from relaymesh.testing.planted.bug import Original, at, plant


@plant(
    at(Schedules, "go_live"),
    broken="a start runs the last tick of each schedule again",
    like="Kubernetes: CronJobs that start twice after the controller was restarted",
)
def schedule_twice(original: Original, schedules: Schedules) -> None:
    for each in list(schedules):
        if each.last_tick_at:
            schedules._put(replace(each, next_at=each.last_tick_at))
    original(schedules)


@plant(
    at(firing, "_refuse"),
    broken="a tick that is refused is not tried again",
    like="Quartz: a trigger that misfires while its store is locked is gone",
)
def schedule_tick_lost(
    original: Original, decision: Decision, schedule: Schedule, command: FireSchedule, reason: str
) -> Any:
    decision.emit(
        ScheduleFired(
            1,
            decision.now,
            schedule.namespace,
            schedule.name,
            command.tick_at,
            command.next_at or command.tick_at + 60_000,
            "",
            command.passed + 1,
            reason,
        )
    )
    decision.after_sync()
    return Fired(skipped=True)
