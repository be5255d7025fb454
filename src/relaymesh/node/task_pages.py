"""One page of tasks: first what the kernel knows, part by part, then what only the store knows.

The kernel may know 100,000 tasks, and each look at it holds its lock: so a look is short, and an event loop
turns between two of them. The store is read last. What the kernel forgets meanwhile, the store has by then;
what the kernel still knows, the store may have in an old state, and it does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relaymesh.kernel.bounds import whole
from relaymesh.kernel.query import KnownTasks, ListTasks
from relaymesh.kernel.tasks.looks import TasksPart
from relaymesh.kernel.tasks.status import TASK_ENDS, Status
from relaymesh.kernel.tasks.views import TaskView
from relaymesh.store import SqliteStore, TaskPage
from relaymesh.store.tasks import page_of, sequence_of

PAGE_MAX = 1_000
"""Tasks of one page."""


class TaskListing:
    """A page that is being made. Ask the kernel `query` and `add` its answer until `query` is None; then
    read `page`, which waits for the disk.

    `known`: asks the kernel which tasks it knows.
    """

    def __init__(
        self,
        store: SqliteStore | None,
        known: Callable[[KnownTasks], frozenset[str]],
        *,
        namespace: str | None = None,
        status: Status | None = None,
        workflow: str | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> None:
        self._store = store
        self._known = known
        self._namespace, self._status, self._workflow = namespace, status, workflow
        self._limit = whole(limit, "limit", 1, PAGE_MAX)
        self._before = before
        self._found: dict[str, TaskView] = {}
        self._next: int | None = sequence_of(before)

    @property
    def query(self) -> ListTasks | None:
        """What to ask the kernel next; None: it has said enough."""
        wanted = self._limit + 1 - len(self._found)  # one more tells whether there is another page
        if self._next is None or wanted <= 0:
            return None
        return ListTasks(self._namespace, self._status, wanted, self._workflow, self._next)

    def add(self, part: TasksPart) -> None:
        self._found |= {view.task: view for view in part.tasks}
        self._next = part.next

    def page(self) -> TaskPage:
        """The page, with the tasks that only the store knows."""
        if self._store is not None:
            self._add_stored(self._store)
        found = sorted(self._found.values(), key=lambda view: view.sequence, reverse=True)
        return page_of(found, self._limit)

    def _add_stored(self, store: SqliteStore) -> None:
        """Read the store down to the last task of the page: behind it nothing can belong to it."""
        cursor = self._before
        while True:
            page = store.tasks(
                namespace=self._namespace,
                status=self._status,
                workflow=self._workflow,
                limit=self._limit + 1,
                before=cursor,
            )
            for view in self._only_stored(page.tasks, store):
                self._found[view.task] = view
            cursor = page.next
            if cursor is None or self._reaches(sequence_of(cursor)):
                return

    def _reaches(self, sequence: int) -> bool:
        """Whether more tasks than the page holds were submitted at or behind this sequence."""
        return sum([view.sequence >= sequence for view in self._found.values()]) > self._limit

    def _only_stored(self, views: Sequence[TaskView], store: SqliteStore) -> list[TaskView]:
        new = [view for view in views if view.task not in self._found]
        known = self._known(KnownTasks([view.task for view in new])) if new else frozenset()
        found: list[TaskView] = []
        for view in new:
            latest: TaskView | None = view
            if view.task in known:
                continue
            if view.status not in TASK_ENDS:  # it ended, and the kernel forgot it, since the store was read
                latest = store.task(view.task)
            if latest is not None and self._status in (None, latest.status):
                found.append(latest)
        return found
