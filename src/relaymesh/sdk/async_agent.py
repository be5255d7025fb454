"""Agents and subscriptions on an event loop: the twins of `agent.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from relaymesh.errors import Empty, InvalidEnvelope, InvalidValue, LeaseLost, NoAnswer
from relaymesh.kernel.address import name_of
from relaymesh.kernel.bounds import RECEIVE_MAX, patience, plain_text, shown, whole
from relaymesh.kernel.commands import Expect, Send, SetBreaker, Settle, Unexpect
from relaymesh.kernel.deliveries import Deliveries
from relaymesh.kernel.pending import Pending
from relaymesh.kernel.query import Peek
from relaymesh.sdk.agent import asked_under, checked_answer, checked_handler
from relaymesh.sdk.compose import Batch
from relaymesh.sdk.delivery import AsyncDelivery, made_of
from relaymesh.sdk.receipt import Receipt
from relaymesh.wire.joining import joining

if TYPE_CHECKING:
    from relaymesh.sdk.async_mesh import AsyncMesh

AsyncHandler = Callable[[AsyncDelivery], Any]


class AsyncInbox:
    """Something with a mailbox to receive from."""

    def __init__(self, mesh: AsyncMesh, address: str) -> None:
        self._mesh = mesh
        self.address = address

    @property
    def name(self) -> str:
        return name_of(self.address)

    async def receive(self, timeout: float | None = None) -> AsyncDelivery:
        """The next delivery. Waits `timeout` seconds (None: as long as it takes), then raises `Empty`."""
        deliveries = await self.receive_many(1, timeout)
        if not deliveries:
            raise Empty(f"nothing arrived for {self.name} within {timeout} s")
        return deliveries[0]

    async def receive_many(self, max: int, timeout: float | None = 0) -> list[AsyncDelivery]:
        """Up to `max` deliveries, as soon as there is one; a list, maybe empty."""
        most = whole(max, "max", 1, RECEIVE_MAX)
        return self._deliveries(await self._mesh._session.receive(self.address, most, patience(timeout)))

    def _deliveries(self, got: Deliveries) -> list[AsyncDelivery]:
        mesh = self._mesh
        return made_of(got, AsyncDelivery, mesh, mesh._table_of(self.address))

    async def peek(self, limit: int = 100) -> list[Pending]:
        """What is pending, in the order of acceptance, without taking it."""
        return await self._mesh._session.execute(Peek(self.address, limit))

    async def open_breaker(self) -> None:
        """Give nothing out until `close_breaker` or the next start: messages wait, and none fails."""
        await self._mesh._session.execute(SetBreaker(self.address, open=True))

    async def close_breaker(self) -> None:
        """Give out again what waits, whatever opened the breaker."""
        await self._mesh._session.execute(SetBreaker(self.address, open=False))

    def handle(self, handler: AsyncHandler) -> AsyncHandler:
        """Decorator: run the handler for every delivery. A handler that raises has failed."""
        self._mesh._check_loop()
        self._mesh._pool.serve(self, checked_handler(handler))
        return handler

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address}>"


class AsyncSubscription(AsyncInbox):
    """A durable subscription: a mailbox that a topic fills."""


class AsyncAgent(AsyncInbox):
    """A mailbox with a name, that also sends."""

    async def register(
        self,
        *,
        role: str | None = None,
        capabilities: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Join the mesh as this agent, with a role and what it can do; see `Agent.register`."""
        await self._mesh._session.execute(
            joining(self.address, role=role, capabilities=capabilities, metadata=metadata)
        )

    async def send(self, to: str, content: Any, *, timeout: float | None = None, **fields: Any) -> Receipt:
        """Send one message; the fields are those of `Agent.send`. Returns once it is durable."""
        return (await self.send_many([{"to": to, "content": content, **fields}], timeout=timeout))[0]

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
        """Send a question and wait for its answer, which is acked already. Raises `NoAnswer`."""
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
        """Ack a question and send its answer, in one step: both are durable, or neither."""
        mesh = self._mesh
        if not isinstance(delivery, AsyncDelivery):
            raise InvalidValue(f"an answer needs the delivery that it answers, not {shown(delivery)}")
        to, reply = delivery._answer()
        item = {"to": to, "content": content, **reply, **fields}
        if delivery._settled:
            return (await self.send_many([item]))[0]
        batch = Batch(self.address, [item], mesh._session.new_ids, mesh._limit, mesh._names)
        try:
            receipts = batch.receipts(await mesh._session.execute(Settle(delivery._token, batch.groups)))
        except LeaseLost:
            delivery._lost = True
            raise
        delivery._settled = True
        return receipts[0]
