"""What the content of a message is, where the protocol says anything about it.

The mesh carries content and never looks inside, with these exceptions: `ack`, `nack` and the `task_assign` of
a step, which it writes itself, and `task_*` and `answer` to `<namespace>/relaymesh`, which it obeys.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from relaymesh.errors import InvalidEnvelope
from relaymesh.kernel.envelope import Encoding, Envelope
from relaymesh.kernel.tasks.plan import USAGE_MAX
from relaymesh.wire.envelope import check_text
from relaymesh.wire.message import Text
from relaymesh.wire.usage import COST_USD_MAX


class Body(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An object that may have more fields than are listed."""


class ErrorBody(Body, frozen=True):
    """Why something was refused or given up."""

    code: Annotated[str, Meta(description="A code of the protocol, or of the receiver's own.")]
    message: Annotated[str, Meta(description="For people.")] = ""


class AckContent(Body, frozen=True):
    """Content of `ack`: the receiver has done what the message asked."""

    original_message_id: str
    success: Literal[True]
    timestamp: Annotated[str, Meta(description="When it was settled, ISO 8601.")]


class NackContent(Body, frozen=True):
    """Content of `nack`: the message was finally refused, or is a dead letter."""

    original_message_id: str
    success: Literal[False]
    error: ErrorBody
    timestamp: Annotated[str, Meta(description="When it was settled, ISO 8601.")] | UnsetType = UNSET


ATTEMPT_MAX = 2_000_000
"""More attempts no step can have."""
TaskId = Annotated[str, Meta(description="As the `task_assign` names it.", min_length=1, max_length=128)]


class TaskAssigned(Body, frozen=True):
    """Content of `task_assign` as the mesh sends it: do this step.

    The attempt is `attempt` of the delivery; `metadata.retryCount` is one less.
    """

    task: Annotated[str, Meta(description="The task. Reports name it, and the step.")]
    step: Annotated[str, Meta(description="`build`, or `build/3` for item 3 of it.")]
    workflow: Annotated[str, Meta(description="The name of the workflow.")]
    input: Annotated[Any, Meta(description="What to do: the input of the step.")] = None
    deadline: (
        Annotated[str, Meta(description="When the task must be done, ISO 8601; absent: no limit.")]
        | UnsetType
    ) = UNSET
    undoes: Annotated[str, Meta(description="The step that this one undoes.")] | UnsetType = UNSET
    uncertain: (
        Annotated[bool, Meta(description="With `undoes`: it is unknown whether that step was done.")]
        | UnsetType
    ) = UNSET


class TaskAsks(Body, frozen=True):
    """Content of the `question` of a step. The answer goes to the sender, with this task and step."""

    task: str
    step: str
    workflow: str
    question: Annotated[Any, Meta(description="What is asked: any JSON value.")]
    options: Annotated[list[str], Meta(description="The answers that count; absent: any.")] | UnsetType = (
        UNSET
    )
    timeout_seconds: (
        Annotated[float, Meta(description="How long an answer counts; absent: as long as the task lives.")]
        | UnsetType
    ) = UNSET


class TaskNews(Body, frozen=True):
    """Content of `task_update`, `task_complete` and `task_failed` that the mesh sends about a task."""

    task: str
    workflow: str
    key: str
    status: str
    result: Annotated[Any, Meta(description="With SUCCESS: the result of the task.")] | UnsetType = UNSET
    reason: Annotated[str, Meta(description="Why it failed, or why it waits.")] | UnsetType = UNSET
    steps_total: int | UnsetType = UNSET
    steps_ended: int | UnsetType = UNSET
    question: Annotated[str, Meta(description="What its owner may do.")] | UnsetType = UNSET


class Order(Body, frozen=True, forbid_unknown_fields=True):
    """Content of a message to the mesh itself. An unknown field is refused by its name."""


class TaskRequest(Order, frozen=True):
    """Content of `task_assign` to `relaymesh`: run a workflow, or let one agent do one thing."""

    workflow: Annotated[Raw, Meta(description="The workflow itself: docs/reference/plans.md")] | UnsetType = (
        UNSET
    )
    agent: (
        Annotated[str, Meta(description="In place of `workflow`: an agent, for a task of one step.")]
        | UnsetType
    ) = UNSET
    input: Annotated[Raw, Meta(description="The input of the task: any JSON value.")] | UnsetType = UNSET
    key: Annotated[
        str, Meta(description="The idempotency key; absent: the id of the message.", max_length=512)
    ] = ""
    again: Annotated[bool, Meta(description="Run it anew if it ended without success.")] = False


class StepOrder(Order, frozen=True):
    """What a report about a step begins with: names, as the `task_assign` had them."""

    task: TaskId
    step: Text
    attempt: (
        Annotated[
            int,
            Meta(
                description="Of the delivery. Given: refused if another attempt began since.",
                ge=1,
                le=ATTEMPT_MAX,
            ),
        ]
        | UnsetType
    ) = UNSET


class UsageContent(Order, frozen=True):
    """What the attempt has used so far: its total, not what was added since the last report."""

    cost_usd: Annotated[float, Meta(description="Dollars; counted in millionths.", ge=0, le=COST_USD_MAX)] = (
        0.0
    )
    tokens: Annotated[int, Meta(description="Tokens of models.", ge=0, le=USAGE_MAX)] = 0


class TaskUpdate(StepOrder, frozen=True):
    """Content of `task_update` to `relaymesh`: the step goes on. Renews its lease."""

    progress: (
        Annotated[str, Meta(description="How far it is, for people.")]
        | Annotated[float, Meta(ge=0, le=1)]
        | UnsetType
    ) = UNSET
    usage: UsageContent | UnsetType = UNSET


class TaskComplete(StepOrder, frozen=True):
    """Content of `task_complete` to `relaymesh`: the step is done."""

    result: Annotated[Raw, Meta(description="Any JSON value of at most 1 MiB.")] | UnsetType = UNSET
    steps: (
        Annotated[Raw, Meta(description="In place of `result`: the steps that the step goes on as.")]
        | UnsetType
    ) = UNSET
    usage: UsageContent | UnsetType = UNSET


class TaskFailed(StepOrder, frozen=True):
    """Content of `task_failed` to `relaymesh`: the step cannot be done."""

    error: Annotated[ErrorBody, Meta(description="Why.")] | UnsetType = UNSET
    retryable: Annotated[
        bool, Meta(description="Try it again, as often as its plan allows; else the step has failed.")
    ] = False
    usage: UsageContent | UnsetType = UNSET


class StepAnswer(Order, frozen=True):
    """Content of `answer` to `relaymesh`: the answer to the question of a step, which names it.

    With the id of the question as its correlation id, the whole content of the message is the answer.
    """

    task: TaskId
    step: Text
    answer: Annotated[Raw, Meta(description="Any JSON value of at most 64 KiB.")] | UnsetType = UNSET


ORDERS: dict[str, type[Order]] = {
    "task_assign": TaskRequest,
    "task_update": TaskUpdate,
    "task_complete": TaskComplete,
    "task_failed": TaskFailed,
    "answer": StepAnswer,
}
"""What the mesh itself understands, by the type of the message."""

_decoders = {name: msgspec.json.Decoder(kind) for name, kind in ORDERS.items()}


def order_of(envelope: Envelope) -> Order:
    """The content of a message to the mesh itself. Raises `InvalidEnvelope`, naming the field."""
    if envelope.encoding != Encoding.JSON:
        raise InvalidEnvelope(f"content of {envelope.type} must be a JSON object, not bytes")
    try:
        order = _decoders[envelope.type].decode(envelope.content)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        raise InvalidEnvelope(f"content{where.rstrip('`')} of {envelope.type}: {what}", hint=HINT) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidEnvelope(f"content of {envelope.type} is not sound JSON: {error}") from None
    if isinstance(order, (StepOrder, StepAnswer)):
        check_text(order.task, "content.task")
        check_text(order.step, "content.step")
    return order


HINT = "docs/reference/protocol.md and task.schema.json list the fields"
