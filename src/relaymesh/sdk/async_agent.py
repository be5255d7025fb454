"""Agents and subscriptions on an event loop: both receive messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import EllipsisType
from typing import TYPE_CHECKING, Any, overload

from relaymesh.errors import Empty, InvalidEnvelope, InvalidValue, NoAnswer
from relaymesh.kernel.address import name_of
from relaymesh.kernel.bounds import RECEIVE_MAX, patience, plain_text, shown, whole
from relaymesh.kernel.commands import Expect, Send, SetBreaker, Unexpect
from relaymesh.kernel.deliveries import Deliveries
from relaymesh.kernel.pending import Pending
from relaymesh.kernel.query import Peek
from relaymesh.sdk.async_delivery import AsyncDelivery
from relaymesh.sdk.compose import Batch
from relaymesh.sdk.handed import made_of
from relaymesh.sdk.handlers import Limits, checked_handler
from relaymesh.sdk.questions import asked_under, checked_answer
from relaymesh.sdk.receipt import Receipt
from relaymesh.wire.joining import joining

if TYPE_CHECKING:
    from relaymesh.sdk.async_mesh import AsyncMesh

__all__ = ["AsyncAgent", "AsyncHandler", "AsyncInbox", "AsyncSubscription"]

AsyncHandler = Callable[[AsyncDelivery], Any]


class AsyncInbox:
    """Has a mailbox to receive from."""

    def __init__(self, mesh: AsyncMesh, address: str) -> None:
        self._mesh = mesh
        self.address = address

    @property
    def name(self) -> str:
        return name_of(self.address)

    async def receive(self, timeout: float | None = None) -> AsyncDelivery:
        """Return the next delivery. Waits `timeout` seconds (None: without limit), then raises `Empty`."""
        deliveries = await self.receive_many(1, timeout)
        if not deliveries:
            raise Empty(f"nothing arrived for {self.name} within {timeout} s")
        return deliveries[0]

    async def receive_many(self, max: int, timeout: float | None = 0) -> list[AsyncDelivery]:
        """Return up to `max` deliveries as soon as there is one; an empty list if none came in time."""
        most = whole(max, "max", 1, RECEIVE_MAX)
        return self._deliveries(await self._mesh._session.receive(self.address, most, patience(timeout)))

    def _deliveries(self, got: Deliveries) -> list[AsyncDelivery]:
        mesh = self._mesh
        return made_of(got, AsyncDelivery, mesh, mesh._table_of(self.address))

    async def peek(self, limit: int = 100) -> list[Pending]:
        """Return what is pending, in the order of acceptance, without taking it."""
        return await self._mesh._session.execute(Peek(self.address, limit))

    async def open_breaker(self) -> None:
        """Deliver nothing until `close_breaker` or the next start: messages wait, and none of them fails."""
        await self._mesh._session.execute(SetBreaker(self.address, open=True))

    async def close_breaker(self) -> None:
        """Close the breaker and deliver again, whatever opened it."""
        await self._mesh._session.execute(SetBreaker(self.address, open=False))

    @overload
    def handle(
        self, handler: AsyncHandler, *, concurrency: int | None = None, time_limit: float | None = None
    ) -> AsyncHandler: ...

    @overload
    def handle(
        self, *, concurrency: int | None = None, time_limit: float | None = None
    ) -> Callable[[AsyncHandler], AsyncHandler]: ...

    def handle(
        self,
        handler: AsyncHandler | EllipsisType = ...,
        *,
        concurrency: int | None = None,
        time_limit: float | None = None,
    ) -> AsyncHandler | Callable[[AsyncHandler], AsyncHandler]:
        """Run the handler for every delivery. A handler that raises has failed.

        As `handle(work)`, as the decorator `@agent.handle`, or with limits as `@agent.handle(concurrency=2)`.
        `concurrency`: the most runs of this handler at once, within the workers of the mesh. `time_limit`:
        seconds a run may take; one that takes longer has failed with `TimeoutError`. At the limit a coroutine
        is cancelled, and its delivery is nacked when it has ended. A plain function cannot be stopped: its
        delivery is nacked at the limit, its later result is ignored, and it keeps its worker until it
        returns.
        """
        limits = Limits(concurrency, time_limit)
        self._mesh._check_loop()  # twin: async only
        if isinstance(handler, EllipsisType):
            return partial(self._serve, limits=limits)
        return self._serve(handler, limits)

    def _serve(self, handler: AsyncHandler, limits: Limits) -> AsyncHandler:
        self._mesh._pool.serve(self, checked_handler(handler), limits)
        return handler

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address}>"


class AsyncSubscription(AsyncInbox):
    """A durable subscription: a mailbox that a topic fills."""


class AsyncAgent(AsyncInbox):
    """A mailbox with a name that can also send."""

    async def register(
        self,
        *,
        role: str | None = None,
        capabilities: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Join the mesh as this agent, with a role and capabilities. A second call updates them.

        Over a server the agent is online from now on: the session sends its heartbeats until the mesh is
        closed. `role` decides which types of messages it may send and get over a server: `manager`,
        `developer`, `reviewer`, `tester` or `agent`. `metadata`: its own fields, for people.
        """
        await self._mesh._session.execute(
            joining(self.address, role=role, capabilities=capabilities, metadata=metadata, settles=True)
        )

    async def send(
        self,
        to: str,
        content: Any,
        *,
        id: str | None = None,
        type: str = "message",
        priority: int | str | None = None,
        task: str | None = None,
        key: str | None = None,
        delay_ms: float = 0,
        ttl: float = 3600,
        correlation_id: str | None = None,
        reply_to: str | None = None,
        requires_ack: bool = False,
        tags: Iterable[str] = (),
        max_retries: int | None = None,
        timeout: float | None = None,
        trace: str | None = None,
        extra: dict[str, Any] | None = None,
    ) -> Receipt:
        """Send one message. Returns its `Receipt` once it is durable.

        to: the name of an agent, or `namespace/name`.
        content: any JSON value as a Python value, or bytes. At most `payload_bytes_max` (10 MiB).
        id: 1 to 128 printable characters; generated if left out. A second send of the same id to the same
            recipient within a day returns the first receipt, with `duplicate` set. With other content it
            raises `Conflict`.
        type: a type of the protocol (docs/reference/protocol.md), or your own name with a dot in it.
        priority: 1 CRITICAL, 2 HIGH, 3 NORMAL, 4 LOW, 5 BACKGROUND, or such a name. None: by type, mostly 3.
        task: messages of one task are handled one after the other, in order.
        key: the same for any other order; overrides `task`.
        delay_ms: the message is not visible before this many milliseconds have passed. A negative value, or
            one that is not a number, counts as 0, and the receipt says so.
        ttl: seconds that a due message may wait before it becomes a dead letter. 0: no limit.
        correlation_id: the question or conversation that it belongs to; an answer carries that of its
            question.
        reply_to: the agent that gets answers and notices, if not the sender.
        requires_ack: the mesh sends the sender an `ack` when the receiver has acked, or a `nack` when the
            message is rejected or becomes a dead letter.
        tags: words for people and filters.
        max_retries: retries after the first attempt. None: the mailbox's setting, else its failure contract.
        timeout: seconds to wait for room in a full mailbox before `MailboxFull`. None: do not wait.
        trace: the W3C traceparent of the message.
        extra: your own fields, which the receiver gets with the content.
        """
        item: dict[str, Any] = {"to": to, "content": content}
        try:
            plain = (
                id, type, priority, task, key, delay_ms, ttl, correlation_id, reply_to,
                requires_ack, tags, max_retries, trace, extra,
            ) == _PLAIN  # fmt: skip
        except Exception:  # a value that cannot be compared: its own check says what it must be
            plain = False
        if not plain:
            item.update(
                id=id,
                type=type,
                priority=priority,
                task=task,
                key=key,
                delay_ms=delay_ms,
                ttl=ttl,
                correlation_id=correlation_id,
                reply_to=reply_to,
                requires_ack=requires_ack,
                tags=tags,
                max_retries=max_retries,
                trace=trace,
                extra=extra,
            )
        return (await self.send_many([item], timeout=timeout))[0]

    async def send_many(
        self, messages: Sequence[Mapping[str, Any]], *, timeout: float | None = None
    ) -> list[Receipt]:
        """Send a batch, all or none: each a dict of `to`, `content` and any field of `send`."""
        mesh = self._mesh
        session = mesh._session
        batch = Batch(self.address, messages, session.new_ids, mesh._limit, mesh._names)
        return batch.receipts(
            await session.execute(Send(batch.groups, batch.minted), timeout=patience(timeout))
        )

    async def publish(self, topic: str, content: Any, **fields: Any) -> Receipt:
        """Publish as this agent; see `AsyncMesh.publish`."""
        return await self._mesh.publish(topic, content, sender=self.address, **fields)

    async def ask(self, to: str, content: Any, timeout: float | None = 60, **fields: Any) -> AsyncDelivery:
        """Send a question and wait for its answer, which is already acked. Raises `NoAnswer`.

        The correlation id is `correlation_id`, else `id`, else a new one. With a given id, an answer that is
        already in the mailbox is taken: a program may ask again after a crash. It raises `NoAnswer` when
        the time is over or the question became a dead letter. An answer that comes later arrives as an
        ordinary message.
        """
        session = self._mesh._session
        wait_s = patience(timeout)
        to = plain_text(to, "recipient", InvalidEnvelope)
        correlation, minted = asked_under(fields, session.new_ids)
        await session.execute(Expect(self.address, correlation, minted=minted))
        try:
            fields = {"id": correlation, "reply_to": self.address, **fields}
            receipt = await self.send(to, content, type="question", correlation_id=correlation, **fields)
            got = await session.receive(self.address, 1, wait_s, correlation)
            if not got:
                raise NoAnswer(f"{to} did not answer question {receipt.id} within {wait_s} s")
            answer = self._deliveries(got)[0]
            await answer.ack()
        finally:
            await session.execute(Unexpect(self.address, correlation))
        checked_answer(answer, to)
        return answer

    async def answer(self, delivery: AsyncDelivery, content: Any, **fields: Any) -> Receipt:
        """Ack a question and send its answer, in one step: both are durable, or neither.

        A question that is already settled (at_most_once) is answered with an ordinary send. A question of a
        step is answered for its task: the mesh takes the answer itself, and no message is sent.
        """
        if not isinstance(delivery, AsyncDelivery):
            raise InvalidValue(f"an answer needs the delivery that it answers, not {shown(delivery)}")
        return await delivery._answer_as(self.address, content, fields)


_PLAIN = (None, "message", None, None, None, 0, 3600, None, None, False, (), None, None, None)
