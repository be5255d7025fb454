"""Tasks: workflows that are submitted, watched and cancelled."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from relaymesh.kernel.bounds import TEXT_LENGTH_MAX
from relaymesh.kernel.tasks.commands import TASK_ID_LENGTH_MAX
from relaymesh.kernel.tasks.plan import NAME_LENGTH_MAX, USAGE_MAX
from relaymesh.kernel.tasks.status import Status
from relaymesh.kernel.tasks.views import StepView, TaskShown, TaskView
from relaymesh.kernel.token import format_token
from relaymesh.wire.api.base import Address, Answer, Content, Name, Request, Time, Token
from relaymesh.wire.envelope import iso
from relaymesh.wire.tasks import (
    ITS_END,
    TaskStory,
)
from relaymesh.wire.usage import COST_USD_MAX, dollars_of

TASKS_MAX = 1_000
WAIT_S_MAX = 30

Document = Annotated[
    msgspec.Raw,
    Meta(
        description="A workflow: its name, and its steps by name (workflow.schema.json). Or, as text, the"
        " name of a stored one: `release`, or `release@3` for one version.",
        extra_json_schema={"type": ["object", "string"]},
    ),
]


ReplyTo = Annotated[
    str,
    Meta(
        description="The agent that gets the outcome as mail: `task_complete` or `task_failed`.",
        min_length=1,
        max_length=257,
    ),
]
Notify = Annotated[
    list[Literal["update", "complete", "failed"]],
    Meta(description="What the owner gets mail about.", max_length=6),
]


class SubmitRequest(Request, frozen=True):
    """Run a workflow once: the same request, or the same key, is the same task."""

    workflow: Document
    input: Annotated[Content, Meta(description="What the steps read as `input`.")] | UnsetType = UNSET
    key: Annotated[
        str,
        Meta(
            description="Idempotency key; empty: the digest of workflow and input.",
            max_length=TEXT_LENGTH_MAX,
        ),
    ] = ""
    again: Annotated[bool, Meta(description="Run it anew if it ended without success.")] = False
    owner: Name | None = None
    trace: Annotated[str, Meta(min_length=1, max_length=TEXT_LENGTH_MAX)] | None = None
    reply_to: ReplyTo | None = None
    notify: Notify = msgspec.field(default_factory=list)


class SubmittedAnswer(Answer, frozen=True):
    """The task. 201: it is new; 200: an earlier submit of the same request made it."""

    task: str
    duplicate: bool
    status: Status


class CancelRequest(Request, frozen=True):
    """End a task."""

    reason: Annotated[str, Meta(description="For people; cut at 2,000 characters.")] = ""
    hard: Annotated[bool, Meta(description="The leases of steps that run end too.")] = False


class AnswerRequest(Request, frozen=True):
    """The answer to the question of a step."""

    value: Annotated[Content, Meta(description="Any JSON value of at most 64 KiB.")]
    from_: (
        Annotated[Name, Meta(description="The agent that was asked, if the token is of several.")] | None
    ) = msgspec.field(default=None, name="from")


class SignalRequest(Request, frozen=True):
    """A signal from outside, for the step that waits for this name."""

    name: Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH_MAX)]
    value: Annotated[Content, Meta(description="Any JSON value of at most 64 KiB.")] | UnsetType = UNSET
    id: Annotated[
        str,
        Meta(
            description="Names the signal, which counts once; empty: it is new.",
            max_length=TASK_ID_LENGTH_MAX,
        ),
    ] = ""


class SignalledAnswer(Answer, frozen=True):
    """The signal is kept for its step. `duplicate`: its id came before, and it counts once."""

    task: str
    id: str
    duplicate: bool


class BudgetRequest(Request, frozen=True):
    """Another budget; what is left out stays as it is."""

    cost_usd: (
        Annotated[
            float,
            Meta(description="Dollars, with at most 6 decimals; 0: no limit.", ge=0, le=COST_USD_MAX),
        ]
        | None
    ) = None
    tokens: Annotated[int, Meta(description="Tokens of models; 0: no limit.", ge=0, le=USAGE_MAX)] | None = (
        None
    )


class RerunRequest(Request, frozen=True):
    """Run a task that has ended again, from one step on."""

    from_step: Annotated[
        str, Meta(description="The first step that runs again.", min_length=1, max_length=TEXT_LENGTH_MAX)
    ]
    input: (
        Annotated[Content, Meta(description="In place of the first input; absent: the same.")] | UnsetType
    ) = UNSET
    owner: Name | None = None


class TaskStatusAnswer(Answer, frozen=True):
    """The state of a task."""

    task: str
    status: Status


class TasksQuery(Request, frozen=True):
    """The query of `GET /v1/tasks`."""

    status: Status | None = None
    workflow: str | None = None
    namespace: str | None = None
    limit: Annotated[int, Meta(description="At most so many.", ge=1, le=TASKS_MAX)] = 100
    cursor: Annotated[int, Meta(description="`cursor` of the page before.", ge=0, le=1 << 62)] | None = None


class TaskQuery(Request, frozen=True):
    """The query of `GET /v1/tasks/{id}`."""

    wait: Annotated[float, Meta(description="Wait so many seconds for news.", ge=0, le=WAIT_S_MAX)] = 0.0
    seen: Annotated[int, Meta(description="`revision` that is known.", ge=-1, le=ITS_END)] = -1


class StepBody(Answer, frozen=True, omit_defaults=True):
    """One step of a task, as it is now."""

    name: str
    number: Annotated[int, Meta(description="Its number in the task.")]
    agent: Address
    status: Status
    attempt: Annotated[int, Meta(description="How often it was granted.")] = 0
    failed: int = 0
    abandoned: int = 0
    next_retry_at: Time | UnsetType = UNSET
    lease_owner: str = ""
    lease_token: Token | UnsetType = UNSET
    sent_at: Time | UnsetType = UNSET
    granted_at: Time | UnsetType = UNSET
    updated_at: Time | UnsetType = UNSET
    ended_at: Time | UnsetType = UNSET
    code: str = ""
    reason: str = ""
    waiting: Annotated[str, Meta(description="What a pending step waits for.")] = ""
    progress: str = ""
    output: Annotated[Content, Meta(description="Its result, while the task keeps it.")] | UnsetType = UNSET
    uncertain: Annotated[
        bool, Meta(description="It undoes a step of which it is unknown whether it was done.")
    ] = False


class TaskSummaryBody(Answer, frozen=True, omit_defaults=True):
    """A task without its steps."""

    task: str
    workflow: str
    status: Status
    owner: Address
    key: str
    request: Annotated[str, Meta(description="Digest of workflow and input, in hex.")]
    created_at: Time
    updated_at: Time
    updated_at_ms: Annotated[int, Meta(description="The same as a number.")]
    steps_total: int
    steps_ended: int
    sequence: Annotated[int, Meta(description="Of the event that submitted it.")]
    version: str = ""
    trace: str | UnsetType = UNSET
    ended_at: Time | UnsetType = UNSET
    reason: str = ""
    cost_usd: Annotated[float, Meta(description="What its attempts have used, in dollars.")] = 0.0
    tokens: Annotated[int, Meta(description="And in tokens of models.")] = 0
    cost_usd_max: Annotated[float, Meta(description="Its budget in dollars; 0: no limit.")] = 0.0
    tokens_max: Annotated[int, Meta(description="Its budget in tokens; 0: no limit.")] = 0
    waiting: Annotated[str, Meta(description="Why it sends nothing, or that it undoes what it did.")] = ""
    again_of: Annotated[str, Meta(description="The task whose outcomes it took over.")] = ""


class TaskBody(TaskSummaryBody, frozen=True, omit_defaults=True):
    """A task with its steps."""

    revision: Annotated[int, Meta(description="Another after each change: what a watch names as `seen`.")] = 0
    steps: list[StepBody] = msgspec.field(default_factory=list)
    result: Annotated[Content, Meta(description="The result of a success.")] | UnsetType = UNSET


class TaskEventBody(Answer, frozen=True, omit_defaults=True):
    """One thing that happened to a task or to one of its steps."""

    sequence: Annotated[int, Meta(description="Of the event in the journal.")]
    at: Time
    event: Annotated[
        Literal[
            "submitted",
            "sent",
            "expanded",
            "granted",
            "failed",
            "abandoned",
            "given_back",
            "dead_letter",
            "redriven",
            "purged",
            "step_ended",
            "closing",
            "ended",
        ],
        Meta(description="What happened."),
    ]
    step: Annotated[str, Meta(description="Empty: it happened to the task.")] = ""
    agent: str = ""
    holder: str = ""
    token: Annotated[str, Meta(description="Of the grant under which it happened.")] = ""
    status: str = ""
    code: str = ""
    reason: str = ""


class TaskStoryAnswer(Answer, frozen=True):
    """Oldest first."""

    task: str
    events: list[TaskEventBody]
    complete: Annotated[bool, Meta(description="Whether the journal still has all of it.")] = True


def story_body(story: TaskStory) -> TaskStoryAnswer:
    events: list[Any] = [
        TaskEventBody(**msgspec.structs.asdict(each) | {"at": iso(each.at)}) for each in story.events
    ]
    return TaskStoryAnswer(task=story.task, events=events, complete=story.complete)


class TasksAnswer(Answer, frozen=True):
    """Tasks, the newest first. `cursor`: names the next page; null: there is none."""

    tasks: list[TaskSummaryBody]
    cursor: int | None = None


def summary_body(view: TaskView) -> TaskSummaryBody:
    return TaskSummaryBody(**_fields(view))


def task_body(shown: TaskShown) -> TaskBody:
    result = shown.task.result
    return TaskBody(
        **_fields(shown.task),
        revision=shown.revision,
        steps=[_step(each) for each in shown.steps],
        result=UNSET if result is None else msgspec.Raw(result),
    )


def _fields(view: TaskView) -> dict[str, Any]:
    return {
        "task": view.task,
        "workflow": view.workflow,
        "status": view.status,
        "owner": view.owner,
        "key": view.key,
        "request": view.request.hex(),
        "created_at": iso(view.created_at),
        "updated_at": iso(view.updated_at),
        "updated_at_ms": view.updated_at,
        "steps_total": view.steps_total,
        "steps_ended": view.steps_ended,
        "sequence": view.sequence,
        "version": view.version,
        "trace": UNSET if view.trace is None else view.trace,
        "ended_at": iso(view.ended_at) if view.ended_at >= 0 else UNSET,
        "reason": view.reason,
        "cost_usd": dollars_of(view.cost_micros),
        "tokens": view.tokens,
        "cost_usd_max": dollars_of(view.cost_micros_max),
        "tokens_max": view.tokens_max,
        "waiting": view.waiting,
        "again_of": view.again_of,
    }


def _step(view: StepView) -> StepBody:
    return StepBody(
        name=view.name,
        number=view.number,
        agent=view.agent,
        status=view.status,
        attempt=view.attempt,
        failed=view.failed,
        abandoned=view.abandoned,
        next_retry_at=_time(view.next_retry_at),
        lease_owner=view.lease_owner,
        lease_token=format_token(view.lease_token) if view.lease_token else UNSET,
        sent_at=_time(view.sent_at),
        granted_at=_time(view.granted_at),
        updated_at=_time(view.updated_at),
        ended_at=_time(max(0, view.ended_at)),
        code=view.code,
        reason=view.reason,
        waiting=view.waiting,
        progress=view.progress,
        output=UNSET if view.output is None else msgspec.Raw(view.output),
        uncertain=view.uncertain,
    )


def _time(at: int) -> str | UnsetType:
    return iso(at) if at else UNSET
