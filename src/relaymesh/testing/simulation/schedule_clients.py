"""The clients of schedules: they set, pause, resume and remove them, and let minutes pass."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec

from relaymesh.errors import MeshError
from relaymesh.kernel.address import name_of
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.query import ListSchedules
from relaymesh.kernel.schedules.commands import PauseSchedule, RemoveSchedule
from relaymesh.kernel.schedules.schedule import Work
from relaymesh.testing.simulation.checkers.deliveries import SENT_AS
from relaymesh.testing.simulation.clients import Clients, no_answer
from relaymesh.testing.simulation.schedule_ledger import AT_THE_END
from relaymesh.wire.schedules import HoldSchedule, PutSchedule

OWNER = "default/planner"
HOME = "default"
NAMES = ("s0", "s1", "s2")
CRONS = ("* * * * *", "*/2 * * * *", "*/5 * * * *")
MINUTES_S = (30, 59, 60, 61, 125, 400, 7_200)


class ScheduleClients:
    """Every client of schedules in one run."""

    def __init__(self, clients: Clients, stepping: list[str]) -> None:
        """`stepping`: agents that may get steps; empty: this run has no tasks."""
        self.world = clients.world
        self.history = clients.history
        self.trace = clients.trace
        self.rng = random.Random(f"schedules-{self.world.plan.seed}")
        self._stepping = stepping
        self.habits: dict[str, Callable[[], None]] = {
            "set_schedule": self.set_schedule,
            "pause_schedule": self.pause_schedule,
            "resume_schedule": self.resume_schedule,
            "remove_schedule": self.remove_schedule,
            "minutes_pass": self.minutes_pass,
        }

    def set_schedule(self) -> None:
        name, cron = self.rng.choice(NAMES), self.rng.choice(CRONS)
        missed: Any = self.rng.choice(("one", "none"))
        request = PutSchedule(name, cron, self._work(name), OWNER, "UTC", missed, replace=True)
        world, schedules = self.world, self.world.node.schedules
        self.trace.line(f"{world.now()} set schedule {name} {cron} {missed}")

        def answered(_: Any, error: MeshError | None) -> None:
            if error is None:
                self.history.scheduled.add(name)
            self.trace.line(f"set schedule {name}: {'done' if error is None else error.code}")

        try:
            command = schedules.put_command(request)
        except MeshError as error:
            answered(None, error)
            return
        world.submit(command, answered, decide=schedules.decide_put)

    def _work(self, name: str) -> Work:
        if self._stepping and self.rng.random() < 0.5:
            agent = name_of(self.rng.choice(self._stepping))
            steps = {"only": {"agent": agent, "input": {"p": 0}}}
            return Work(document=msgspec.json.encode({"workflow": "scheduled", "steps": steps}))
        content = SENT_AS + b'"%s"}' % name.encode()
        return Work(to=self.rng.choice(self.world.plan.agents), message=Envelope("", OWNER, content))

    def pause_schedule(self) -> None:
        name = self.rng.choice(NAMES)
        self.trace.line(f"{self.world.now()} pause schedule {name}")
        self.world.submit(PauseSchedule(HOME, name, True), no_answer)

    def resume_schedule(self) -> None:
        name = self.rng.choice(NAMES)
        self.trace.line(f"{self.world.now()} resume schedule {name}")
        try:
            command = self.world.node.schedules.pause_command(HoldSchedule(HOME, name, False))
        except MeshError:
            return  # there is none
        self.world.submit(command, no_answer)

    def remove_schedule(self) -> None:
        name = self.rng.choice(NAMES)
        self.trace.line(f"{self.world.now()} remove schedule {name}")
        self.world.submit(RemoveSchedule(HOME, name), no_answer)

    def minutes_pass(self) -> None:
        seconds = self.rng.choice(MINUTES_S)
        self.world.clock.advance(seconds)
        self.trace.line(f"{seconds} s pass for schedules")

    def pause_all(self) -> None:
        """What is due runs, or says why not; then no more: a run is to end."""
        world = self.world
        world.node.schedules.tend(world.now())
        for view in world.core.read(lambda kernel: kernel.look(ListSchedules(HOME))):
            if view.refusal is not None:
                self.history.refused_ticks.add(view.schedule.name)
            world.core.submit(PauseSchedule(HOME, view.schedule.name, True, by=AT_THE_END))
        world.core.sync()
