"""Mailboxes: opening them, reading them, and changing their messages."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated

import msgspec

from relaymesh.errors import InvalidEnvelope, NotFound
from relaymesh.kernel.address import subscriber_of
from relaymesh.kernel.commands import (
    Complete,
    Expect,
    ForceDelayed,
    OpenMailbox,
    Reprioritise,
    SetBreaker,
    Tick,
    Unexpect,
)
from relaymesh.kernel.pending import STATE_NAMES, Pending
from relaymesh.server.counting import stats_of_one
from relaymesh.server.ended_attempts import ended_by
from relaymesh.server.exchange import Exchange
from relaymesh.server.pages import pending_page
from relaymesh.wire.api import (
    BreakerRequest,
    ChangedAnswer,
    CompleteAnswer,
    CompleteRequest,
    EndedAnswer,
    EndedRequest,
    EntryBody,
    ExpectRequest,
    ForceDelayedRequest,
    MailboxAnswer,
    MailboxStatsBody,
    OpenMailboxRequest,
    PeekAnswer,
    ReprioritiseRequest,
    settings_from,
)
from relaymesh.wire.api.mailboxes import PEEK_MAX
from relaymesh.wire.envelope import iso, parse_priority
from relaymesh.wire.protocol import message_json


class PeekQuery(msgspec.Struct, frozen=True):
    """How many entries to show, and behind which sequence."""

    limit: int = 20
    after: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0


async def open_mailbox(exchange: Exchange) -> MailboxAnswer:
    """Open a mailbox, or change its settings. Idempotent."""
    principal = exchange.principal
    principal.require("agent")
    mailbox = principal.address(exchange.parameters["mailbox"], "mailbox")
    principal.require_mailbox(mailbox)
    request = await exchange.decode(OpenMailboxRequest)
    settings = None if request.settings is None else settings_from(request.settings)
    command = OpenMailbox(
        mailbox,
        exchange.served.opening(mailbox, settings),
        exchange.served.budget,
        may_reject=not principal.owner_of(mailbox),
    )
    await exchange.served.session.execute(command)
    return MailboxAnswer(mailbox=mailbox)


async def peek(exchange: Exchange) -> PeekAnswer:
    """A mailbox's counters and its first entries. No message is received."""
    principal, served = exchange.principal, exchange.served
    mailbox = principal.mailbox(exchange.parameters["mailbox"])
    if not principal.allows("read"):
        principal.require_mailbox(mailbox)
    query = exchange.query_into(PeekQuery, {"limit": "limit", "after": "after"})
    if not 0 <= query.limit <= PEEK_MAX:
        raise InvalidEnvelope(f"limit must lie between 0 and {PEEK_MAX}, not {query.limit}")
    stats = stats_of_one(served, mailbox)
    if stats is None:
        raise NotFound(f"there is no mailbox {mailbox}", hint="GET /v1/stats lists them")
    rows, more = served.node.core.read(partial(pending_page, mailbox, query.limit, query.after))
    rows = await served.session.whole(rows)
    return PeekAnswer(
        mailbox=mailbox,
        stats=msgspec.convert(stats, MailboxStatsBody, from_attributes=True),
        entries=[_entry(mailbox, row) for row in rows],
        more=more,
    )


def _entry(mailbox: str, entry: Pending) -> EntryBody:
    return EntryBody(
        sequence=entry.sequence,
        state=STATE_NAMES[entry.state],
        priority=entry.priority,
        attempts=entry.attempts,
        redrives=entry.redrives,
        accepted_at=iso(entry.accepted_at),
        due_at=iso(entry.due_at),
        ready_at=iso(entry.ready_at),
        message=msgspec.Raw(
            message_json(entry.envelope, mailbox, entry.accepted_at, max(0, entry.attempts - 1))
        ),
    )


def _owned(exchange: Exchange) -> str:
    """The mailbox in the path. The credential must be allowed to receive from it."""
    principal = exchange.principal
    principal.require("agent")
    mailbox = principal.mailbox(exchange.parameters["mailbox"])
    principal.require_mailbox(mailbox)
    exchange.acted_as({subscriber_of(mailbox)})
    return mailbox


def _administered(exchange: Exchange) -> str:
    """The mailbox of the path, for a credential that may change any of its namespace."""
    exchange.principal.require("write")
    return exchange.principal.mailbox(exchange.parameters["mailbox"])


async def complete(exchange: Exchange) -> CompleteAnswer:
    """The work was done although the lease was lost: the message is acked without another delivery."""
    mailbox = _owned(exchange)
    request = await exchange.decode(CompleteRequest)
    return CompleteAnswer(waits=await exchange.served.session.execute(Complete(mailbox, request.sequence)))


async def ended(exchange: Exchange) -> EndedAnswer:
    """Whether an attempt ended its message: for a client whose settle was not answered."""
    mailbox = _owned(exchange)
    request = await exchange.decode(EndedRequest)
    asked = [(mailbox, request.sequence, request.attempt, request.deadline_ms)]
    return EndedAnswer(ended=(await asyncio.to_thread(ended_by, exchange.served, asked))[0])


async def expect(exchange: Exchange) -> MailboxAnswer:
    """Keep answers with a correlation id for receives by that id."""
    mailbox = _owned(exchange)
    request = await exchange.decode(ExpectRequest)
    await exchange.served.session.execute(Expect(mailbox, request.correlation_id, exchange.served.budget))
    return MailboxAnswer(mailbox=mailbox)


async def unexpect(exchange: Exchange) -> MailboxAnswer:
    """Stop keeping them."""
    mailbox = _owned(exchange)
    request = await exchange.decode(ExpectRequest)
    await exchange.served.session.execute(Unexpect(mailbox, request.correlation_id))
    return MailboxAnswer(mailbox=mailbox)


async def reprioritise(exchange: Exchange) -> ChangedAnswer:
    """Give pending messages another priority."""
    mailbox = _administered(exchange)
    request = await exchange.decode(ReprioritiseRequest)
    ids = None if request.ids is None else frozenset(request.ids)
    command = Reprioritise(mailbox, ids, parse_priority(request.priority))
    changed = await exchange.served.session.execute(command)
    return ChangedAnswer(changed=changed)


async def set_breaker(exchange: Exchange) -> MailboxAnswer:
    """Open the circuit breaker by hand, or close it."""
    mailbox = _administered(exchange)
    request = await exchange.decode(BreakerRequest)
    await exchange.served.session.execute(SetBreaker(mailbox, request.open))
    return MailboxAnswer(mailbox=mailbox)


async def force_delayed(exchange: Exchange) -> ChangedAnswer:
    """Deliver delayed messages at once: of one mailbox, or of the credential's namespace."""
    principal, session = exchange.principal, exchange.served.session
    principal.require("write")
    request = await exchange.decode(ForceDelayedRequest)
    if request.mailbox is not None:
        return ChangedAnswer(changed=await session.execute(ForceDelayed(principal.mailbox(request.mailbox))))
    if principal.everywhere:
        return ChangedAnswer(changed=await session.execute(ForceDelayed()))
    changed = 0
    for mailbox, stats in (await exchange.served.counting.stats()).mailboxes.items():
        if stats.delayed and principal.sees(mailbox):
            changed += await session.execute(ForceDelayed(mailbox))
    return ChangedAnswer(changed=changed)


async def deliver_due(exchange: Exchange) -> ChangedAnswer:
    """Deliver delayed messages that are due. The node also does this by itself."""
    exchange.principal.require("agent")
    await exchange.body()
    return ChangedAnswer(changed=await exchange.served.session.execute(Tick()))
