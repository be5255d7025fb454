"""A delivered message under its lease: what `Delivery` and `AsyncDelivery` share."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from itertools import repeat
from typing import Any, TypeVar

import msgspec

from relaymesh.errors import InvalidValue, LeaseLost, MeshError
from relaymesh.kernel.address import name_of
from relaymesh.kernel.bounds import shown
from relaymesh.kernel.commands import Nack
from relaymesh.kernel.contract import OTHER
from relaymesh.kernel.deliveries import NO_LANE, Deliveries
from relaymesh.kernel.envelope import Encoding, Envelope
from relaymesh.kernel.tasks.commands import NO_USAGE, OUTPUT_MAX, Usage
from relaymesh.kernel.token import format_token
from relaymesh.sdk.endings import FailureTable, Reject, stack_of, text_of, until_ms
from relaymesh.sdk.results import Continue, Result
from relaymesh.sdk.typed import Model, content_as
from relaymesh.wire.content import decode_content, encode_content
from relaymesh.wire.envelope import when
from relaymesh.wire.tasks import is_step, step_message

__all__ = ["AnyDelivery", "Handed", "checked_deliveries", "made_of", "mark_settled"]

_UNREAD = object()


class Handed(msgspec.Struct, gc=False, eq=False):
    """The message, and whether it is settled.

    A struct, because one is made per message: it takes half the time, and the garbage collector skips it.
    """

    _mesh: Any
    _table: FailureTable
    _settled: bool
    _mailbox: str
    _token: int
    _sequence: int
    _attempt: int
    _granted_until: int
    _envelope: Envelope
    _lane: int = NO_LANE
    _topic: str | None = None
    _lost: bool = False
    _content: Any = _UNREAD
    _extended: int = 0
    """The deadline that the node returned for the latest extension; 0 before the first."""
    _result: bytes | None = None
    """The JSON that a handler returned: the result of a step."""
    _growth: bytes | None = None
    """The steps that a handler returned in place of a result, as JSON."""
    _usage: Usage = NO_USAGE
    """The usage of the attempt that the handler returned."""

    @property
    def id(self) -> str:
        """The id of the message: the same at every attempt."""
        return self._envelope.id

    @property
    def content(self) -> Any:
        """What was sent: JSON as Python values, or bytes."""
        if self._content is _UNREAD:
            envelope = self._envelope
            self._content = decode_content(envelope.content, envelope.encoding)
        return self._content

    def as_type(self, kind: builtins.type[Model]) -> Model:
        """The content as a `kind`: a msgspec Struct, a dataclass, a TypedDict, a pydantic model or a builtin.

        Content that does not fit raises a `ValidationError` (that of msgspec, or of pydantic) which names the
        field. If a handler does not catch it, the handler has failed with the code `invalid`: a dead letter,
        at once.
        """
        return content_as(self._envelope, kind)

    @property
    def type(self) -> str:
        """A type of the protocol, or a type name of the sender's own."""
        return self._envelope.type

    @property
    def sender(self) -> str:
        """The address of the agent that sent it; `default/mesh` for a message published without an agent."""
        return self._envelope.sender

    @property
    def receiver(self) -> str:
        """The address of the mailbox that it came from."""
        return self._mailbox

    @property
    def topic(self) -> str | None:
        """The topic that it was published to, such as `order.created`; None if it was sent to an agent."""
        topic = self._topic
        return None if topic is None else name_of(topic)

    @property
    def priority(self) -> int:
        """1 CRITICAL to 5 BACKGROUND."""
        return self._envelope.priority

    @property
    def task(self) -> str | None:
        """The task that it belongs to, if any: that of its step, or the one that the sender named."""
        step = step_message(self._envelope)
        return self._envelope.task if step is None else step.task

    @property
    def step(self) -> str | None:
        """The name of the step that it is, in its task; None for any other message."""
        step = step_message(self._envelope)
        return None if step is None else step.step

    @property
    def input(self) -> Any:
        """The input of the step that it is; the content of any other message."""
        step = step_message(self._envelope)
        return self.content if step is None else step.input

    @property
    def key(self) -> str | None:
        """Its ordering key, if any."""
        return self._envelope.key

    @property
    def tags(self) -> tuple[str, ...]:
        """Words for people and filters."""
        return self._envelope.tags

    @property
    def correlation_id(self) -> str | None:
        """The question or conversation that it belongs to."""
        return self._envelope.correlation_id

    @property
    def reply_to(self) -> str | None:
        """The agent that gets answers, if not the sender."""
        return self._envelope.reply_to

    @property
    def trace(self) -> str | None:
        """The W3C traceparent of the message."""
        return self._envelope.trace

    @property
    def attempt(self) -> int:
        """1 for the first delivery of this message to this mailbox."""
        return self._attempt

    @property
    def sequence(self) -> int:
        """The sequence number under which the message was accepted."""
        return self._sequence

    @property
    def token(self) -> str:
        """The lease token: it names this attempt; each attempt has its own."""
        return format_token(self._token)

    @property
    def deadline(self) -> datetime:
        """When the lease ends, unless it is extended."""
        return when(self._deadline)

    @property
    def _deadline(self) -> int:
        return self._extended or self._granted_until

    @property
    def settled(self) -> bool:
        """Whether it was acked, nacked, dropped or answered: nothing is left to settle."""
        return self._settled

    @property
    def lost(self) -> bool:
        """Whether the lease ended: another receiver may get the message and do the same work."""
        return self._lost

    @property
    def _held(self) -> bool:
        """Whether the handler should run: the lease is held, or the delivery was settled before it was
        delivered."""
        return self._settled or self._mesh._session.holds(self._token)

    @property
    def envelope(self) -> Envelope:
        """Everything that the sender gave, in the form of the journal."""
        return self._envelope

    def __repr__(self) -> str:
        state = "settled" if self._settled else "lost" if self._lost else "leased"
        return f"<Delivery {self.id} from {self.sender} attempt {self.attempt} {state}>"

    def _take_result(self, value: Any) -> None:
        """Keep what a handler returned, if this is a step. A value that is not JSON rejects the delivery: to
        run the handler again would not help.
        """
        try:
            self._give_result(value)
        except MeshError as error:
            raise Reject(f"step {self.step} returned a value that is no result: {error.message}") from None

    def _give_result(self, value: Any) -> None:
        """Keep the result of a step. Raises `MeshError` for a value that is not JSON."""
        if is_step(self._envelope):
            if isinstance(value, Continue):
                self._growth, self._usage = value.document, value.usage
                return
            usage = value.usage if isinstance(value, Result) else self._usage
            self._result = json_result(value.value if isinstance(value, Result) else value)
            self._usage = usage

    def _require_step(self, result: Any) -> None:
        """Refuse a result that would be lost. What a handler returns for other messages is left alone."""
        if result is not None and not is_step(self._envelope):
            raise InvalidValue(
                f"{self.id} is no step of a task: its sender gets no result",
                hint="answer(…) answers a question; ack() settles any message; it is not settled yet",
            )

    def _settle(self, stale: list[int]) -> None:
        if stale:
            self._lost = True
            raise LeaseLost(f"the lease of {self.id} on {self.receiver} was lost (attempt {self.attempt})")
        self._settled = True

    def _nack(
        self,
        error: BaseException | str | None,
        code: str | None,
        retryable: bool,
        delay_ms: int | None,
        until: datetime | float | None,
    ) -> Nack:
        if isinstance(error, BaseException):
            reason, stack = f"{type(error).__name__}: {text_of(error)}", stack_of(error)
            code = self._table.code_of(error) if code is None else code
        else:
            reason, stack = "" if error is None else error, ""
        moment = None if until is None else until_ms(until)
        return Nack(self._token, OTHER if code is None else code, reason, stack, retryable, delay_ms, moment)

    def _reply(self) -> tuple[str, dict[str, Any]]:
        """The recipient of an answer, and the fields that make it one."""
        envelope = self._envelope
        fields = {"type": "answer", "correlation_id": envelope.correlation_id or envelope.id}
        return envelope.reply_to or envelope.sender, fields


def json_result(value: Any) -> bytes:
    """The bytes of a result: any JSON value of at most 1 MiB."""
    data, encoding = encode_content(value, OUTPUT_MAX)
    if encoding != Encoding.JSON:
        raise InvalidValue("a result must be a JSON value, not bytes")
    return data


AnyDelivery = TypeVar("AnyDelivery", bound=Handed)


def made_of(
    got: Deliveries, kind: Callable[..., AnyDelivery], mesh: Any, table: FailureTable
) -> list[AnyDelivery]:
    """Make a delivery for each row."""
    if len(got.tokens) == 1 and got.lanes is None and got.topics is None:
        one = kind(
            mesh,
            table,
            got.settled,
            got.mailbox,
            got.tokens[0],
            got.sequences[0],
            got.attempts[0],
            got.deadlines[0],
            got.envelopes[0],
        )
        return [one]
    made = map(
        kind,
        repeat(mesh),
        repeat(table),
        repeat(got.settled),
        repeat(got.mailbox),
        got.tokens,
        got.sequences,
        got.attempts,
        got.deadlines,
        got.envelopes,
        repeat(NO_LANE) if got.lanes is None else got.lanes,
        got.each_topic,
    )
    return list(made)


def checked_deliveries(given: Iterable[AnyDelivery], kind: type[AnyDelivery]) -> list[AnyDelivery]:
    """A new list, checked to hold only deliveries."""
    try:
        deliveries = list(given)
    except Exception as error:
        raise InvalidValue(f"ack_many takes a list of deliveries, not {shown(given)}") from error
    for delivery in deliveries:
        if delivery.__class__ is not kind:
            raise InvalidValue(f"ack_many takes a list of deliveries, and {shown(delivery)} is none")
    return deliveries


def mark_settled(deliveries: Sequence[Any], stale: Sequence[int]) -> None:
    lost = set(stale)
    for delivery in deliveries:
        if delivery._token in lost:
            delivery._lost = True
        else:
            delivery._settled = True
    if lost:
        names = ", ".join(each.id for each in deliveries if each._token in lost)
        raise LeaseLost(f"{len(lost)} of {len(deliveries)} leases were lost: {names[:500]}")
