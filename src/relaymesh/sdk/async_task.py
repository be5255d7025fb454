"""A task on an event loop: a workflow that was submitted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from time import monotonic
from typing import TYPE_CHECKING, Any

from relaymesh.kernel.bounds import patience
from relaymesh.kernel.tasks.commands import Answer, Cancel, SetBudget, Signal
from relaymesh.kernel.tasks.status import TASK_ENDS, Status
from relaymesh.sdk.outcomes import WATCH_S, found, result_of, spent
from relaymesh.sdk.submission import MESH_SENDER, json_of, value_of
from relaymesh.sdk.task_views import (
    TaskEvent,
    TaskState,
    state_of,
    story_of,
)
from relaymesh.wire.tasks import (
    ITS_END,
    FindTask,
    RerunTask,
    TellTask,
    WatchTask,
)
from relaymesh.wire.usage import budget_micros

if TYPE_CHECKING:
    from relaymesh.sdk.async_mesh import AsyncMesh

__all__ = ["AsyncTask"]


class AsyncTask:
    """One run of a workflow. `duplicate`: an earlier submit of the same request started it."""

    def __init__(self, mesh: AsyncMesh, id: str, duplicate: bool = False) -> None:
        self._mesh = mesh
        self.id = id
        self.duplicate = duplicate

    def __repr__(self) -> str:
        return f"<Task {self.id}>"

    async def show(self) -> TaskState:
        """The task and its steps, as they are now."""
        return state_of(found(await self._mesh._session.execute(FindTask(self.id)), self.id))

    async def story(self) -> list[TaskEvent]:
        """Everything that happened to the task and its steps, oldest first, from the journal. If the journal
        no longer has the submit, the story begins later. A mesh in memory has only the submit and the end.
        """
        return story_of(found(await self._mesh._session.execute(TellTask(self.id)), self.id))

    async def status(self) -> Status:
        """PENDING, RUNNING, DEAD_LETTER (it waits for a redrive), SUCCESS, FAILED, TIMEOUT or CANCELLED."""
        return (await self.show()).status

    async def result(self, timeout: float | None = None) -> Any:
        """Wait for the end, and return the result. Raises `TaskFailed` for any end but SUCCESS.

        timeout: seconds; None waits forever. Raises `NoAnswer` when the time is over. The result is the
        output of the last step; with several last steps, a dict of their outputs by name.
        """
        given = left = patience(timeout)
        session = self._mesh._session
        while True:
            rest = WATCH_S if left is None else min(WATCH_S, left)
            asked, began = session.now(), monotonic()
            shown = found(await session.execute(WatchTask(self.id, ITS_END, rest)), self.id)
            if left is not None:
                left = max(0.0, left - spent(rest, (session.now() - asked) / 1000, monotonic() - began))
            if shown.task.status in TASK_ENDS or left == 0:
                return result_of(shown, given)

    async def watch(self) -> AsyncIterator[TaskState]:
        """The task and its steps, now and after each change, until it has ended."""
        seen = -1
        while True:
            request = WatchTask(self.id, seen, WATCH_S)
            shown = found(await self._mesh._session.execute(request), self.id)
            if shown.revision != seen or shown.task.status in TASK_ENDS:
                yield state_of(shown)
            if shown.task.status in TASK_ENDS:
                return
            seen = shown.revision

    async def answer(self, step: str, value: Any, *, by: str) -> Status:
        """Answer the question of a step, as the agent that is asked. Returns the state of the task. The first
        answer counts: a second one, or one after the time limit, raises `Conflict`. An answer by another
        agent raises `Unauthorized`; a value that is not one of the options raises `InvalidValue`.
        """
        data = value_of(value, "the answer")
        address = self._mesh._names.agent(by, "by")
        return await self._mesh._session.execute(Answer(self.id, step, data, address))

    async def signal(self, name: str, value: Any = None, *, id: str | None = None) -> bool:
        """Signal the task: the step that waits for this name gets the value, now or when it waits. id:
        identifies the signal, which counts once; without it each call is a new signal. Returns whether the id
        came before.
        """
        data, session = value_of(value, "the value of the signal"), self._mesh._session
        chosen = session.new_ids(1)[0] if id is None else id
        return await session.execute(Signal(self.id, name, chosen, data)) and id is not None

    async def set_budget(self, *, cost_usd: float | None = None, tokens: int | None = None) -> Status:
        """Give the task another budget; None: unchanged, 0: no limit. Returns the state of the task. With a
        larger budget, a task that has used its budget goes on. `cost_usd` has at most 6 decimals.
        """
        cost = None if cost_usd is None else budget_micros(cost_usd)
        return await self._mesh._session.execute(SetBudget(self.id, cost, tokens))

    async def rerun(self, from_step: str, input: Any = ..., *, owner: str | None = None) -> AsyncTask:
        """Run a task that has ended again, from one step on. Returns the new task.

        This step runs again, and so do steps whose work was undone, and the steps that depend on them; all
        others keep their outcomes. `input`: replaces the first input. `owner`: the agent that pays for it.
        """
        data = None if input is ... else json_of(input)
        address = MESH_SENDER if owner is None else self._mesh._names.agent(owner, "owner")
        submitted = await self._mesh._session.execute(RerunTask(self.id, from_step, data, address))
        return AsyncTask(self._mesh, submitted.task, submitted.duplicate)

    async def cancel(self, reason: str = "", *, hard: bool = False) -> Status:
        """End the task. Running steps may finish; `hard`: their leases end too. Returns its state."""
        return await self._mesh._session.execute(Cancel(self.id, reason, "", hard))
