"""Everything else a session has, by name: `call{name, arguments}`.

| needs | calls |
|---|---|
| `agent` | deliver_due |
| `agent`, and the mailbox | open_mailbox, subscribe, unsubscribe, expect, unexpect, complete, ended_by |
| `agent`, and its own name | register, drain |
| `read` | dead_letters, letters; peek, unless the mailbox is the credential's |
| `read` or `agent` | stats: of an agent's own token, that agent's mailboxes alone |
| `write` | redrive, purge, reprioritise, set_breaker, force_delayed |
| `admin` of every namespace | checkpoint |
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from relaymesh.errors import InvalidEnvelope, NotFound, RateLimited
from relaymesh.kernel.bounds import COUNT_MAX
from relaymesh.kernel.commands import (
    Complete,
    Expect,
    ForceDelayed,
    OpenMailbox,
    PurgeDeadLetters,
    Redrive,
    Reprioritise,
    SetBreaker,
    Subscribe,
    Tick,
    Unexpect,
    Unsubscribe,
)
from relaymesh.kernel.dead_letters import DeadLetter
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.query import DeadLetters, FindLetters
from relaymesh.server.ended_attempts import ended_by
from relaymesh.server.pages import letter_size, letters_after, page, pending_page
from relaymesh.server.routes.agents import handshake_ack
from relaymesh.server.ws.operations import Operations
from relaymesh.wire import frames
from relaymesh.wire.api import HandshakeAck
from relaymesh.wire.envelope import check_envelope
from relaymesh.wire.housekeeping import Checkpoint
from relaymesh.wire.stats import MeshStats

EXPECTED_MAX = 10_000
"""Answers that one session may expect at a time."""


class Page(msgspec.Struct, frozen=True):
    """A part of a long list, and whether it goes on."""

    rows: list[Any]
    more: bool = False


async def _open_mailbox(on: Operations, given: frames.OpenMailbox) -> None:
    mailbox = on.mailbox(given.mailbox)
    may_reject = not on.principal.owner_of(mailbox)
    settings = on.served.opening(mailbox, given.settings)
    await on.served.session.execute(OpenMailbox(mailbox, settings, on.served.budget, may_reject))


async def _subscribe(on: Operations, given: frames.Subscribe) -> None:
    on.principal.require("agent")
    pattern = on.principal.pattern(given.pattern)
    mailbox = on.principal.subscription(given.pattern, given.name)
    on.principal.require_mailbox(mailbox)
    owner = on.principal.owner_of(mailbox)
    settings = on.served.settings.reliability.mailbox_settings(given.settings)
    await on.served.session.execute(
        Subscribe(pattern, mailbox, settings, owner, on.served.budget, may_reject=not owner)
    )


async def _unsubscribe(on: Operations, given: frames.OfMailbox) -> int:
    return await on.served.session.execute(Unsubscribe(on.mailbox(given.mailbox)))


async def _expect(on: Operations, given: frames.Correlation) -> None:
    """What is expected ends with the session at the latest."""
    mailbox = on.mailbox(given.mailbox)
    renewed = (mailbox, given.correlation_id) in on.session.expected
    if len(on.session.expected) >= EXPECTED_MAX and not renewed:
        raise RateLimited(
            f"{EXPECTED_MAX} answers are expected already",
            hint="wait until some of them are answered, or give some up with unexpect",
        )
    await on.served.session.execute(Expect(mailbox, given.correlation_id, on.served.budget))
    on.session.expected.add((mailbox, given.correlation_id))


async def _unexpect(on: Operations, given: frames.Correlation) -> None:
    mailbox = on.mailbox(given.mailbox)
    on.session.expected.discard((mailbox, given.correlation_id))
    await on.served.session.execute(Unexpect(mailbox, given.correlation_id))


async def _complete(on: Operations, given: frames.Complete) -> bool:
    return await on.served.session.execute(Complete(on.mailbox(given.mailbox), given.sequence))


async def _ended_by(on: Operations, given: frames.Attempts) -> list[bool]:
    for mailbox in {mailbox for mailbox, *_ in given.attempts}:
        on.mailbox(mailbox)
    return await asyncio.to_thread(ended_by, on.served, given.attempts)


async def _register(on: Operations, given: frames.Register) -> HandshakeAck:
    agent = on.mailbox(given.agent)
    registration = await on.served.roster.register(
        agent,
        on.served.now,
        role=given.role,
        capabilities=given.capabilities,
        protocol=given.protocol_version,
        metadata=given.metadata,
    )
    on.speaks_for(agent)
    return handshake_ack(on.served, agent, registration)


async def _drain(on: Operations, given: frames.OfAgent) -> None:
    await on.served.roster.drain(on.mailbox(given.agent))


# -- looking


async def _stats(on: Operations, given: frames.Nothing) -> MeshStats:  # noqa: ARG001 - takes nothing
    may_look = on.principal.may_look
    on.principal.require_looking()
    stats = await on.served.counting.stats()
    if on.principal.everywhere:
        return stats
    seen = {address: box for address, box in stats.mailboxes.items() if may_look(address)}
    kept = {payer: size for payer, size in stats.kept.items() if may_look(payer.split(" ")[-1])}
    dead_letters = sum(box.dead_letters for box in seen.values())
    return msgspec.structs.replace(stats, mailboxes=seen, dead_letters=dead_letters, kept=kept)


async def _peek(on: Operations, given: frames.Peek) -> Page:
    address = on.principal.mailbox(given.mailbox)
    if not on.principal.may_receive(address):
        on.principal.require("read")
    look = partial(pending_page, address, min(max(0, given.limit), COUNT_MAX), given.after)
    async with on.account.long_work:
        rows, more = on.served.node.core.read(look)
        await asyncio.sleep(0)
        return Page(rows, more)


async def _dead_letters(on: Operations, given: frames.LettersPage) -> Page:
    async with on.account.long_work:
        letters = await on.served.session.execute(DeadLetters())
        seen = await letters_after(letters, given.after or (0, ""), on.principal.sees)
        return Page(*page(seen, letter_size))


async def _letters(on: Operations, given: frames.Letters) -> Page:
    """The letters of these names, in their order; `more`: ask again for those that are left."""
    return Page(*page(await _named(on, given.letters), letter_size))


async def _named(on: Operations, names: Sequence[tuple[str, int]]) -> list[DeadLetter]:
    found = []
    letters = await on.served.session.execute(FindLetters(names))
    for name, letter in zip(names, letters, strict=True):
        if letter is None or not on.principal.sees(letter.mailbox):
            raise NotFound(
                f"there is no dead letter {name[1]} of {name[0]}", hint="the call dead_letters lists them"
            )
        found.append(letter)
    return found


# -- changing


async def _redrive(on: Operations, given: frames.Redrive) -> list[int | None]:
    letters = await _named(on, given.letters)
    to = None if given.to is None else on.principal.address(given.to, "recipient")
    edited = None if given.edited is None else _edited(on, letters, given.edited)
    return await on.served.session.execute(Redrive(given.letters, to, edited))


def _edited(
    on: Operations, letters: list[DeadLetter], edited: Sequence[Envelope | None]
) -> list[Envelope | None]:
    """What the client made of each letter's message: its content and id; the rest stays as it was."""
    if len(edited) != len(letters):
        raise InvalidEnvelope(f"{len(letters)} letters are named and {len(edited)} edited")
    made: list[Envelope | None] = []
    for letter, envelope in zip(letters, edited, strict=True):
        if envelope is None:
            made.append(None)
            continue
        # Only its content and its id are taken: the old message's own fields need not be sound today.
        check_envelope(msgspec.structs.replace(envelope, extra=None), on.served.session.payload_bytes_max)
        old = letter.envelope
        made.append(
            msgspec.structs.replace(
                old,
                id=envelope.id,
                content=envelope.content,
                encoding=envelope.encoding,
                origin=old.origin or old.id,
            )
        )
    return made


async def _purge(on: Operations, given: frames.Letters) -> int:
    await _named(on, given.letters)
    return await on.served.session.execute(PurgeDeadLetters(given.letters))


async def _reprioritise(on: Operations, given: frames.Reprioritise) -> int:
    ids = None if given.ids is None else frozenset(given.ids)
    if not 1 <= given.priority <= 5:
        raise InvalidEnvelope(f"priority must be 1 (first) to 5 (last), not {given.priority}")
    return await on.served.session.execute(Reprioritise(on.mailbox(given.mailbox), ids, given.priority))


async def _set_breaker(on: Operations, given: frames.SetBreaker) -> None:
    await on.served.session.execute(SetBreaker(on.mailbox(given.mailbox), given.open))


async def _force_delayed(on: Operations, given: frames.ForceDelayed) -> int:
    session = on.served.session
    if given.mailbox is not None:
        return await session.execute(ForceDelayed(on.mailbox(given.mailbox)))
    if on.principal.everywhere:
        return await session.execute(ForceDelayed())
    stats = await on.served.counting.stats()
    return sum(
        [
            await session.execute(ForceDelayed(address))
            for address, box in stats.mailboxes.items()
            if box.delayed and on.principal.sees(address)
        ]
    )


async def _deliver_due(on: Operations, given: frames.Nothing) -> int:  # noqa: ARG001 - takes nothing
    return await on.served.session.execute(Tick())


async def _checkpoint(on: Operations, given: frames.Nothing) -> int | None:  # noqa: ARG001 - takes nothing
    on.principal.require_everywhere()
    return await on.served.session.execute(Checkpoint())


class Row(msgspec.Struct, frozen=True):
    """One call: the scope it needs, what it is given, what it does."""

    scope: str | None
    """None: it asks for itself."""
    arguments: type[frames.Arguments]
    do: Callable[[Operations, Any], Awaitable[Any]]


CALLS: dict[str, Row] = {
    "open_mailbox": Row("agent", frames.OpenMailbox, _open_mailbox),
    "subscribe": Row("agent", frames.Subscribe, _subscribe),
    "unsubscribe": Row("agent", frames.OfMailbox, _unsubscribe),
    "expect": Row("agent", frames.Correlation, _expect),
    "unexpect": Row("agent", frames.Correlation, _unexpect),
    "complete": Row("agent", frames.Complete, _complete),
    "ended_by": Row("agent", frames.Attempts, _ended_by),
    "register": Row("agent", frames.Register, _register),
    "drain": Row("agent", frames.OfAgent, _drain),
    "stats": Row(None, frames.Nothing, _stats),
    "peek": Row(None, frames.Peek, _peek),
    "dead_letters": Row("read", frames.LettersPage, _dead_letters),
    "letters": Row("read", frames.Letters, _letters),
    "redrive": Row("write", frames.Redrive, _redrive),
    "purge": Row("write", frames.Letters, _purge),
    "reprioritise": Row("write", frames.Reprioritise, _reprioritise),
    "set_breaker": Row("write", frames.SetBreaker, _set_breaker),
    "force_delayed": Row("write", frames.ForceDelayed, _force_delayed),
    "deliver_due": Row("agent", frames.Nothing, _deliver_due),
    "checkpoint": Row(None, frames.Nothing, _checkpoint),
}


PAGES = frozenset({"peek", "dead_letters", "letters"})
"""Calls whose answers may be long: a credential gets one after the other."""
READING = PAGES | {"ended_by", "stats"}
"""Calls that write nothing."""


async def call(on: Operations, name: str, arguments: Callable[[type[Any]], Any]) -> Any:
    """Do what is named; `arguments` decodes what was given with it."""
    row = CALLS.get(name)
    if row is None:
        raise NotFound(f"there is no call {name[:80]!r}", hint=f"calls are {', '.join(CALLS)}")
    if row.scope is not None:
        on.principal.require(row.scope)
    try:
        given = arguments(row.arguments)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidEnvelope(f"the arguments of {name}: {error}") from None
    return await row.do(on, given)
