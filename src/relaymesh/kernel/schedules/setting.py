"""Setting, removing and pausing schedules."""

from __future__ import annotations

from msgspec.structs import replace

from relaymesh.errors import Conflict, OverBudget
from relaymesh.kernel.address import namespace_of
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.records import SchedulePaused, ScheduleRemoved, ScheduleSet
from relaymesh.kernel.schedules.commands import PauseSchedule, RemoveSchedule, ScheduleStored, SetSchedule
from relaymesh.kernel.schedules.schedule import SCHEDULE_BYTES, Schedule, ScheduleView
from relaymesh.kernel.schedules.schedules import NAMESPACE_BYTES_MAX, SCHEDULES_MAX, Schedules, missing

REMOVE = "remove what is not needed: relaymesh schedule remove NAME"


def put(decision: Decision, command: SetSchedule) -> ScheduleStored:
    """Keep a schedule, unless it is there as it is given: then it keeps the tick that it waits for."""
    schedules, namespace = decision.state.schedules, namespace_of(command.owner)
    known = schedules.find(namespace, command.name)
    if known is not None:
        if _is_same(known, command):
            decision.after_sync()
            return ScheduleStored(schedules.view(known), True)
        if not command.replace:
            raise Conflict(
                f"there is a schedule {command.name!r} already, with other fields",
                hint="put it with replace, or under another name",
            )
    if command.work.to:
        decision.mailbox(command.work.to)  # raises for an unknown one: probably a typing mistake
    _require_room(schedules, namespace, command, known)
    if command.budget:
        size = SCHEDULE_BYTES + command.work.size - (known.size if known is not None else 0)
        decision.state.charges.require(command.owner, max(0, size), command.budget)
    decision.emit(
        ScheduleSet(
            1,
            decision.now,
            namespace,
            command.name,
            command.cron,
            command.tz,
            command.missed,
            command.work,
            command.owner,
            command.budget,
            command.next_at,
        )
    )
    decision.after_sync()
    return ScheduleStored(_shown(decision, namespace, command.name))


def remove(decision: Decision, command: RemoveSchedule) -> bool:
    known = decision.state.schedules.find(command.namespace, command.name)
    if known is not None:
        decision.emit(ScheduleRemoved(1, decision.now, command.namespace, command.name, command.by))
    decision.after_sync()
    return known is not None


def pause(decision: Decision, command: PauseSchedule) -> ScheduleView:
    """Pausing one that is paused changes nothing, and neither does resuming one that runs."""
    known = decision.state.schedules.find(command.namespace, command.name)
    if known is None:
        raise missing(command.name)
    if known.paused != command.paused:
        if not command.paused and command.sequence != known.sequence:
            raise Conflict(
                f"schedule {command.name!r} was changed at the same time",
                hint="look at it, and resume it again",
            )
        decision.emit(
            SchedulePaused(
                1,
                decision.now,
                command.namespace,
                command.name,
                command.paused,
                command.next_at,
                command.by,
            )
        )
    decision.after_sync()
    return _shown(decision, command.namespace, command.name)


def _shown(decision: Decision, namespace: str, name: str) -> ScheduleView:
    schedules = decision.state.schedules
    schedule = schedules.find(namespace, name)
    assert schedule is not None, "it was looked up, or set, in this decision"
    return schedules.view(schedule)


def _is_same(known: Schedule, command: SetSchedule) -> bool:
    """The budget is the server's, and may change with its settings."""
    work = known.work
    if work.message is not None and command.work.message is not None:
        work = replace(work, message=replace(work.message, id=command.work.message.id))
    return (known.cron, known.tz, known.missed, known.owner, work) == (
        command.cron,
        command.tz,
        command.missed,
        command.owner,
        command.work,
    )


def _require_room(schedules: Schedules, namespace: str, command: SetSchedule, known: Schedule | None) -> None:
    if known is None and schedules.count(namespace) >= SCHEDULES_MAX:
        raise OverBudget(f"namespace {namespace!r} has {SCHEDULES_MAX} schedules already", hint=REMOVE)
    before = known.work.size if known is not None else 0
    size = schedules.bytes_of(namespace) - before + command.work.size
    if size > NAMESPACE_BYTES_MAX:
        raise OverBudget(
            f"the schedules of namespace {namespace!r} would have {size} bytes;"
            f" {NAMESPACE_BYTES_MAX} are allowed",
            hint=REMOVE,
        )
