"""Tasks, limited to what a credential may submit, see and cancel.

| needs | what |
|---|---|
| `write` | submit, cancel, signal, budget, rerun |
| `agent` | answer, as the agent that was asked |
| `read` | show, watch, list |

A task belongs to the namespace of its owner; one of another namespace is not there.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import msgspec

from relaymesh.errors import NotFound
from relaymesh.kernel.address import DEFAULT_NAMESPACE, name_of
from relaymesh.kernel.bounds import ADDRESS_LENGTH_MAX
from relaymesh.kernel.commands import KeepTaken
from relaymesh.kernel.query import ShowTask
from relaymesh.kernel.request import Command, Result
from relaymesh.kernel.tasks.advance import SENDER_NAME
from relaymesh.kernel.tasks.commands import Answer, Cancel, Grow, SetBudget, Signal, Submitted
from relaymesh.kernel.tasks.status import Status
from relaymesh.kernel.tasks.views import TaskShown, TaskView
from relaymesh.server.pages import PAGE_BYTES_MAX
from relaymesh.server.security.accounts import Account
from relaymesh.server.security.principal import EVERYWHERE, RESERVED_NAMES, Principal
from relaymesh.server.served import Served
from relaymesh.wire.content import check_sound
from relaymesh.wire.tasks import (
    FindTask,
    FindTasks,
    GrowStep,
    RerunTask,
    SubmitTask,
    TaskStory,
    TellTask,
    WatchTask,
    answer_value,
)

WAIT_S_MAX = 30.0
"""The longest wait of one request for news of a task."""
LARGE_BYTES = 65_536
"""A larger workflow or input is checked alone of its credential."""


class Tasks:
    """The tasks of a node, for one credential. `speaker`: the agent that it said hello as."""

    def __init__(
        self, served: Served, principal: Principal, account: Account, speaker: str | None = None
    ) -> None:
        self._served = served
        self._principal = principal
        self._account = account
        self._speaker = speaker

    def owner(self, given: str | None) -> str:
        """The agent that pays for a task: the credential's agent, or the given one; else the mesh in its
        namespace."""
        principal = self._principal
        if given is not None and name_of(given) in RESERVED_NAMES:
            given = None if not principal.everywhere else given
        if given is None and not principal.agents and self._speaker is None:
            return f"{self._namespace}/{SENDER_NAME}"
        if given is not None and principal.everywhere:
            return principal.address(given, "owner")
        return principal.sender(given, self._speaker)

    @property
    def _namespace(self) -> str:
        return DEFAULT_NAMESPACE if self._principal.namespace == EVERYWHERE else self._principal.namespace

    async def submit(self, request: SubmitTask) -> Submitted:
        """Compile and check it in another thread, then begin it. Its owner was stamped before."""
        request.budget = self._served.budget
        make = partial(self._served.node.workflows.command, request)
        if len(request.document) + len(request.input) > LARGE_BYTES:
            async with self._account.long_work:
                command = await self._served.off_loop(make)
        else:
            command = await self._served.off_loop(make)
        return await self._served.session.submit(command)

    async def find(self, task: str, seen: int | None = None, wait_s: float = 0.0) -> TaskShown | None:
        """The task, if it is of the credential's namespace. `seen`, `wait_s`: wait for news of it."""
        shown = await self._served.session.execute(FindTask(task))
        if shown is None or not self._principal.sees(shown.task.owner):
            return None
        if seen is not None and wait_s > 0:
            request = WatchTask(task, seen, min(wait_s, WAIT_S_MAX))
            shown = await self._served.session.execute(request)
        return None if shown is None else bounded(shown)

    async def story(self, task: str) -> TaskStory | None:
        """What happened to a task of the credential's namespace."""
        if await self.find(task) is None:
            return None
        return await self._served.session.execute(TellTask(task))

    async def listed(self, request: FindTasks) -> list[TaskView]:
        """Without their results."""
        if not self._principal.everywhere:
            if request.namespace not in (None, self._principal.namespace):
                return []
            request.namespace = self._principal.namespace
        views = await self._served.session.execute(request)
        return [msgspec.structs.replace(view, result=None) for view in views]

    def reply_to(self, given: str | None) -> str:
        """The mailbox that gets the outcome; empty: none."""
        return "" if given is None else self._principal.address(given, "replyTo")

    async def rerun(self, request: RerunTask) -> Submitted:
        """Run a task that has ended again. Its owner was stamped before."""
        request.budget = self._served.budget
        if await self.find(request.task) is None:
            raise missing(request.task)
        async with self._account.long_work:
            command = await self._served.off_loop(partial(self._served.node.rerun.command, request))
        return await self._served.session.submit(command)

    async def cancel(self, task: str, reason: str, *, hard: bool) -> Status:
        return await self._change(task, Cancel(task, reason, self._by, hard))

    async def signal(self, task: str, name: str, id: str, value: bytes) -> tuple[str, bool]:
        """The id of the signal, and whether it came before."""
        id = id or self._served.node.new_ids(1)[0]
        command = Signal(task, name, id, value, self._by)
        check_sound(value, what="the value of a signal")
        return command.id, await self._change(task, command)

    async def set_budget(self, task: str, cost_micros: int | None, tokens: int | None) -> Status:
        return await self._change(task, SetBudget(task, cost_micros, tokens, self._by))

    def answerer(self, given: str | None) -> str:
        """The agent that answers: the credential's, or the one given."""
        return self._principal.sender(given, self._speaker)

    async def answer(self, task: str, step: str, value: bytes, by: str) -> Status:
        """The answer of an agent, which was stamped before, to the question of a step."""
        command = Answer(task, step, value, by)
        command.value = answer_value(check_sound(value, what="an answer"))
        return await self._change(task, command)

    async def _change(self, task: str, command: Command[Result]) -> Result:
        """Execute it. A task of another namespace is `NotFound`."""
        shown = await self._served.session.execute(ShowTask(task))
        if shown is not None and not self._principal.sees(shown.task.owner):
            raise missing(task)
        return await self._served.session.execute(command)

    @property
    def _by(self) -> str:
        principal = self._principal
        if len(principal.agents) == 1:
            return principal.address(next(iter(principal.agents)))
        return self._speaker or f"token {principal.label or principal.token_id}"[:ADDRESS_LENGTH_MAX]


async def renew_taken(served: Served, agents: Iterable[str]) -> None:
    """A heartbeat of these agents: the steps that they took stay theirs."""
    if taken := served.roster.with_taken(agents):
        await served.session.execute(KeepTaken(taken))


async def growth(served: Served, account: Account, request: GrowStep) -> Grow:
    """Compile and check the steps in another thread."""
    make = partial(served.node.growing.command, request)
    if len(request.document) <= LARGE_BYTES:
        return await served.off_loop(make)
    async with account.long_work:
        return await served.off_loop(make)


def sound_json(data: bytes) -> bytes:
    """The result of a step from outside: JSON that any reader can read."""
    return check_sound(data, what="the result of a step")


def missing(task: str) -> NotFound:
    return NotFound(
        f"there is no task {task[:128]}", hint="GET /v1/tasks, or the call find_tasks, lists them"
    )


def bounded(shown: TaskShown) -> TaskShown:
    """Without the results of its steps where they are too much for one answer; its own stays."""
    if sum([len(step.output or b"") for step in shown.steps]) <= PAGE_BYTES_MAX:
        return shown
    steps = tuple([msgspec.structs.replace(step, output=None) for step in shown.steps])
    return msgspec.structs.replace(shown, steps=steps)
