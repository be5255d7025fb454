"""Receiving: a long poll. If the client disconnects while it waits, it has received nothing, and no
attempt is counted."""

from __future__ import annotations

import asyncio

import msgspec

from relaymesh.errors import RateLimited
from relaymesh.kernel.address import subscriber_of
from relaymesh.kernel.commands import Release
from relaymesh.kernel.deliveries import NO_LANE, Deliveries, DeliveryRow, nothing_from
from relaymesh.kernel.token import format_token
from relaymesh.server.exchange import Disconnected, Exchange, decode_body
from relaymesh.server.intake import heard
from relaymesh.server.portion import ANSWER_BYTES_MAX, portion
from relaymesh.server.security.principal import Principal
from relaymesh.server.served import Served
from relaymesh.wire.api import DeliveriesAnswer, DeliveryBody, ReceiveRequest
from relaymesh.wire.envelope import iso
from relaymesh.wire.protocol import message_json

QUERY = {"max": "max", "wait_ms": "waitMs", "correlation_id": "correlationId", "holder": "holder"}


async def receive(exchange: Exchange) -> DeliveriesAnswer:
    """Up to `max` deliveries, at once or within `wait_ms`. The parameters are in the body or the query."""
    principal, served = exchange.principal, exchange.served
    principal.require("agent")
    mailbox = principal.mailbox(exchange.parameters["mailbox"])
    principal.require_mailbox(mailbox)
    exchange.acted_as({subscriber_of(mailbox)})
    body = await exchange.body()
    request = decode_body(body, ReceiveRequest) if body else exchange.query_into(ReceiveRequest, QUERY)
    holder = _holder(principal, request)
    exchange.check_room(ANSWER_BYTES_MAX)
    heard(served, subscriber_of(mailbox))
    given = await served.session.receive(
        mailbox, request.max, 0, request.correlation_id, holder=holder, remote=True
    )
    if not given and request.wait_ms and not served.stopping.is_set():
        given = await _poll(exchange, mailbox, request, holder)
    given = await _fitting(served, given)
    now = served.now
    return DeliveriesAnswer(deliveries=delivery_bodies(given, now), now=now)


async def _fitting(served: Served, given: Deliveries) -> Deliveries:
    """The deliveries that fit into one answer; the others go back, and no attempt is counted."""
    count = portion(envelope.size for envelope in given.envelopes)
    if count == len(given):
        return given
    await served.session.execute(Release(given.tokens[count:]))
    return given.first(count)


def _holder(principal: Principal, request: ReceiveRequest) -> str:
    """The holder begins with the token's id, so that it cannot be that of another credential."""
    return f"{principal.token_id}:{request.holder}" if request.holder else principal.token_id


async def _poll(exchange: Exchange, mailbox: str, request: ReceiveRequest, holder: str) -> Deliveries:
    served = exchange.served
    if served.counts.polls >= served.settings.receive_waits_max:
        raise RateLimited(
            f"{served.counts.polls} long polls wait already", hint="receive over /v1/ws instead"
        )
    served.counts.polls += 1
    wait_s = request.wait_ms / 1000
    receiving = asyncio.ensure_future(
        served.session.receive(
            mailbox, request.max, wait_s, request.correlation_id, holder=holder, remote=True
        )
    )
    leaving = asyncio.ensure_future(exchange.disconnected())
    stopping = asyncio.ensure_future(served.stopping.wait())
    try:
        await asyncio.wait({receiving, leaving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if leaving.done():
            await _give_back(served, receiving)
            raise Disconnected
        if not receiving.done():
            await _give_back(served, receiving)
            return nothing_from(mailbox)
        return receiving.result()
    finally:
        served.counts.polls -= 1
        for task in (receiving, leaving, stopping):
            task.cancel()


async def _give_back(served: Served, receiving: asyncio.Future[Deliveries]) -> None:
    """Deliveries that came in the same moment go back too."""
    if not receiving.done():
        receiving.cancel()  # the session gives back what was on its way
    elif not receiving.cancelled() and receiving.exception() is None:
        await served.session.execute(Release(receiving.result().tokens))


def delivery_bodies(given: Deliveries, now: int) -> list[DeliveryBody]:
    """Deliveries in the form of the API."""
    return [_body(row, given, now) for row in given.rows()]


def _body(row: DeliveryRow, given: Deliveries, now: int) -> DeliveryBody:
    return DeliveryBody(
        token=format_token(row.token),
        attempt=row.attempt,
        deadline=iso(row.deadline),
        lease_ms=max(0, row.deadline - now),
        mailbox=row.mailbox,
        sequence=row.sequence,
        message=msgspec.Raw(
            message_json(row.envelope, row.mailbox, row.accepted_at, max(0, row.attempt - 1))
        ),
        settled=row.settled,
        lane=None if row.lane == NO_LANE else given.lane_keys[row.lane],
        topic=row.topic,
    )
