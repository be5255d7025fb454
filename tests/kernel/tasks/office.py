"""A kernel with tasks, and a dumb shell beside it: inputs are sent as they are, nothing is evaluated."""

from __future__ import annotations

from typing import Any

from relaymesh.errors import MeshError
from relaymesh.kernel.commands import Ack, Nack, Receive, Tick
from relaymesh.kernel.request import Command
from relaymesh.kernel.state import State
from relaymesh.kernel.step import Step
from relaymesh.kernel.tasks.commands import (
    Abandon,
    Advance,
    Answer,
    Cancel,
    Fail,
    Finish,
    Move,
    SetBudget,
    Signal,
    Submit,
    Submitted,
)
from relaymesh.kernel.tasks.plan import Plan, StepPlan
from relaymesh.kernel.tasks.step_state import StepState
from relaymesh.kernel.tasks.task import Task
from relaymesh.kernel.tasks.views import StepView, TaskView
from relaymesh.kernel.waiter import Waiter
from tests.kernel.driver import NOON, Driver

AGENT = "default/worker"


def step(name: str, *needs: int, **fields: Any) -> StepPlan:
    return StepPlan(name=name, mailbox=fields.pop("mailbox", AGENT), needs=needs, **fields)


def plan(*steps: StepPlan, **fields: Any) -> Plan:
    return Plan(name=fields.pop("name", "work"), steps=steps, **fields)


class Office(Driver):
    """Advances after every command, as a node does, unless `advances` is turned off."""

    def __init__(
        self,
        *,
        state: State | None = None,
        now: int = NOON,
        items: dict[str, list[bytes]] | None = None,
        skips: set[str] | None = None,
    ) -> None:
        self.advances = True
        self.minted = 0 if state is None else state.sequence
        self.items = items or {}
        """What the `for_each` of a step gives, by its name."""
        self.stored: dict[str, tuple[StepPlan, ...]] = {}
        """The steps of workflows that others include, by name."""
        self.skips = skips or set()
        """Steps whose condition is false."""
        super().__init__(state=state, now=now)

    def do(self, command: Command[Any]) -> Step:
        try:
            step = self.plainly(command)
        except MeshError:
            self._move_all(self.step)
            raise
        self._move_all(step)
        return step

    def plainly(self, command: Command[Any]) -> Step:
        """Do no more than this command."""
        return super().do(command)

    def _move_all(self, step: Step) -> None:
        if self.advances:
            for task in step.ready or ():
                self.move_on(task)

    def move_on(self, task: str) -> None:
        """Send what is ready, and go on until nothing is."""
        while (live := self.kernel.state.board.tasks.get(task)) is not None:
            moves = [self._move(live, number) for number in live.may_send(64) if live.sends]
            if not moves:
                return
            ids = [self.mint() for _ in moves]
            if not self.plainly(Advance(task, moves, ids)).result.moved:
                return

    def _move(self, task: Task, number: int) -> Move:
        plan, state = task.plan_of(number), task.steps[number]
        if not task.runs_if_it_may(number) or plan.name in self.skips:
            return Move(number, "skip")
        if task.has_items(number):
            return Move(number, "expand", items=self.items.get(plan.name, [b"1", b"2"]))
        if plan.wait is not None:
            return Move(number, "wait", b'{"question":1}', wait_ms=plan.timeout_ms or -1)
        if plan.include:
            return Move(number, "include", b"{}", plans=self.stored[plan.include])
        return Move(number, "send", state.parked or state.item or plan.input)

    def mint(self) -> str:
        self.minted += 1
        return f"m{self.minted}"

    def submit(self, plan: Plan, task: str = "t1", **fields: Any) -> Submitted:
        request = fields.pop("request", task.encode())
        key = fields.pop("key", task)
        owner = fields.pop("owner", "default/owner")
        command = Submit(task, plan, fields.pop("input", b"null"), key, request, owner, **fields)
        result: Submitted = self.do(command).result
        return result

    def take(self, most: int = 100, mailbox: str = AGENT) -> dict[str, int]:
        """Receive: the names of the steps and their tokens."""
        waiter = Waiter("worker-1", most)
        step = self.do(Receive(mailbox, waiter, False))
        found: dict[str, int] = {}
        for delivered in step.delivered or ():
            for row in delivered.deliveries.rows():
                task, number = self.kernel.state.board.links[row.sequence]
                found[task.name_of(number)] = row.token
        return found

    def finish(self, token: int, output: bytes = b"null") -> str:
        return str(self.do(Finish(token, output)).result)

    def fail_for_good(self, token: int, reason: str = "no") -> str:
        return str(self.do(Fail(token, "failed", reason)).result)

    def done(self, token: int) -> list[int]:
        """Acked without a result."""
        stale: list[int] = self.do(Ack([token])).result
        return stale

    def failed(self, token: int, code: str = "other", **fields: Any) -> str:
        return str(self.do(Nack(token, code, "did not work", **fields)).result)

    def abandon(self, *tokens: int) -> list[int]:
        stale: list[int] = self.do(Abandon(tokens)).result
        return stale

    def cancel(self, task: str = "t1", *, hard: bool = False) -> str:
        return str(self.do(Cancel(task, "enough", "default/owner", hard)).result)

    def dies(self, token: int) -> None:
        """The attempt fails, and none is left."""
        assert self.failed(token, "fatal") == "dead_letter"

    def pass_time(self, ms: int) -> None:
        self.now += ms
        self.do(Tick())

    def end_waits(self, id: str = "t1") -> None:
        """Answer every question, send every signal, and lift the budget."""
        task = self.kernel.state.board.tasks.get(id)
        if task is None:
            return
        if task.paused and task.closing is None:
            self.do(SetBudget(id, 0, 0))
        for number in list(task.waiting):
            wait, plan = task.steps[number].wait, task.plan_of(number).wait
            if wait is None or plan is None:
                continue
            if wait.kind == "ask":
                self.do(Answer(id, task.name_of(number), b'"yes"', wait.asked))
            elif wait.kind == "signal":
                self.do(Signal(id, plan.signal, self.mint(), b"1"))

    def statuses(self, task: str = "t1") -> dict[str, str]:
        live = self.kernel.state.board.tasks[task]
        return {live.name_of(number): state.status for number, state in enumerate(live.steps)}

    def live(self, name: str, task: str = "t1") -> StepState:
        """A step of a live task, by name."""
        found = self.kernel.state.board.tasks[task]
        return next(state for number, state in enumerate(found.steps) if found.name_of(number) == name)

    def end(self, task: str = "t1") -> TaskView:
        """A task that has ended."""
        return self.kernel.state.board.over[task].task

    def ended_step(self, name: str, task: str = "t1") -> StepView:
        return next(view for view in self.kernel.state.board.over[task].steps if view.name == name)

    def ended_statuses(self, task: str = "t1") -> dict[str, str]:
        return {view.name: view.status for view in self.kernel.state.board.over[task].steps}


def office(*agents: str) -> Office:
    """With a mailbox for each of these agents."""
    made = Office()
    for agent in agents or ("worker",):
        made.agent(agent)
    return made
