"""Messages on their way in: parsed, stamped with the credential's sender, grouped by recipient."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import msgspec

from relaymesh.errors import InvalidEnvelope
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.step import Receipt
from relaymesh.server.exchange import decode_body
from relaymesh.server.orders import order_in, with_a_reply
from relaymesh.server.security.accounts import Account
from relaymesh.server.security.principal import Principal
from relaymesh.server.served import Served
from relaymesh.wire.api import ReceiptBody
from relaymesh.wire.content import DEPTH_MAX
from relaymesh.wire.envelope import iso
from relaymesh.wire.pieces import PIECE_BYTES, check_fields, check_pieces, elements, is_light
from relaymesh.wire.protocol import Incoming, parse_message

BATCH_MAX = 10_000
"""Messages of one request or frame."""
VALUES_MAX = 200_000
"""Commas in an array that is taken apart in one call: a few milliseconds' worth."""
FIELDS_MAX = 300
"""Fields of one message, and of its metadata: those of the protocol, and 256 of the sender's own."""
TURN = 200
TURN_BYTES = 262_144
"""Messages and bytes that are parsed without a pause: a few milliseconds' worth."""


async def messages_in(account: Account, body: bytes | msgspec.Raw) -> tuple[list[msgspec.Raw], bool]:
    """The messages of a body, and whether it was a batch: an array is one, an object is a message."""
    data = bytes(body)
    if data[:64].lstrip()[:1] != b"[":
        if not data.strip():
            raise InvalidEnvelope("the body is empty", hint="send one message, or an array of them")
        return [msgspec.Raw(data)], False
    if len(data) <= PIECE_BYTES or data.count(b",") <= VALUES_MAX:
        messages = decode_body(data, list[msgspec.Raw])
    else:
        async with account.long_work:
            messages = await _split(data.strip())
    if not 1 <= len(messages) <= BATCH_MAX:
        raise _wrong_count(len(messages))
    return messages, True


async def _split(data: bytes) -> list[msgspec.Raw]:
    """The messages of a large array, found in turns. Each is checked later, by itself."""
    messages: list[msgspec.Raw] = []
    for span in elements(data):
        if span is None:
            await asyncio.sleep(0)
            continue
        if len(messages) == BATCH_MAX:
            raise _wrong_count(BATCH_MAX + 1)
        messages.append(msgspec.Raw(data[span[0] : span[1]]))
    if data[-1:] != b"]":
        raise InvalidEnvelope("the body is not sound JSON: the array has no end")
    return messages


def _wrong_count(count: int) -> InvalidEnvelope:
    said = f"{count}" if count <= BATCH_MAX else "more"
    return InvalidEnvelope(f"a batch has 1 to {BATCH_MAX} messages, not {said}")


class Intake:
    """Checked messages in the order they came, and by recipient."""

    __slots__ = ("_order", "groups", "minted", "notes", "order", "senders")

    def __init__(
        self, served: Served, principal: Principal, messages: Sequence[Incoming], sender: str | None = None
    ) -> None:
        """`sender`: of messages that name none, where the credential is no single agent."""
        self.notes: dict[int, tuple[str, ...]] = {}
        self.minted = True
        stamps = Stamps(served, principal, sender)
        by_recipient: dict[str, list[Envelope]] = {}
        order: dict[str, list[int]] = {}
        for i, incoming in enumerate(messages):
            if incoming.to is None:
                raise _at(i, messages, InvalidEnvelope("`to` is missing: name the agent it is for"))
            to = stamps.recipient(incoming.to)
            by_recipient.setdefault(to, []).append(stamps.stamped(incoming, to))
            order.setdefault(to, []).append(i)
            self.minted = self.minted and not incoming.given_id
            if incoming.notes:
                self.notes[i] = incoming.notes
        self.senders = stamps.senders
        self.groups = list(by_recipient.items())
        self._order = [i for positions in order.values() for i in positions]
        self.order = order_in(self.groups)
        """The one message, if it is for the mesh itself: it is obeyed, never sent."""

    def require_mail(self) -> None:
        """Refuse messages to the mesh itself: they cannot be sent together with other messages."""
        if self.order is not None:
            raise with_a_reply()

    def receipts(self, given: Sequence[Receipt]) -> list[ReceiptBody]:
        """Receipts came by recipient; give them back in the order of the messages."""
        if len(self.groups) == 1:
            return [receipt_body(receipt, self.notes.get(i)) for i, receipt in enumerate(given)]
        ordered = sorted(zip(self._order, given, strict=True), key=lambda pair: pair[0])
        return [receipt_body(receipt, self.notes.get(i)) for i, receipt in ordered]


class TopicIntake:
    """The same for messages to one topic."""

    __slots__ = ("envelopes", "minted", "notes", "senders")

    def __init__(
        self, served: Served, principal: Principal, messages: Sequence[Incoming], sender: str | None = None
    ) -> None:
        """`sender`: of messages that name none, where the credential is no single agent."""
        self.notes: dict[int, tuple[str, ...]] = {}
        self.envelopes: list[Envelope] = []
        self.minted = True
        stamps = Stamps(served, principal, sender)
        for i, incoming in enumerate(messages):
            if incoming.to is not None:
                raise _at(
                    i, messages, InvalidEnvelope("`to` is given: a topic's subscribers are its recipients")
                )
            self.envelopes.append(stamps.stamped(incoming, None))
            self.minted = self.minted and not incoming.given_id
            if incoming.notes:
                self.notes[i] = incoming.notes
        self.senders = stamps.senders

    def receipts(self, given: Sequence[Receipt]) -> list[ReceiptBody]:
        return [receipt_body(receipt, self.notes.get(i)) for i, receipt in enumerate(given)]


async def parsed(served: Served, account: Account, messages: Sequence[msgspec.Raw]) -> list[Incoming]:
    """Messages, checked one by one. A large batch lets others have their turn in between."""
    ids = _new_ids(served, len(messages))
    limit, ttl_ms = served.session.payload_bytes_max, served.roster.config.ttl_ms
    incoming = []
    left = TURN_BYTES
    for i, message in enumerate(messages):
        size = len(message)
        left -= size
        if left < 0 or i % TURN == TURN - 1:
            left = TURN_BYTES
            await asyncio.sleep(0)
        parse = partial(parse_message, message, new_id=lambda: next(ids), limit=limit, ttl_ms=ttl_ms)
        try:
            incoming.append(parse() if size <= PIECE_BYTES else await _large(served, account, message, parse))
        except InvalidEnvelope as error:
            raise _at(i, messages, error) from None
    return incoming


async def _large(
    served: Served, account: Account, message: msgspec.Raw, parse: Callable[..., Incoming]
) -> Incoming:
    """Check a large message in another thread, in steps of a few milliseconds; longer ones piece by piece."""
    data = bytes(message)
    if await served.off_loop(partial(is_light, data)):
        return await served.off_loop(parse)
    async with account.long_work:
        for _ in check_fields(data, FIELDS_MAX):
            await asyncio.sleep(0)
        for _ in check_pieces(data, what="the message", depth=DEPTH_MAX + 1):
            await asyncio.sleep(0)
    return await served.off_loop(partial(parse, sound=True))


def _new_ids(served: Served, count: int) -> Iterator[str]:
    """None is made before the first is needed: most senders give their own."""
    yield from served.session.new_ids(count)


def _at(i: int, messages: Sequence[object], error: InvalidEnvelope) -> InvalidEnvelope:
    """Add to the error which message of a batch it was."""
    if len(messages) == 1:
        return error
    return InvalidEnvelope(f"message {i}: {error.message}", hint=error.hint)


class Stamps:
    """Names in one request, as the credential may use them: each is looked at once."""

    __slots__ = ("_otherwise", "_principal", "_recipients", "_roster", "_senders", "_served")

    def __init__(self, served: Served, principal: Principal, otherwise: str | None = None) -> None:
        self._served = served
        self._otherwise = otherwise
        self._roster = served.roster
        self._principal = principal
        self._recipients: dict[str, str] = {}
        self._senders: dict[str | None, str] = {}

    @property
    def senders(self) -> set[str]:
        """Every agent in whose name something was stamped."""
        return set(self._senders.values())

    def recipient(self, to: str) -> str:
        address = self._recipients.get(to)
        if address is None:
            address = self._recipients[to] = self._principal.address(to, "to")
        return address

    def stamped(self, incoming: Incoming, to: str | None) -> Envelope:
        """The envelope in the name of the credential, if such a message may go from there to `to`."""
        envelope = incoming.envelope
        sender = self._sender(incoming.sender)
        self._roster.check_message(envelope.type, sender, to)
        reply_to = envelope.reply_to
        if reply_to is not None:
            reply_to = self._principal.address(reply_to, "metadata.replyTo")
        return msgspec.structs.replace(envelope, sender=sender, reply_to=reply_to)

    def _sender(self, given: str | None) -> str:
        sender = self._senders.get(given)
        if sender is None:
            sender = self._senders[given] = self._principal.sender(given, self._otherwise)
            heard(self._served, sender)
        return sender


def heard(served: Served, agent: str, status: str | None = None) -> None:
    """Every action of a registered agent is a sign of life."""
    if served.roster.registration(agent) is not None:
        served.roster.presence.heard(agent, served.now, status)


def receipt_body(receipt: Receipt, notes: tuple[str, ...] | None = None) -> ReceiptBody:
    return ReceiptBody(
        message_id=receipt.id,
        sequence=receipt.sequence,
        duplicate=receipt.duplicate,
        targets=receipt.targets,
        scheduled_delivery_time=iso(receipt.due) if receipt.due else msgspec.UNSET,
        notes=list(notes) if notes else msgspec.UNSET,
    )
