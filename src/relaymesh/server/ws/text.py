"""The protocol `relaymesh.v1.json`: the same operations as JSON, messages as the Mailbox protocol has them.

Lease tokens are text, as over HTTP, and so are the bodies of settles, receipts, deliveries and letters.
"""

from __future__ import annotations

from typing import Annotated, Any, get_args

import msgspec
from msgspec import UNSET, Raw, UnsetType

from relaymesh.errors import InvalidEnvelope, MeshError
from relaymesh.kernel import commands
from relaymesh.kernel.dead_letters import DeadLetter
from relaymesh.kernel.deliveries import Deliveries as Handed
from relaymesh.kernel.pending import STATE_NAMES, Pending
from relaymesh.kernel.schedules.commands import ScheduleStored
from relaymesh.kernel.schedules.schedule import Missed, ScheduleView
from relaymesh.kernel.tasks.commands import Stored
from relaymesh.kernel.tasks.stored import WorkflowView
from relaymesh.kernel.tasks.views import TaskShown, TaskView
from relaymesh.kernel.token import parse_token
from relaymesh.server.exchange import VALUES_MAX
from relaymesh.server.intake import Intake, TopicIntake, messages_in, parsed
from relaymesh.server.orders import Orders
from relaymesh.server.routes.receiving import delivery_bodies
from relaymesh.server.routes.settling import Settling
from relaymesh.server.ws import calls
from relaymesh.server.ws.closing import Close, Ended
from relaymesh.server.ws.mistyped import by_op, mistyped
from relaymesh.server.ws.operations import Operations, problem_of
from relaymesh.server.ws.routes import routes_of
from relaymesh.server.ws.sessions import Asked
from relaymesh.wire import api, frames, schedule_frames
from relaymesh.wire.api import MailboxSettingsBody, settings_from
from relaymesh.wire.api.base import Token
from relaymesh.wire.envelope import iso
from relaymesh.wire.frames import Asking, Cancel, Credit, Frame, Goodbye, Heartbeat, Ping
from relaymesh.wire.letter import letter_body
from relaymesh.wire.protocol import Incoming, message_json
from relaymesh.wire.usage import budget_micros

Tokens = list[Token]
Messages = Annotated[Raw, msgspec.Meta(title="messages")]
"""An array of messages, taken apart in turns: there may be many."""


class Hello(Asking, tag="hello"):
    """First of all. `resume`: the session to go on with; `held`: the lease tokens the client still has.

    `token`: the credential of a connection that was opened without the header Authorization. `settles`: the
    agent ends steps with a result; it counts if the agent joins with this hello.
    """

    protocol: str
    agent: str | None = None
    resume: str | None = None
    held: Tokens = msgspec.field(default_factory=list)
    token: str | None = None
    settles: bool = False


class Send(Asking, tag="send"):
    ref: int
    messages: Messages
    wait_ms: int | None = None


class Publish(Asking, tag="publish"):
    ref: int
    topic: str
    messages: Messages
    wait_ms: int | None = None


class Receive(Asking, tag="receive"):
    """`wait_ms` left out answers at once; null waits for ever."""

    ref: int
    mailbox: str
    max: int = 1
    wait_ms: int | None = 0
    correlation_id: str | None = None


class Settle(Asking, tag="settle"):
    ref: int
    acks: Tokens = msgspec.field(default_factory=list)
    drops: Tokens = msgspec.field(default_factory=list)
    releases: Tokens = msgspec.field(default_factory=list)
    replies: list[api.ReplyBody] = msgspec.field(default_factory=list)
    nacks: list[api.NackBody] = msgspec.field(default_factory=list)
    extends: list[api.ExtendBody] = msgspec.field(default_factory=list)
    finishes: list[api.FinishBody] = msgspec.field(default_factory=list)
    grows: list[api.GrowBody] = msgspec.field(default_factory=list)
    fails: list[api.FailBody] = msgspec.field(default_factory=list)
    reports: list[api.ReportBody] = msgspec.field(default_factory=list)
    abandons: list[api.AbandonBody] = msgspec.field(default_factory=list)
    durable: bool = False
    settles: bool = False


class Call(Asking, tag="call"):
    ref: int
    name: str
    arguments: Raw = Raw(b"{}")


class Receipts(Frame, tag="receipts"):
    ref: int
    receipts: list[api.ReceiptBody]


class Deliveries(Frame, tag="deliveries"):
    mailbox: str
    deliveries: list[api.DeliveryBody]
    now: int
    ref: int | None = None


class Settled(Frame, tag="settled"):
    ref: int
    results: list[api.SettledBody]
    stale: int
    failed: int


class OpenMailbox(frames.Arguments):
    mailbox: str
    settings: MailboxSettingsBody | None = None


class Subscribe(frames.Arguments):
    pattern: str
    name: str
    settings: MailboxSettingsBody | None = None


class SubmitTask(frames.Arguments):
    """`workflow`: the document itself, or the name of a stored one."""

    workflow: Raw
    input: Raw = Raw(b"null")
    key: str = ""
    owner: str | None = None
    trace: str | None = None
    again: bool = False
    reply_to: str | None = None
    notify: list[str] = msgspec.field(default_factory=list)


class AnswerStep(frames.Arguments):
    """`value`: any JSON value."""

    task: str
    step: str
    value: Raw
    agent: str | None = None


class SignalTask(frames.Arguments):
    """`value`: any JSON value."""

    task: str
    name: str
    id: str = ""
    value: Raw = Raw(b"null")


class SetBudget(frames.Arguments):
    """`costUsd`: dollars, with at most 6 decimals."""

    task: str
    cost_usd: float | None = None
    tokens: int | None = None


class RerunTask(frames.Arguments):
    """`input`: any JSON value; left out: the first input."""

    task: str
    from_step: str
    input: Raw | UnsetType = UNSET
    owner: str | None = None


class PutWorkflow(frames.Arguments):
    """`workflow`: the document itself."""

    workflow: Raw
    version: str = ""
    owner: str | None = None


class PutSchedule(frames.Arguments):
    """`workflow`: a document, or the name of a stored one, with its `input`; or a `message`."""

    name: str
    cron: str
    tz: str = "UTC"
    workflow: Raw | msgspec.UnsetType = msgspec.UNSET
    input: Raw | msgspec.UnsetType = msgspec.UNSET
    message: api.ScheduledMessage | None = None
    missed: Missed = "one"
    replace: bool = False
    owner: str | None = None


class FinishStep(frames.Arguments):
    """`result`: any JSON value."""

    token: Token
    result: Raw = Raw(b"null")
    usage: api.UsageBody | UnsetType = UNSET


class GrowStep(frames.Arguments):
    """`steps`: as `steps` of a workflow, or a list of steps with names."""

    token: Token
    steps: Raw
    usage: api.UsageBody | UnsetType = UNSET


class FailStep(frames.Arguments):
    token: Token
    code: str = "failed"
    reason: str = ""
    usage: api.UsageBody | UnsetType = UNSET


class ReportStep(frames.Arguments):
    token: Token
    progress: str = ""
    usage: api.UsageBody | UnsetType = UNSET


class Abandon(frames.Arguments):
    tokens: Annotated[Tokens, msgspec.Meta(max_length=frames.BATCH_MAX)]
    reason: str = ""


ARGUMENTS: dict[type[frames.Arguments], type[frames.Arguments]] = {
    frames.OpenMailbox: OpenMailbox,
    frames.Subscribe: Subscribe,
    frames.SubmitTask: SubmitTask,
    frames.AnswerStep: AnswerStep,
    frames.SignalTask: SignalTask,
    frames.SetBudget: SetBudget,
    frames.RerunTask: RerunTask,
    frames.PutWorkflow: PutWorkflow,
    schedule_frames.PutSchedule: PutSchedule,
    frames.FinishStep: FinishStep,
    frames.GrowStep: GrowStep,
    frames.FailStep: FailStep,
    frames.ReportStep: ReportStep,
    frames.Abandon: Abandon,
}
"""Arguments that have a form of their own in JSON."""

ClientFrame = Hello | Send | Publish | Receive | Settle | Call | Cancel | Credit | Ping | Heartbeat | Goodbye

UNSETTLED = frozenset({"extended", "reported", "refused"})
"""Outcomes that leave the delivery with its holder."""

_kinds = by_op(get_args(ClientFrame))
_decode = msgspec.json.Decoder(ClientFrame).decode
_encode = msgspec.json.Encoder().encode


class Text:
    """Reads and writes JSON."""

    subprotocol = frames.SUBPROTOCOL_JSON
    routes = routes_of(Send, Publish, Settle, Call)

    def read(self, message: Any) -> list[Asked]:
        text = message.get("text")
        if text is None:
            raise Ended(Close.KIND, "this protocol has text frames only")
        data = text.encode()
        try:
            if len(data) > VALUES_MAX and data.count(b",") > VALUES_MAX:
                _check_many_values(data)
            return [(_known(_decode(data)), data)]
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            return [(mistyped(error, data, msgspec.json.decode, _kinds), data)]

    def event(self, data: bytes) -> dict[str, Any]:
        return {"type": "websocket.send", "text": data.decode()}

    async def answer(self, on: Operations, frame: Any, size: int) -> bytes:  # noqa: ARG002 - as Binary has it
        """Do what the frame asks for, and answer."""
        if isinstance(frame, Send):
            on.principal.require("agent")
            intake = Intake(on.served, on.principal, await _messages(on, frame.messages), on.agent)
            on.acted[frame.ref] = intake.senders
            on.speaks_for_all(intake.senders)
            if intake.order is not None:
                orders = Orders(on.served, on.principal, on.account)
                obeyed = await orders.obey(intake.order, intake.notes.get(0))
                on.settled(obeyed.ended)
                return _encode(Receipts(frame.ref, [obeyed.body]))
            command = commands.Send(intake.groups, intake.minted, budget=on.served.budget)
            given = await on.served.session.execute(command, timeout=on.seconds(frame.wait_ms))
            return _encode(Receipts(frame.ref, intake.receipts(given)))
        if isinstance(frame, Publish):
            on.principal.require("agent")
            topic = on.principal.topic(frame.topic)
            published = TopicIntake(on.served, on.principal, await _messages(on, frame.messages), on.agent)
            on.acted[frame.ref] = published.senders
            on.speaks_for_all(published.senders)
            publish = commands.Publish(topic, published.envelopes, published.minted, budget=on.served.budget)
            given = await on.served.session.execute(publish, timeout=on.seconds(frame.wait_ms))
            return _encode(Receipts(frame.ref, published.receipts(given)))
        if isinstance(frame, Settle):
            return _encode(await self._settle(on, frame))
        value = await calls.call(on, frame.name, lambda kind: _arguments(kind, frame.arguments))
        if isinstance(value, calls.Page):
            return _encode(frames.Result(frame.ref, Raw(_encode(_shown(value.rows))), value.more))
        return _encode(frames.Result(frame.ref, Raw(_encode(_body(value)))))

    async def _settle(self, on: Operations, frame: Settle) -> Settled:
        on.principal.require("agent")
        settling = Settling(on.served, on.principal, on.account, settles=frame.settles)
        ends = [each.token for each in frame.finishes] + [each.token for each in frame.grows]
        steps = ends + [each.token for each in frame.fails] + [each.token for each in frame.reports]
        await settling.look_up(
            [
                *frame.acks,
                *frame.drops,
                *frame.releases,
                *[each.token for each in frame.replies],
                *[each.token for each in frame.nacks],
                *[each.token for each in frame.extends],
                *[each.token for each in frame.abandons],
                *steps,
            ],
            frozenset(steps),
        )
        on.acted[frame.ref] = settling.holders
        results = [
            *await settling.end(frame.acks, "acked", durable=frame.durable),
            *await settling.end(frame.drops, "dropped", durable=frame.durable),
            *await settling.release(frame.releases),
            *[await settling.reply(each) for each in frame.replies],
            *[await settling.nack(each) for each in frame.nacks],
            *[await settling.extend(each) for each in frame.extends],
            *[await settling.finish(each) for each in frame.finishes],
            *[await settling.grow(each) for each in frame.grows],
            *[await settling.fail(each) for each in frame.fails],
            *[await settling.report(each) for each in frame.reports],
            *[await settling.abandon(each) for each in frame.abandons],
        ]
        ended = [parse_token(each.token) for each in results if each.outcome not in UNSETTLED]
        on.settled([token for token in ended if token is not None])
        counted = api.settled_answer(results)
        return Settled(frame.ref, results, counted.stale, counted.failed)

    def deliveries(self, ref: int | None, mailbox: str, given: Handed, now: int) -> bytes:
        return _encode(Deliveries(mailbox, delivery_bodies(given, now), now, ref))

    def problem(self, ref: int | None, error: MeshError) -> bytes:
        return _encode(problem_of(ref, error))

    def frame(self, frame: Any) -> bytes:
        """A frame that is the same in both protocols."""
        return _encode(frame)


async def _messages(on: Operations, given: Raw) -> list[Incoming]:
    messages, batch = await messages_in(on.account, given)
    if not batch:
        raise InvalidEnvelope("messages must be an array")
    on.charge(len(messages), len(given))
    return await parsed(on.served, on.account, messages)


class _Op(msgspec.Struct):
    op: str = ""


_decode_op = msgspec.json.Decoder(_Op).decode


def _check_many_values(data: bytes) -> None:
    """Messages are taken apart later, in turns. In other frames so many values would take long to decode."""
    if _decode_op(data).op not in ("send", "publish"):
        raise Ended(Close.TOO_LARGE, f"a frame holds more than {VALUES_MAX} values")


def _known(frame: Any) -> Any:
    """A frame as the connection knows it."""
    if isinstance(frame, Hello):
        held = [token for text in frame.held if (token := parse_token(text)) is not None]
        return frames.Hello(
            frame.protocol, frame.agent, frame.resume, held, token=frame.token, settles=frame.settles
        )
    if isinstance(frame, Receive):
        return frames.Receive(frame.ref, frame.mailbox, frame.max, frame.wait_ms, frame.correlation_id)
    return frame


def _arguments(kind: type[Any], given: Raw) -> Any:
    """Settings of a mailbox are an object with their names, not the journal's array."""
    if kind is frames.OpenMailbox:
        opening = msgspec.json.decode(given, type=OpenMailbox)
        settings = None if opening.settings is None else settings_from(opening.settings)
        return frames.OpenMailbox(opening.mailbox, settings)
    if kind is frames.Subscribe:
        asked = msgspec.json.decode(given, type=Subscribe)
        settings = settings_from(asked.settings or MailboxSettingsBody(), schedule="fifo")
        return frames.Subscribe(asked.pattern, asked.name, settings)
    if kind in ARGUMENTS:
        return _of_step(msgspec.json.decode(given, type=ARGUMENTS[kind]))
    return msgspec.json.decode(given, type=kind)


def _of_step(given: Any) -> frames.Arguments:
    """What a task or a step is given, as the calls know it."""
    if isinstance(given, SubmitTask):
        return frames.SubmitTask(
            bytes(given.workflow),
            bytes(given.input),
            given.key,
            given.owner,
            given.trace,
            given.again,
            given.reply_to,
            given.notify,
        )
    if isinstance(given, (AnswerStep, SignalTask, SetBudget, RerunTask)):
        return _of_task(given)
    if isinstance(given, PutWorkflow):
        return frames.PutWorkflow(bytes(given.workflow), given.version, given.owner)
    if isinstance(given, PutSchedule):
        workflow, input = [
            None if raw is msgspec.UNSET else bytes(raw) for raw in (given.workflow, given.input)
        ]
        work = api.work_from(workflow, input, given.message)
        return schedule_frames.PutSchedule(
            given.name, given.cron, work, given.tz, given.missed, given.replace, given.owner
        )
    if isinstance(given, Abandon):
        return frames.Abandon([_number(text) for text in given.tokens], given.reason)
    token, usage = _number(given.token), api.usage_from(given.usage)
    if isinstance(given, FinishStep):
        return frames.FinishStep(token, bytes(given.result), usage)
    if isinstance(given, GrowStep):
        return frames.GrowStep(token, bytes(given.steps), usage)
    if isinstance(given, FailStep):
        return frames.FailStep(token, given.code, given.reason, usage)
    return frames.ReportStep(token, given.progress, usage)


def _of_task(given: AnswerStep | SignalTask | SetBudget | RerunTask) -> frames.Arguments:
    match given:
        case AnswerStep():
            return frames.AnswerStep(given.task, given.step, bytes(given.value), given.agent)
        case SignalTask():
            return frames.SignalTask(given.task, given.name, given.id, bytes(given.value))
        case SetBudget():
            cost = None if given.cost_usd is None else budget_micros(given.cost_usd, "costUsd")
            return frames.SetBudget(given.task, cost, given.tokens)
        case RerunTask():
            input = None if given.input is UNSET else bytes(given.input)
            return frames.RerunTask(given.task, given.from_step, input, given.owner)


def _number(text: str) -> int:
    """A token whose form is good, but that was never given out, is that of no lease."""
    return parse_token(text) or 0


def _body(value: Any) -> Any:
    """What a call answers, under its names."""
    match value:
        case TaskShown():
            return api.task_body(value)
        case WorkflowView():
            return api.workflow_body(value)
        case ScheduleView():
            return api.schedule_body(value)
        case ScheduleStored():
            return api.schedule_body(value.schedule, duplicate=value.duplicate)
        case Stored():
            return api.workflow_summary(value.workflow, duplicate=value.duplicate)
    return value


def _shown(rows: list[Any]) -> list[Any]:
    """Letters, tasks, workflows, schedules and entries under their names."""
    return [_row(row) for row in rows]


def _row(row: Any) -> Any:
    if isinstance(row, DeadLetter):
        return letter_body(row)
    if isinstance(row, WorkflowView):
        return api.workflow_summary(row)
    if isinstance(row, ScheduleView):
        return api.schedule_summary(row)
    return api.summary_body(row) if isinstance(row, TaskView) else _entry(row)


def _entry(row: Pending) -> dict[str, Any]:
    return {
        "sequence": row.sequence,
        "state": STATE_NAMES[row.state],
        "priority": row.priority,
        "attempts": row.attempts,
        "redrives": row.redrives,
        "acceptedAt": iso(row.accepted_at),
        "dueAt": iso(row.due_at),
        "readyAt": iso(row.ready_at),
        "message": Raw(message_json(row.envelope, "", row.accepted_at, max(0, row.attempts - 1))),
    }
