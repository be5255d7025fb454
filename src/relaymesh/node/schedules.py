"""Schedules of a node: the shell's part. It has the calendar, and makes the work of each tick. The next tick,
the plan of a task and the envelope of a message are computed outside the lock. Two threads may do this for
one tick: the kernel accepts the first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from relaymesh.errors import MeshError
from relaymesh.kernel.commands import Send
from relaymesh.kernel.moment import iso
from relaymesh.kernel.query import DueSchedules, ShowSchedule
from relaymesh.kernel.schedules.commands import Fired, FireSchedule, PauseSchedule, SetSchedule
from relaymesh.kernel.schedules.schedule import Schedule, Work
from relaymesh.kernel.schedules.schedules import missing
from relaymesh.kernel.step import Step
from relaymesh.kernel.tasks.commands import Submit
from relaymesh.node.core import Core
from relaymesh.node.intake import Intake
from relaymesh.node.tasks import Tasks
from relaymesh.node.workflows import Workflows
from relaymesh.plans.cron import due_by, first_tick
from relaymesh.wire.schedules import HoldSchedule, PutSchedule
from relaymesh.wire.tasks import SubmitTask

__all__ = ["Schedules", "tick_key"]

log = logging.getLogger("relaymesh.node")

TURN_MAX = 100
"""Ticks that are fired before their records are synced, all by one sync."""
TURNS_MAX = 100
"""The most rounds of one call; the next call continues."""


class Schedules:
    """Fires what is due. `intake` and `tasks` refuse what disk and store cannot take."""

    def __init__(
        self,
        core: Core,
        workflows: Workflows,
        new_ids: Callable[[int], list[str]],
        intake: Intake,
        tasks: Tasks,
    ) -> None:
        self._core = core
        self._workflows = workflows
        self._new_ids = new_ids
        self._intake = intake
        self._tasks = tasks

    # -- setting

    def put_command(self, request: PutSchedule) -> SetSchedule:
        """Check a whole schedule, and compute its first tick; nothing is written yet."""
        work = request.work
        next_at = first_tick(request.cron, request.tz, self._core.time.now())
        if work.workflow or work.document:
            name = self._workflows.command(self._submit(work, request.owner)).plan.name
            if work.document:
                work = msgspec.structs.replace(work, workflow=name)
        return SetSchedule(
            request.name,
            request.cron,
            request.tz,
            work,
            request.owner,
            next_at,
            request.missed,
            request.replace,
            request.budget,
        )

    def decide_put(self, command: SetSchedule) -> Step:
        """Decide, without waiting; `commit` the step."""
        self._intake.require_capacity(command.work.size)
        return self._core.submit(command)

    def pause_command(self, request: HoldSchedule) -> PauseSchedule:
        """The command of a pause; of a resume, with the next tick."""
        if request.paused:
            return PauseSchedule(request.namespace, request.name, True, by=request.by)
        shown = self._core.read(lambda kernel: kernel.look(ShowSchedule(request.namespace, request.name)))
        if shown is None:
            raise missing(request.name)
        known = shown.schedule
        next_at = first_tick(known.cron, known.tz, self._core.time.now())
        return PauseSchedule(request.namespace, request.name, False, next_at, known.sequence, by=request.by)

    # -- firing

    def tend(self, now: int) -> None:
        """Fire every tick that is due; returns once their runs are durable."""
        for _ in range(TURNS_MAX):
            due = self._core.read(lambda kernel: kernel.look(DueSchedules(now, TURN_MAX)))
            steps = [self._fire(schedule, now) for schedule in due]
            for step in steps:
                self._core.commit(step)
            if len(due) < TURN_MAX:
                return

    def _fire(self, schedule: Schedule, now: int) -> Step:
        work: Submit | Send | None = None
        obstacle = ""
        tick_at = due_at = schedule.next_at
        next_at = passed = 0
        try:
            tick_at, next_at, passed = due_by(schedule.cron, schedule.tz, due_at, now)
            work = self._work_of(schedule, tick_at)
        except MeshError as error:
            if self._core.failure is not None:
                raise
            obstacle = f"{error.code}: {error.message}"
        except Exception as error:
            log.exception("schedule %s cannot be fired", _name(schedule))
            obstacle = f"it cannot be fired: {error!r}"
        step = self._core.submit(
            FireSchedule(
                schedule.namespace,
                schedule.name,
                schedule.sequence,
                due_at,
                tick_at,
                next_at,
                passed,
                work,
                obstacle,
            )
        )
        _tell(schedule, tick_at, step.result)
        return step

    def _work_of(self, schedule: Schedule, tick_at: int) -> Submit | Send:
        """The task or the message of one tick. A workflow without a version is the one put last."""
        work = schedule.work
        mark = tick_key(schedule.name, tick_at)
        if work.message is None:
            submit = self._workflows.command(self._submit(work, schedule.owner, mark, schedule.budget))
            self._tasks.prepare(submit)
            return submit
        trace = work.message.trace or mark
        envelope = msgspec.structs.replace(work.message, id=self._new_ids(1)[0], trace=trace)
        send = Send([(work.to, [envelope])], minted=True, budget=schedule.budget)
        self._intake.prepare(send)
        return send

    @staticmethod
    def _submit(work: Work, owner: str, key: str = "", budget: int = 0) -> SubmitTask:
        document = work.document or msgspec.json.encode(work.workflow)
        return SubmitTask(document, work.input, key, owner, key or None, budget=budget)


def tick_key(name: str, tick_at: int) -> str:
    """The key of the task that a tick begins, and the trace of its task or message."""
    return f"schedule/{name}/{iso(tick_at)}"


def _tell(schedule: Schedule, tick_at: int, fired: Fired | None) -> None:
    if fired is None:
        return
    name, tick = _name(schedule), iso(tick_at)
    if fired.skipped:
        log.warning("schedule %s: the tick of %s was missed and is skipped", name, tick)
    elif fired.blocked:
        log.warning("schedule %s: the tick of %s waits: %s", name, tick, fired.blocked)


def _name(schedule: Schedule) -> str:
    return f"{schedule.namespace}/{schedule.name}"
