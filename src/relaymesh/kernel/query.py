"""Queries: what the shell may read. Each is answered from the state, as values, and changes nothing.

A `durable` query shows what a power loss must not revert: its answer leaves once everything that it saw is
durable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, get_args

from relaymesh.kernel.bounds import ADDRESS_LENGTH_MAX, COUNT_MAX, TEXT_LENGTH_MAX, one_of, text, whole
from relaymesh.kernel.dead_letters import DeadLetter
from relaymesh.kernel.looks import Looked, first_pending, mailboxes_of
from relaymesh.kernel.pending import Pending
from relaymesh.kernel.request import Request, Result_co
from relaymesh.kernel.schedules.commands import schedule_name
from relaymesh.kernel.schedules.schedule import Schedule, ScheduleView
from relaymesh.kernel.tasks.commands import TASK_ID_LENGTH_MAX, workflow_name, workflow_version
from relaymesh.kernel.tasks.looks import (
    Question,
    ReadyTask,
    Scope,
    StepBounds,
    TasksPart,
    Wanted,
    find,
    grant_of,
    growth_of,
    known_of,
    last_grants,
    question_of,
    ready_of,
    step_bounds,
    tasks_of,
    to_advance,
)
from relaymesh.kernel.tasks.owed import Owed
from relaymesh.kernel.tasks.status import Status
from relaymesh.kernel.tasks.stored import WorkflowView
from relaymesh.kernel.tasks.views import StepGrant, TaskShown

__all__ = [
    "ANSWERS",
    "BoundsOf",
    "DeadLetters",
    "DueSchedules",
    "FindGrant",
    "FindLetters",
    "FindQuestion",
    "GrantsOf",
    "KnownTasks",
    "ListSchedules",
    "ListTasks",
    "ListWorkflows",
    "MailboxesOf",
    "Peek",
    "Query",
    "ReadySteps",
    "ShowSchedule",
    "ShowTask",
    "ShowWorkflow",
    "TaskRevision",
    "TasksToAdvance",
]


class Query(Request[Result_co]):
    """A request that changes nothing."""

    durable: ClassVar[bool] = False


class DeadLetters(Query[list[DeadLetter]]):
    """All of them."""

    durable: ClassVar[bool] = True


class FindLetters(Query[list[DeadLetter | None]]):
    """The dead letters of these names, (mailbox, dead sequence); None where there is none."""

    durable: ClassVar[bool] = True
    names: Sequence[tuple[str, int]]


class MailboxesOf(Query[dict[int, str]]):
    """The mailbox of each of these lease tokens that is still held."""

    tokens: Sequence[int]


class GrantsOf(Query[dict[int, str]]):
    """The same, and the mailboxes of tokens that were the last ones of steps that are still open."""

    tokens: Sequence[int]


class FindGrant(Query[StepGrant | None]):
    """The last grant of a step of a live task, by names; None: there is no such task or step."""

    durable: ClassVar[bool] = True
    task: str
    step: str

    def __post_init__(self) -> None:
        self.task = text(self.task, "task id", 1, TASK_ID_LENGTH_MAX)
        self.step = text(self.step, "step", 1, TEXT_LENGTH_MAX)


class FindQuestion(Query[Question | None]):
    """The step that waits for the answer to a message of a mailbox; None: there is none."""

    durable: ClassVar[bool] = True
    mailbox: str
    id: str

    def __post_init__(self) -> None:
        self.mailbox = text(self.mailbox, "mailbox", 1, ADDRESS_LENGTH_MAX)
        self.id = text(self.id, "message id", 1, TEXT_LENGTH_MAX)


class Peek(Query[list[Pending]]):
    """Pending messages of a mailbox, in the order of acceptance, without taking them."""

    mailbox: str
    limit: int

    def __post_init__(self) -> None:
        self.limit = whole(self.limit, "limit", 0, COUNT_MAX)


class ShowTask(Query[TaskShown | None]):
    """A live task, or one that ended a moment ago; None: the store may know it."""

    durable: ClassVar[bool] = True
    task: str

    def __post_init__(self) -> None:
        self.task = text(self.task, "task id", 1, TASK_ID_LENGTH_MAX)


class ListTasks(Query[TasksPart]):
    """Live tasks, and those that ended a moment ago, the newest first: as many as one look finds."""

    durable: ClassVar[bool] = True
    namespace: str | None = None
    status: Status | None = None
    limit: int = 100
    workflow: str | None = None
    before: int | None = None

    def __post_init__(self) -> None:
        self.limit = whole(self.limit, "limit", 0, COUNT_MAX)
        if self.status is not None:
            one_of(self.status, "status", get_args(Status))


class KnownTasks(Query[frozenset[str]]):
    """Which of these tasks are live, or ended a moment ago: of those the store may have an old state."""

    ids: Sequence[str]


class ShowWorkflow(Query[WorkflowView | None]):
    """A version of a workflow with its document; empty: the version that was put last."""

    durable: ClassVar[bool] = True
    namespace: str
    name: str
    version: str = ""

    def __post_init__(self) -> None:
        self.namespace = text(self.namespace, "namespace", 1, ADDRESS_LENGTH_MAX)
        self.name = workflow_name(self.name)
        self.version = workflow_version(self.version)


class ListWorkflows(Query[list[WorkflowView]]):
    """The last version of each workflow, or every version of the one named; the newest first.

    `before`: only those put before this sequence.
    """

    durable: ClassVar[bool] = True
    namespace: str | None = None
    name: str | None = None
    limit: int = 100
    before: int | None = None

    def __post_init__(self) -> None:
        if self.namespace is not None:
            self.namespace = text(self.namespace, "namespace", 1, ADDRESS_LENGTH_MAX)
        if self.name is not None:
            self.name = workflow_name(self.name)
        self.limit = whole(self.limit, "limit", 0, COUNT_MAX)
        if self.before is not None:
            self.before = whole(self.before, "before", 0, 1 << 62)


class ShowSchedule(Query[ScheduleView | None]):
    """A schedule, and why its tick waits if it does; None: there is none."""

    durable: ClassVar[bool] = True
    namespace: str
    name: str

    def __post_init__(self) -> None:
        self.namespace = text(self.namespace, "namespace", 1, ADDRESS_LENGTH_MAX)
        self.name = schedule_name(self.name)


class ListSchedules(Query[list[ScheduleView]]):
    """Schedules by namespace and name, without their documents, inputs and messages.

    `after`: only those behind this `namespace/name`.
    """

    durable: ClassVar[bool] = True
    namespace: str | None = None
    limit: int = 100
    after: str = ""

    def __post_init__(self) -> None:
        if self.namespace is not None:
            self.namespace = text(self.namespace, "namespace", 1, ADDRESS_LENGTH_MAX)
        self.limit = whole(self.limit, "limit", 0, COUNT_MAX)
        self.after = text(self.after, "after", 0, ADDRESS_LENGTH_MAX)


class DueSchedules(Query[list[Schedule]]):
    """Schedules to look at by `now`, the longest due first."""

    now: int
    limit: int


class ReadySteps(Query[ReadyTask | None]):
    """The steps of a task that may be sent now."""

    task: str


class TaskRevision(Query[int | None]):
    """Another number after each change of a live task; None: it is not live."""

    task: str


class TasksToAdvance(Query[list[str]]):
    """The tasks that have such steps."""


class GrowthScope(Query[Scope | None]):
    """What the steps may read that the holder of this grant adds; None: it is not the last one of a step."""

    token: int


class BoundsOf(Query[StepBounds | None]):
    """What an attempt may still use, by its grant; None: the grant is not the last one of a step."""

    token: int


class OwedNotices(Query[list[Owed]]):
    """Mail about tasks that is not sent yet, the oldest first."""

    limit: int = 64


def _dead_letters(of: Looked, query: DeadLetters) -> list[DeadLetter]:  # noqa: ARG001 - takes nothing
    return list(of.state.letters)


def _find_letters(of: Looked, query: FindLetters) -> list[DeadLetter | None]:
    return [of.state.letters.find(*name) for name in query.names]


def _mailboxes_of(of: Looked, query: MailboxesOf) -> dict[int, str]:
    return mailboxes_of(query.tokens, of)


def _grants_of(of: Looked, query: GrantsOf) -> dict[int, str]:
    return {**last_grants(of.state, query.tokens), **mailboxes_of(query.tokens, of)}


def _find_grant(of: Looked, query: FindGrant) -> StepGrant | None:
    return grant_of(of.state, query.task, query.step)


def _find_question(of: Looked, query: FindQuestion) -> Question | None:
    return question_of(of.state, query.mailbox, query.id)


def _peek(of: Looked, query: Peek) -> list[Pending]:
    return first_pending(query.mailbox, query.limit, of)


def _show_task(of: Looked, query: ShowTask) -> TaskShown | None:
    return find(of.state, query.task)


def _list_tasks(of: Looked, query: ListTasks) -> TasksPart:
    wanted = Wanted(query.namespace, query.status, query.workflow)
    return tasks_of(of.state, wanted, query.limit, query.before)


def _known_tasks(of: Looked, query: KnownTasks) -> frozenset[str]:
    return known_of(of.state, query.ids)


def _show_workflow(of: Looked, query: ShowWorkflow) -> WorkflowView | None:
    return of.state.workflows.find(query.namespace, query.name, query.version)


def _list_workflows(of: Looked, query: ListWorkflows) -> list[WorkflowView]:
    return of.state.workflows.list(query.namespace, query.name, query.limit, query.before)


def _show_schedule(of: Looked, query: ShowSchedule) -> ScheduleView | None:
    schedules = of.state.schedules
    schedule = schedules.find(query.namespace, query.name)
    return None if schedule is None else schedules.view(schedule)


def _list_schedules(of: Looked, query: ListSchedules) -> list[ScheduleView]:
    return of.state.schedules.list(query.namespace, query.limit, query.after)


def _due_schedules(of: Looked, query: DueSchedules) -> list[Schedule]:
    return of.state.schedules.due(query.now, query.limit)


def _ready_steps(of: Looked, query: ReadySteps) -> ReadyTask | None:
    return ready_of(of.state, query.task)


def _task_revision(of: Looked, query: TaskRevision) -> int | None:
    task = of.state.board.tasks.get(query.task)
    return None if task is None else task.revision


def _tasks_to_advance(of: Looked, query: TasksToAdvance) -> list[str]:  # noqa: ARG001 - takes nothing
    return to_advance(of.state)


def _growth_scope(of: Looked, query: GrowthScope) -> Scope | None:
    return growth_of(of.state, query.token)


def _bounds_of(of: Looked, query: BoundsOf) -> StepBounds | None:
    return step_bounds(of.state, query.token)


def _owed_notices(of: Looked, query: OwedNotices) -> list[Owed]:
    return of.state.board.owed.first(query.limit)


ANSWERS: dict[type[Query[Any]], Callable[[Looked, Any], Any]] = {
    DeadLetters: _dead_letters,
    FindLetters: _find_letters,
    MailboxesOf: _mailboxes_of,
    GrantsOf: _grants_of,
    FindGrant: _find_grant,
    FindQuestion: _find_question,
    Peek: _peek,
    ShowTask: _show_task,
    ListTasks: _list_tasks,
    KnownTasks: _known_tasks,
    ShowWorkflow: _show_workflow,
    ListWorkflows: _list_workflows,
    ShowSchedule: _show_schedule,
    ListSchedules: _list_schedules,
    DueSchedules: _due_schedules,
    ReadySteps: _ready_steps,
    TaskRevision: _task_revision,
    TasksToAdvance: _tasks_to_advance,
    GrowthScope: _growth_scope,
    BoundsOf: _bounds_of,
    OwedNotices: _owed_notices,
}
