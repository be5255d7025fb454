"""Requests about tasks to the node, and the message that a step is."""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from relaymesh.errors import InvalidValue
from relaymesh.kernel.address import name_of
from relaymesh.kernel.bounds import (
    ADDRESS_LENGTH_MAX,
    COUNT_MAX,
    TEXT_LENGTH_MAX,
    TOKEN_MAX,
    exact,
    flag,
    one_of,
    seconds,
    shown,
    text,
    whole,
)
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.moment import iso
from relaymesh.kernel.records import NoticeKind
from relaymesh.kernel.request import Request
from relaymesh.kernel.tasks.advance import QUESTION_TYPE, SENDER_NAME, STEP_TYPE
from relaymesh.kernel.tasks.commands import (
    NO_USAGE,
    TASK_ID_LENGTH_MAX,
    Stored,
    Submitted,
    Usage,
    workflow_name,
    workflow_version,
)
from relaymesh.kernel.tasks.status import Status
from relaymesh.kernel.tasks.stored import WorkflowView
from relaymesh.kernel.tasks.views import TaskShown, TaskView
from relaymesh.wire.bodies import ORDERS, TaskAsks, TaskAssigned

__all__ = [
    "ITS_END",
    "FindTask",
    "FindTasks",
    "FindWorkflow",
    "GrowStep",
    "OfTasks",
    "PutWorkflow",
    "QuestionMessage",
    "RerunTask",
    "StepMessage",
    "SubmitTask",
    "TaskEvent",
    "TaskStory",
    "TellTask",
    "WatchTask",
    "answer_value",
    "is_order",
    "is_step",
    "notify_kinds",
    "question_content",
    "question_message",
    "step_content",
    "step_message",
]

DOCUMENT_BYTES_MAX = 1_048_576
NOTIFY: tuple[NoticeKind, ...] = ("update", "complete", "failed")
"""What the owner of a task may get mail about."""
ITS_END = 1 << 62
"""`seen` of a watch that waits for the end of a task alone."""


class SubmitTask(Request[Submitted]):
    """Run a workflow once. `document` and `input` are JSON; the node compiles and checks them.

    A `document` that is a string names a stored workflow of the owner's namespace: "release", "release@3".
    `key`: the idempotency key; empty: the digest of the request. `again`: run it anew if it ended without
    success. `reply_to`: the mailbox that gets the outcome; `notify`: what the owner gets mail about.
    """

    document: bytes
    input: bytes = b"null"
    key: str = ""
    owner: str = ""
    trace: str | None = None
    again: bool = False
    budget: int = 0
    reply_to: str = ""
    notify: tuple[NoticeKind, ...] = ()

    def __post_init__(self) -> None:
        _check_json(self.document, "document")
        _check_json(self.input, "input")
        self.reply_to = text(self.reply_to, "reply_to", 0, ADDRESS_LENGTH_MAX)
        self.notify = notify_kinds(self.notify)
        self.key = exact(self.key, "key", 0, TEXT_LENGTH_MAX)
        self.owner = text(self.owner, "owner", 1, ADDRESS_LENGTH_MAX)
        if self.trace is not None:
            self.trace = text(self.trace, "trace", 1, TEXT_LENGTH_MAX)
        flag(self.again, "again")


class RerunTask(Request[Submitted]):
    """Run a task that has ended again, from one step on: the steps before it keep their outcomes.

    `input`: JSON in place of the first input; None: the same. `owner`: pays for the new task.
    """

    task: str
    from_step: str
    input: bytes | None = None
    owner: str = ""
    budget: int = 0

    def __post_init__(self) -> None:
        self.task = text(self.task, "task id", 1, TASK_ID_LENGTH_MAX)
        self.from_step = text(self.from_step, "the name of a step", 1, TEXT_LENGTH_MAX)
        if self.input is not None:
            _check_json(self.input, "input")
        self.owner = text(self.owner, "owner", 1, ADDRESS_LENGTH_MAX)


class GrowStep(Request[Status]):
    """Settle the delivery of a step with more steps. `document` is JSON: as `steps` of a workflow, or a list.

    The node compiles and checks it. Returns the state of the task.
    """

    token: int
    document: bytes
    usage: Usage = NO_USAGE

    def __post_init__(self) -> None:
        self.token = whole(self.token, "token", 0, TOKEN_MAX)
        _check_json(self.document, "steps")


class FindTask(Request[TaskShown | None]):
    """A task with its steps, live or ended; None: there is none."""

    task: str

    def __post_init__(self) -> None:
        self.task = text(self.task, "task id", 1, TASK_ID_LENGTH_MAX)


class WatchTask(Request[TaskShown | None]):
    """The same, once its `revision` is not `seen`, or it ended, or the time is over."""

    task: str
    seen: int = -1
    wait_s: float = 0.0

    def __post_init__(self) -> None:
        self.task = text(self.task, "task id", 1, TASK_ID_LENGTH_MAX)
        self.seen = whole(self.seen, "seen", -1, ITS_END)
        self.wait_s = seconds(self.wait_s, "wait_s")


class TaskEvent(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One thing that happened to a task or to one of its steps, as the journal has it.

    `event`: submitted, sent, expanded, granted, failed, abandoned, given_back, dead_letter, redriven, purged,
    step_ended, closing or ended. `token`: of the grant under which it happened.
    """

    sequence: int
    at: int
    event: str
    step: str = ""
    agent: str = ""
    holder: str = ""
    token: str = ""
    status: str = ""
    code: str = ""
    reason: str = ""


class TaskStory(msgspec.Struct, frozen=True, gc=False):
    """Everything that happened, oldest first. `complete`: the journal still has all of it."""

    task: str
    events: list[TaskEvent]
    complete: bool = True


class TellTask(Request[TaskStory | None]):
    """The story of a task; None: there is no such task."""

    task: str

    def __post_init__(self) -> None:
        self.task = text(self.task, "task id", 1, TASK_ID_LENGTH_MAX)


class FindTasks(Request[list[TaskView]]):
    """Tasks of a namespace, the newest first. `before`: only those submitted before this sequence."""

    namespace: str | None = None
    status: Status | None = None
    workflow: str | None = None
    limit: int = 100
    before: int | None = None

    def __post_init__(self) -> None:
        if self.namespace is not None:
            self.namespace = text(self.namespace, "namespace", 0, ADDRESS_LENGTH_MAX)
        if self.status is not None:
            one_of(self.status, "status", get_args(Status))
        if self.workflow is not None:
            self.workflow = text(self.workflow, "workflow", 0, TEXT_LENGTH_MAX)
        self.limit = whole(self.limit, "limit", 0, COUNT_MAX)
        if self.before is not None:
            self.before = whole(self.before, "before", 0, 1 << 62)


class PutWorkflow(Request[Stored]):
    """Keep a workflow under a version, for runs by name; empty: the one in the document, or the next number.

    `document` is JSON; the node checks it whole. The namespace is that of the owner.
    """

    document: bytes
    version: str = ""
    owner: str = ""
    budget: int = 0

    def __post_init__(self) -> None:
        _check_json(self.document, "document")
        self.version = workflow_version(self.version)
        self.owner = text(self.owner, "owner", 1, ADDRESS_LENGTH_MAX)


class FindWorkflow(Request[WorkflowView | None]):
    """A version of a stored workflow with its whole document; empty: the version that was put last."""

    namespace: str
    name: str
    version: str = ""

    def __post_init__(self) -> None:
        self.namespace = text(self.namespace, "namespace", 1, ADDRESS_LENGTH_MAX)
        self.name = workflow_name(self.name)
        self.version = workflow_version(self.version)


def _check_json(value: Any, what: str) -> None:
    if type(value) is not bytes or len(value) > DOCUMENT_BYTES_MAX:
        raise InvalidValue(f"{what} must be at most {DOCUMENT_BYTES_MAX} bytes of JSON, not {shown(value)}")


def notify_kinds(given: Any) -> tuple[NoticeKind, ...]:
    """What the owner of a task gets mail about, each once."""
    if type(given) not in (list, tuple):
        raise InvalidValue(
            f"notify must be a list, not {shown(given)}", hint='write notify=["complete", "failed"]'
        )
    kinds: list[Any] = [one_of(kind, "notify", NOTIFY) for kind in given[: 2 * len(NOTIFY)]]
    return tuple(dict.fromkeys(kinds))


OfTasks = (
    SubmitTask
    | RerunTask
    | GrowStep
    | FindTask
    | WatchTask
    | FindTasks
    | TellTask
    | PutWorkflow
    | FindWorkflow
)
"""Requests that the node answers."""


class QuestionMessage(msgspec.Struct, frozen=True, gc=False):
    """What of the content of a step's question names the step."""

    task: str
    step: str


class StepMessage(msgspec.Struct, frozen=True, gc=False):
    """The content of a step's message."""

    task: str
    step: str
    workflow: str
    input: Any = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(StepMessage)
_question_decoder = msgspec.json.Decoder(QuestionMessage)


def step_content(
    task: str,
    step: str,
    workflow: str,
    input: bytes,
    deadline_at: int = 0,
    undoes: str = "",
    uncertain: bool = False,
) -> bytes:
    """The content of the message of a step; `input` is JSON. `deadline_at`: of its task; 0: it has none."""
    assigned = TaskAssigned(
        task=task,
        step=step,
        workflow=workflow,
        input=msgspec.Raw(input),
        deadline=iso(deadline_at) if deadline_at else msgspec.UNSET,
        undoes=undoes or msgspec.UNSET,
        uncertain=uncertain if undoes else msgspec.UNSET,
    )
    return _encoder.encode(assigned)


def question_content(
    task: str, step: str, workflow: str, question: Any, options: list[str], timeout_ms: int = 0
) -> bytes:
    """The content of the question of a step. `timeout_ms`: how long an answer counts; 0: no limit."""
    asks = TaskAsks(
        task=task,
        step=step,
        workflow=workflow,
        question=question,
        options=options or msgspec.UNSET,
        timeout_seconds=timeout_ms / 1000 if timeout_ms else msgspec.UNSET,
    )
    return _encoder.encode(asks)


def answer_value(data: bytes) -> bytes:
    """An answer from outside. A text is written in one way: the kernel compares it with the options."""
    if not data.lstrip(b" \t\r\n").startswith(b'"'):
        return data
    return msgspec.json.encode(msgspec.json.decode(data))


def is_order(type: str, to: str) -> bool:
    """Whether a message of this type to this address is for the mesh itself: a command, never mail."""
    return type in ORDERS and name_of(to) == SENDER_NAME


def is_step(envelope: Envelope) -> bool:
    """Whether the mesh itself sent it as a step: no client may send under its name."""
    return envelope.type == STEP_TYPE and name_of(envelope.sender) == SENDER_NAME


def question_message(envelope: Envelope) -> QuestionMessage | None:
    """The step that asks; None for a message that is no question of a step."""
    if envelope.type != QUESTION_TYPE or name_of(envelope.sender) != SENDER_NAME:
        return None
    try:
        return _question_decoder.decode(envelope.content)
    except msgspec.MsgspecError:  # a question about a task, such as whether to raise its budget
        return None


def step_message(envelope: Envelope) -> StepMessage | None:
    """What a step's message says; None for any other message."""
    if not is_step(envelope):
        return None
    try:
        return _decoder.decode(envelope.content)
    except msgspec.MsgspecError:  # an edited dead letter
        return None
