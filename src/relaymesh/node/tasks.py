"""Tasks of a node: what the kernel knows of them, together with what the store knows.

The kernel has every live task, and those that ended until the store has them; the store has the others for 7
days. So the kernel is asked first: a task that it forgets between the two queries is in the store by then.

A session for threads calls `submit`, `show` and `list`. One for an event loop, which may not wait for the
disk, calls the parts: `decide` and then waits for the step; a query, and then `shown_in_store`; a `listing`
(`task_pages.py`), and then `page`.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import apsw

from relaymesh.errors import Closed, MeshError, NotFound, StoreLagging, TaskOver
from relaymesh.journal import Disk
from relaymesh.kernel.address import namespace_of
from relaymesh.kernel.query import Query, ShowTask
from relaymesh.kernel.request import Command, Result
from relaymesh.kernel.step import Step
from relaymesh.kernel.tasks.commands import (
    Answer,
    Cancel,
    PutVersion,
    SetBudget,
    Signal,
    Stored,
    Submit,
    Submitted,
)
from relaymesh.kernel.tasks.status import TASK_ENDS, Status
from relaymesh.kernel.tasks.views import TaskShown, TaskView
from relaymesh.node.core import Core
from relaymesh.node.payloads import Payloads
from relaymesh.node.release import shown_needs
from relaymesh.node.task_pages import PAGE_MAX, TaskListing
from relaymesh.node.task_story import TaskStories
from relaymesh.store import SqliteStore, TaskPage
from relaymesh.store.tasks import NEWEST, cursor_of
from relaymesh.wire.tasks import FindTasks, TaskStory

__all__ = ["Tasks"]

LOOKS_MAX = 5
"""How often a key is looked up before a submit is refused. The second look finds it, unless housekeeping
forgets more ended tasks in between.
"""
TO_LIVE_TASKS = (Answer, Cancel, SetBudget, Signal)
"""What the kernel refuses of a task that has ended."""


class Tasks:
    """`require_capacity` refuses what disk or store cannot take: see `Intake`."""

    def __init__(
        self,
        core: Core,
        store: SqliteStore | None,
        require_capacity: Callable[[int], None],
        payloads: Payloads,
        disk: Disk | None = None,
    ) -> None:
        self._core = core
        self._store = store
        self._require_capacity = require_capacity
        self._payloads = payloads
        self._stories = TaskStories(core, disk)

    # -- submitting

    def submit(self, command: Submit) -> Submitted:
        """Begin a task, unless its key is known; returns once that is durable."""
        with self._payloads.filed(command):
            result: Submitted = self._core.commit(self.decide(command))
        return result

    def decide(self, command: Submit) -> Step:
        """Look the key up and decide. The result leaves once the step is committed.

        Looks again if the kernel has meanwhile forgotten a key that the store did not have at the first look.
        """
        looks = 0
        while True:
            looks += 1
            self.prepare(command)
            step = self._core.submit(command)
            if not isinstance(step.error, StoreLagging) or looks == LOOKS_MAX:
                return step

    def prepare(self, command: Submit) -> None:
        """Note in the command what the store knows of its key, once disk and store can take the task.

        Does nothing that a second call does not do again.
        """
        self._require_capacity(command.plan.size + len(command.input))
        if self._store is None:
            command.known, command.looked = None, NEWEST
            return
        with _closed_as_closed():
            command.looked = self._store.applied  # before the look: it sees at least so much
            command.known = self._store.find_key(
                namespace_of(command.owner), command.key, self._core.time.now()
            )

    def put(self, command: PutVersion) -> Stored:
        """Keep a version of a workflow; returns once that is durable."""
        result: Stored = self._core.commit(self.decide_put(command))
        return result

    def decide_put(self, command: PutVersion) -> Step:
        """The same, without waiting."""
        self._require_capacity(len(command.document))
        return self._core.submit(command)

    def story(self, task: str) -> TaskStory | None:
        """What happened to a task, from the journal; None: there is none. Waits for the disk."""
        shown = self.show(task)
        return None if shown is None else self._stories.read(shown)

    # -- looking

    def show(self, task: str) -> TaskShown | None:
        """A task with its steps; None: there is none, or it ended more than 7 days ago."""
        shown, needs = self._core.observe(lambda kernel: kernel.look(ShowTask(task)))
        self._core.reach(shown_needs(shown, needs))
        return shown or self.shown_in_store(task)

    def refusal(self, command: Command[Any], error: NotFound) -> MeshError:
        """The error of a command about a task: one that is known may have ended. Waits for the disk."""
        if not isinstance(command, TO_LIVE_TASKS):
            return error
        shown = self.show(command.task)
        if shown is None or shown.task.status not in TASK_ENDS:
            return error
        return TaskOver(f"task {command.task} has ended as {shown.task.status}")

    def shown_in_store(self, task: str) -> TaskShown | None:
        """The same for a task that the kernel does not know."""
        if self._store is None:
            return None
        with _closed_as_closed():
            found = self._store.task(task)
            return None if found is None else TaskShown(found, tuple(self._store.steps(task)), found.through)

    def list(
        self,
        *,
        namespace: str | None = None,
        status: Status | None = None,
        workflow: str | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> TaskPage:
        """Tasks, the newest first. `before`: the `next` of the page before."""
        listing = self._listing(
            namespace=namespace, status=status, workflow=workflow, limit=limit, before=before
        )
        while (query := listing.query) is not None:
            listing.add(self._look(query))
        return self.page(listing)

    def listing(self, request: FindTasks) -> TaskListing:
        """Begin the page that a request asks for."""
        return self._listing(
            namespace=request.namespace,
            status=request.status,
            workflow=request.workflow,
            limit=min(request.limit, PAGE_MAX),
            before=None if request.before is None else cursor_of(request.before),
        )

    def found(self, request: FindTasks) -> builtins.list[TaskView]:
        """What a request asks for."""
        if not request.limit:
            return []
        listing = self.listing(request)
        while (query := listing.query) is not None:
            listing.add(self._look(query))
        return self.page(listing).tasks

    @staticmethod
    def page(listing: TaskListing) -> TaskPage:
        """The page of a listing that the kernel has answered. Waits for the disk."""
        with _closed_as_closed():
            return listing.page()

    def _listing(self, **wanted: Any) -> TaskListing:
        return TaskListing(
            self._store, lambda query: self._core.read(lambda kernel: kernel.look(query)), **wanted
        )

    def _look(self, query: Query[Result]) -> Result:
        answer, needs = self._core.observe(lambda kernel: kernel.look(query))
        self._core.reach(needs)
        return answer


@contextmanager
def _closed_as_closed() -> Iterator[None]:
    try:
        yield
    except apsw.ConnectionClosedError:
        raise Closed("this mesh is closed") from None
