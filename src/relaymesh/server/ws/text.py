"""The protocol `relaymesh.v1.json`: the same operations as JSON, messages as the Mailbox protocol has them.

Lease tokens are text, as over HTTP, and so are the bodies of settles, receipts, deliveries and letters.
"""

from __future__ import annotations

from typing import Annotated, Any, get_args

import msgspec
from msgspec import Raw

from relaymesh.errors import InvalidEnvelope, MeshError
from relaymesh.kernel import commands
from relaymesh.kernel.dead_letters import DeadLetter
from relaymesh.kernel.deliveries import Deliveries as Handed
from relaymesh.kernel.pending import STATE_NAMES, Pending
from relaymesh.kernel.token import parse_token
from relaymesh.server.exchange import VALUES_MAX
from relaymesh.server.intake import Intake, TopicIntake, messages_in, parsed
from relaymesh.server.routes.receiving import delivery_bodies
from relaymesh.server.routes.settling import Settling
from relaymesh.server.ws import calls
from relaymesh.server.ws.closing import Close, Ended
from relaymesh.server.ws.mistyped import by_op, mistyped
from relaymesh.server.ws.operations import Operations, problem_of
from relaymesh.server.ws.sessions import Asked
from relaymesh.wire import api, frames
from relaymesh.wire.api import MailboxSettingsBody, settings_from
from relaymesh.wire.api.base import Token
from relaymesh.wire.envelope import iso
from relaymesh.wire.frames import Asking, Cancel, Credit, Frame, Goodbye, Heartbeat, Ping
from relaymesh.wire.letter import letter_body
from relaymesh.wire.protocol import Incoming, message_json

Tokens = list[Token]
Messages = Annotated[Raw, msgspec.Meta(title="messages")]
"""An array of messages, taken apart in turns: there may be many."""


class Hello(Asking, tag="hello"):
    """First of all. `resume`: the session to go on with; `held`: the lease tokens the client still has.

    `token`: the credential of a connection that was opened without the header Authorization.
    """

    protocol: str
    agent: str | None = None
    resume: str | None = None
    held: Tokens = msgspec.field(default_factory=list)
    token: str | None = None


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
    durable: bool = False


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


ClientFrame = Hello | Send | Publish | Receive | Settle | Call | Cancel | Credit | Ping | Heartbeat | Goodbye

_kinds = by_op(get_args(ClientFrame))
_decode = msgspec.json.Decoder(ClientFrame).decode
_encode = msgspec.json.Encoder().encode


class Text:
    """Reads and writes JSON."""

    subprotocol = frames.SUBPROTOCOL_JSON

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
        return _encode(frames.Result(frame.ref, Raw(_encode(value))))

    async def _settle(self, on: Operations, frame: Settle) -> Settled:
        on.principal.require("agent")
        settling = Settling(on.served, on.principal, on.account)
        await settling.look_up(
            [
                *frame.acks,
                *frame.drops,
                *frame.releases,
                *[each.token for each in frame.replies],
                *[each.token for each in frame.nacks],
                *[each.token for each in frame.extends],
            ]
        )
        on.acted[frame.ref] = settling.holders
        results = [
            *await settling.end(frame.acks, "acked", durable=frame.durable),
            *await settling.end(frame.drops, "dropped", durable=frame.durable),
            *await settling.release(frame.releases),
            *[await settling.reply(each) for each in frame.replies],
            *[await settling.nack(each) for each in frame.nacks],
            *[await settling.extend(each) for each in frame.extends],
        ]
        ended = [parse_token(each.token) for each in results if each.outcome not in ("extended", "refused")]
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
        return frames.Hello(frame.protocol, frame.agent, frame.resume, held, token=frame.token)
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
    return msgspec.json.decode(given, type=kind)


def _shown(rows: list[Any]) -> list[Any]:
    """Letters and entries under their names."""
    return [letter_body(row) if isinstance(row, DeadLetter) else _entry(row) for row in rows]


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
