"""Firing a tick: its run and the step to the next tick are one decision."""

from __future__ import annotations

from relaymesh.errors import MeshError
from relaymesh.kernel import admission
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.moment import iso
from relaymesh.kernel.records import ScheduleFired
from relaymesh.kernel.schedules.commands import Fired, FireSchedule
from relaymesh.kernel.schedules.schedule import Schedule
from relaymesh.kernel.tasks import submitting
from relaymesh.kernel.tasks.commands import Submit

LATE_MS = 60_000
"""A tick that is first looked at later than this was missed: the node was down, or the clock jumped."""


def fire(decision: Decision, command: FireSchedule) -> Fired:
    """Run a tick, skip it, or note why it must wait. Nothing, if the schedule waits for another tick."""
    state, schedules = decision.state, decision.state.schedules
    schedule = schedules.find(command.namespace, command.name)
    if state.stopped or schedule is None or not _is_due(decision, schedule, command):
        return Fired()
    if not command.next_at:
        return _refuse(decision, schedule, command, command.obstacle)
    if _is_missed(decision, schedule, command):
        reason = f"missed: the tick of {iso(command.tick_at)} was first seen at {iso(decision.now)}"
        _emit(decision, command, "", command.passed + 1, reason)
        return Fired(skipped=True)
    try:
        run = _begin(decision, command)
    except MeshError as error:
        return _refuse(decision, schedule, command, f"{error.code}: {error.message}")
    if not run:
        return _refuse(decision, schedule, command, command.obstacle)
    _emit(decision, command, run, command.passed, _passed_over(decision, schedule, command))
    return Fired(run)


def _is_due(decision: Decision, schedule: Schedule, command: FireSchedule) -> bool:
    """Whether it still waits for this tick: no other fire, set or pause came first."""
    return (
        not schedule.paused
        and schedule.sequence == command.sequence
        and schedule.next_at == command.due_at
        and command.tick_at <= decision.now
    )


def _is_missed(decision: Decision, schedule: Schedule, command: FireSchedule) -> bool:
    """A tick that was tried in time and refused is not missed until the next one overtakes it."""
    if schedule.missed == "one" or decision.now - command.tick_at <= LATE_MS:
        return False
    refusal = decision.state.schedules.refusal(schedule)
    tried = refusal is not None and refusal.tick_at == command.tick_at
    return not (tried and refusal is not None and refusal.since <= command.tick_at + LATE_MS)


def _begin(decision: Decision, command: FireSchedule) -> str:
    """The id of the task or of the message; empty: there is no work. Raises without a change."""
    work = command.work
    if work is None:
        return ""
    if isinstance(work, Submit):
        return submitting.submit(decision, work).task
    return admission.accept(decision, work)[0].id


def _refuse(decision: Decision, schedule: Schedule, command: FireSchedule, reason: str) -> Fired:
    refusal = decision.state.schedules.refuse(schedule, command.tick_at, decision.now, reason)
    return Fired(blocked=refusal.reason)


def _passed_over(decision: Decision, schedule: Schedule, command: FireSchedule) -> str:
    """Why the ticks before this one had no run."""
    if not command.passed:
        return ""
    refusal = decision.state.schedules.refusal(schedule)
    why = "" if refusal is None else f": {refusal.reason}"
    return f"passed over since {iso(command.due_at)}{why}"


def _emit(decision: Decision, command: FireSchedule, run: str, skipped: int, reason: str) -> None:
    decision.emit(
        ScheduleFired(
            1,
            decision.now,
            command.namespace,
            command.name,
            command.tick_at,
            command.next_at,
            run,
            skipped,
            reason,
        )
    )
    decision.after_sync()
