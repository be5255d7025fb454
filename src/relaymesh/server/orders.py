"""Orders: `task_*` and `answer` messages to `<namespace>/relaymesh`. The mesh executes them and never stores
them in a mailbox.

| type | becomes | by whom |
|---|---|---|
| `task_assign` | a submit | an agent with the role manager, whose credential has the scope `write` |
| `task_update` | `Report` | the agent whose mailbox the step is in |
| `task_complete` | `Finish`; with `steps`, `Grow` | the same |
| `task_failed` | `Fail`, or a `Nack` if it is `retryable` | the same |
| `answer` | `Answer` | the agent that was asked |

A step is named by task and step, and found by a query; what ends it is the token of its last grant, so every
rule of `Finish` holds here too: also late, never twice, never after another attempt began. The receipt
comes once the command is durable.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from relaymesh.errors import InvalidEnvelope, LeaseLost, PayloadTooLarge, TaskOver, Unauthorized
from relaymesh.kernel.address import subscriber_of
from relaymesh.kernel.commands import Nack
from relaymesh.kernel.envelope import Encoding, Envelope
from relaymesh.kernel.query import FindGrant, FindQuestion, ShowTask
from relaymesh.kernel.step import Receipt
from relaymesh.kernel.tasks.commands import INPUT_MAX, NO_USAGE, Fail, Finish, Report, Usage
from relaymesh.kernel.tasks.status import ENDED, Status
from relaymesh.kernel.tasks.views import StepGrant
from relaymesh.server.codes import TaskNotFound
from relaymesh.server.security.accounts import Account
from relaymesh.server.security.principal import Principal
from relaymesh.server.served import Served
from relaymesh.server.tasks import Tasks, growth
from relaymesh.wire.api import ReceiptBody
from relaymesh.wire.bodies import (
    StepAnswer,
    StepOrder,
    TaskComplete,
    TaskFailed,
    TaskRequest,
    TaskUpdate,
    UsageContent,
    order_of,
)
from relaymesh.wire.tasks import DOCUMENT_BYTES_MAX, FindTask, GrowStep, SubmitTask, is_order
from relaymesh.wire.usage import micros_of

ORDER_BYTES_MAX = DOCUMENT_BYTES_MAX + INPUT_MAX + 65_536
"""Content of an order: a workflow and its input, and the fields around them."""

TOLD_NOTE = "requiresAck: this receipt is the answer, and no ack is sent"
LATE_NOTE = "the lease of the step is over: its result counts until another attempt begins"
ONE_STEP = b'{"workflow":"assigned","steps":{"do":{"agent":%s,"input":"${{ input }}"}}}'


class Obeyed(msgspec.Struct, frozen=True):
    """The result of an order."""

    receipt: Receipt
    task: str
    status: Status | None = None
    """Of the task, where the order changed it."""
    notes: tuple[str, ...] = ()
    ended: list[int] = []
    """Tokens that are settled by it."""

    @property
    def body(self) -> ReceiptBody:
        return ReceiptBody(
            message_id=self.receipt.id,
            sequence=self.receipt.sequence,
            duplicate=self.receipt.duplicate,
            targets=self.receipt.targets,
            notes=list(self.notes) if self.notes else UNSET,
            task=self.task,
            status=self.status or UNSET,
        )


def order_in(groups: Sequence[tuple[str, Sequence[Envelope]]]) -> Envelope | None:
    """The order among these messages. It must be the only message, because an order cannot be undone."""
    for to, envelopes in groups:
        for envelope in envelopes:
            if is_order(envelope.type, to):
                if len(groups) > 1 or len(envelopes) > 1:
                    raise InvalidEnvelope(
                        f"{envelope.type} to {to} is in a batch, which is accepted whole or not at all",
                        hint="send each task message to relaymesh by itself",
                    )
                return envelope
    return None


def with_a_reply() -> InvalidEnvelope:
    return InvalidEnvelope(
        "a task message to relaymesh cannot be a reply",
        hint="send it by itself, or end the step by its token: `finishes` and `fails` of a settle",
    )


class Orders:
    """Executes the orders of one credential. The sender of each was stamped before."""

    def __init__(self, served: Served, principal: Principal, account: Account) -> None:
        self._served = served
        self._session = served.session
        self._principal = principal
        self._account = account

    async def obey(self, envelope: Envelope, notes: Sequence[str] | None = None) -> Obeyed:
        """Execute the order. Returns once the result is durable."""
        size = len(envelope.content)
        if size > ORDER_BYTES_MAX:
            raise PayloadTooLarge(
                f"content of {envelope.type} has {size} bytes; {ORDER_BYTES_MAX} are allowed",
                hint="return a reference (a path or a URL) in place of the data",
            )
        if envelope.delay_ms > 0:
            raise InvalidEnvelope(f"delayMs: {envelope.type} to relaymesh is obeyed at once, or not at all")
        said = (*(notes or ()), *((TOLD_NOTE,) if envelope.requires_ack else ()))
        if envelope.type == "answer":
            return await self._answer(envelope, said)
        order = order_of(envelope)
        if isinstance(order, TaskRequest):
            return await self._submit(envelope, order, said)
        assert isinstance(order, StepOrder)
        grant = await self._grant(order, envelope.sender)
        receipt = Receipt(envelope.id, grant.sequence, targets=0)
        if isinstance(order, TaskUpdate):
            await self._session.execute(Report(grant.token, _progress(order), _usage(order.usage)))
            late = () if grant.held else (LATE_NOTE,)
            return Obeyed(receipt, order.task, None, said + late)
        status = await self._end(order, grant.token)
        return Obeyed(receipt, order.task, status, said, [grant.token])

    # -- a new task

    async def _submit(self, envelope: Envelope, order: TaskRequest, notes: tuple[str, ...]) -> Obeyed:
        self._principal.require("write")
        tasks = Tasks(self._served, self._principal, self._account)
        submitted = await tasks.submit(
            SubmitTask(
                _document(order),
                _json(order.input),
                order.key or envelope.id,
                envelope.sender,
                envelope.trace,
                order.again,
            )
        )
        shown = await self._session.execute(ShowTask(submitted.task))
        sequence = 0 if shown is None else shown.task.sequence
        receipt = Receipt(envelope.id, sequence, submitted.duplicate, targets=0)
        return Obeyed(receipt, submitted.task, submitted.status, notes)

    # -- an answer

    async def _answer(self, envelope: Envelope, notes: tuple[str, ...]) -> Obeyed:
        """The correlation id is that of a question, or the content names the step."""
        task, step, value, sequence = await self._answered(envelope)
        tasks = Tasks(self._served, self._principal, self._account)
        status = await tasks.answer(task, step, value, envelope.sender)
        return Obeyed(Receipt(envelope.id, sequence, targets=0), task, status, notes)

    async def _answered(self, envelope: Envelope) -> tuple[str, str, bytes, int]:
        """Task, step and answer, and the sequence of the question, if that is known."""
        if envelope.correlation_id is not None:
            query = FindQuestion(envelope.sender, envelope.correlation_id)
            question = await self._session.execute(query)
            if question is not None and self._principal.sees(question.owner):
                if envelope.encoding != Encoding.JSON:
                    raise InvalidEnvelope("the answer to a step must be a JSON value, not bytes")
                return question.task, question.step, envelope.content, question.sequence
        try:
            order = order_of(envelope)
        except InvalidEnvelope:
            if envelope.correlation_id is None:
                raise
            about = f"message {envelope.correlation_id[:128]!r}"
            raise TaskNotFound(f"no step waits for the answer of {envelope.sender} to {about}") from None
        assert isinstance(order, StepAnswer)
        return order.task, order.step, _json(order.answer), 0

    # -- a step

    async def _grant(self, order: StepOrder, agent: str) -> StepGrant:
        """The last grant of the step that is named, if it is this agent's and a result could count."""
        task, name = order.task, f"step {order.step} of task {order.task}"
        grant = await self._session.execute(FindGrant(task, order.step))
        if grant is None or not self._principal.sees(grant.owner):
            raise await self._missing(order)
        if subscriber_of(grant.mailbox) != agent:
            raise Unauthorized(f"{name} is not a step of {agent}", authenticated=True)
        if grant.status in ENDED:
            raise _over(f"{name} has ended: {grant.status}")
        if not grant.token:
            raise LeaseLost(f"{name} is {grant.status}: no holder has it", hint="wait until it is delivered")
        if order.attempt is not UNSET and order.attempt != grant.attempt:
            raise LeaseLost(f"attempt {order.attempt} at {name} is over: the last one is {grant.attempt}")
        return grant

    async def _missing(self, order: StepOrder) -> TaskNotFound | TaskOver:
        shown = await self._session.execute(FindTask(order.task))
        if shown is None or not self._principal.sees(shown.task.owner):
            return TaskNotFound(f"there is no task {order.task[:128]}")
        if order.step not in {step.name for step in shown.steps}:
            return TaskNotFound(f"task {order.task} has no step {order.step}")
        return _over(f"task {order.task} has ended: {shown.task.status}")

    async def _end(self, order: StepOrder, token: int) -> Status | None:
        if isinstance(order, TaskComplete):
            if order.steps is not UNSET:
                return await self._grow(order, token)
            return await self._session.execute(Finish(token, _json(order.result), _usage(order.usage)))
        assert isinstance(order, TaskFailed)
        code, reason = "failed", ""
        if order.error is not UNSET:
            code, reason = order.error.code, order.error.message
        if not order.retryable:
            return await self._session.execute(Fail(token, code, reason, _usage(order.usage)))
        if order.usage is not UNSET:
            await self._session.execute(Report(token, "", _usage(order.usage)))
        await self._session.execute(Nack(token, code, reason))
        return None

    async def _grow(self, order: TaskComplete, token: int) -> Status:
        if order.result is not UNSET:
            raise InvalidEnvelope("content of task_complete has one of `result` and `steps`")
        asked = GrowStep(token, _json(order.steps), _usage(order.usage))
        return await self._session.execute(await growth(self._served, self._account, asked))


def _document(order: TaskRequest) -> bytes:
    """The workflow. For one agent: a plan of one step, which gets the input as it is: no expression in it."""
    if (order.workflow is UNSET) == (order.agent is UNSET):
        raise InvalidEnvelope("content of task_assign names one of `workflow` and `agent`")
    if order.workflow is not UNSET:
        return bytes(order.workflow)
    return ONE_STEP % msgspec.json.encode(order.agent)


def _json(value: msgspec.Raw | UnsetType) -> bytes:
    return b"null" if value is UNSET else bytes(value)


def _usage(given: UsageContent | UnsetType) -> Usage:
    return NO_USAGE if given is UNSET else Usage(micros_of(given.cost_usd), given.tokens)


def _progress(order: TaskUpdate) -> str:
    if order.progress is UNSET:
        return ""
    return order.progress if isinstance(order.progress, str) else f"{order.progress:.0%}"


def _over(text: str) -> TaskOver:
    return TaskOver(text, hint="nothing is left to report for it")
