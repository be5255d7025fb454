"""Sending: to agents, and to topics. The hot path of the HTTP API: there is no framework between it and
ASGI."""

from __future__ import annotations

import msgspec

from relaymesh.errors import InvalidEnvelope
from relaymesh.kernel.commands import Publish, Send
from relaymesh.server.exchange import Exchange, Reply, accepted
from relaymesh.server.intake import Intake, TopicIntake, messages_in, parsed
from relaymesh.server.orders import Orders
from relaymesh.wire.api import ReceiptBody, ReceiptsAnswer

TIMEOUT_MS_MAX = 60_000


class SendQuery(msgspec.Struct, frozen=True):
    """How long to wait for room in a full mailbox; 0: answer 429 at once."""

    timeout_ms: int = 0


async def send(exchange: Exchange) -> Reply:
    """Send one message, or a batch: accepted whole or not at all, and synced when the answer comes.

    `task_assign`, `task_update`, `task_complete` and `task_failed` to `relaymesh`, each sent alone, are
    executed by the mesh itself: task.schema.json has their content.
    """
    principal, served = exchange.principal, exchange.served
    principal.require("agent")
    timeout = _timeout(exchange)
    messages, batch = await messages_in(exchange.account, await exchange.body())
    exchange.charge(len(messages))
    intake = Intake(served, principal, await parsed(served, exchange.account, messages))
    exchange.acted_as(intake.senders)
    if intake.order is not None:
        obeyed = await Orders(served, principal, exchange.account).obey(intake.order, intake.notes.get(0))
        return _receipts([obeyed.body], batch)
    command = Send(intake.groups, intake.minted, budget=served.budget)
    receipts = await served.session.execute(command, timeout=timeout)
    return _receipts(intake.receipts(receipts), batch)


async def publish(exchange: Exchange) -> Reply:
    """Publish one message, or a batch, to every subscriber of the topic."""
    principal, served = exchange.principal, exchange.served
    principal.require("agent")
    topic = principal.topic(exchange.parameters["topic"])
    timeout = _timeout(exchange)
    messages, batch = await messages_in(exchange.account, await exchange.body())
    exchange.charge(len(messages))
    intake = TopicIntake(served, principal, await parsed(served, exchange.account, messages))
    exchange.acted_as(intake.senders)
    command = Publish(topic, intake.envelopes, intake.minted, budget=served.budget)
    receipts = await served.session.execute(command, timeout=timeout)
    return _receipts(intake.receipts(receipts), batch)


def _receipts(receipts: list[ReceiptBody], batch: bool) -> Reply:
    return accepted(ReceiptsAnswer(receipts=receipts) if batch else receipts[0])


def _timeout(exchange: Exchange) -> float | None:
    if not exchange.scope.get("query_string"):
        return None
    query = exchange.query_into(SendQuery, {"timeout_ms": "timeout_ms"})
    if not 0 <= query.timeout_ms <= TIMEOUT_MS_MAX:
        raise InvalidEnvelope(f"timeout_ms must lie between 0 and {TIMEOUT_MS_MAX}, not {query.timeout_ms}")
    return query.timeout_ms / 1000
