"""Dead letters of the credential's namespace: looking at them, sending them back, removing them."""

from __future__ import annotations

import asyncio
import binascii
from base64 import b64decode
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from relaymesh.errors import InvalidEnvelope, InvalidSettings, NotFound
from relaymesh.kernel.commands import PurgeDeadLetters, Redrive
from relaymesh.kernel.dead_letters import DeadLetter as Letter
from relaymesh.kernel.envelope import Encoding, Envelope
from relaymesh.kernel.query import DeadLetters
from relaymesh.sdk.letters import DeadLetter, select
from relaymesh.server.exchange import Exchange
from relaymesh.server.pages import letter_size, letters_after
from relaymesh.server.portion import portion
from relaymesh.server.served import Served
from relaymesh.wire.api import (
    DeadLetterBody,
    DeadLettersAnswer,
    LetterChoice,
    LetterFilter,
    PurgedAnswer,
    PurgeRequest,
    RedrivenAnswer,
    RedrivenBody,
    RedriveRequest,
)
from relaymesh.wire.content import check_json
from relaymesh.wire.envelope import check_id
from relaymesh.wire.letter import letter_body

REDRIVE_S_MAX = 60
"""A redrive with a rate is paced inside its request, which must not last longer than this."""

QUERY = {
    "receiver": "receiver",
    "sender": "sender",
    "reason": "reason",
    "code": "code",
    "id": "ids",
    "since": "since",
    "until": "until",
    "status": "status",
    "after": "after",
    "limit": "limit",
}


async def list_letters(exchange: Exchange) -> DeadLettersAnswer:
    """Dead letters that match the query, oldest first; `after` returns those that follow."""
    exchange.principal.require("read")
    wanted = exchange.query_into(LetterFilter, QUERY, many=frozenset({"id"}))
    found = _fitting(await _visible(exchange), msgspec.structs.replace(wanted, limit=wanted.limit + 1))
    shown = found[: portion(letter_size(letter) for letter in found[: wanted.limit])]
    more = len(found) > len(shown)
    whole = await exchange.served.session.whole(shown)
    return DeadLettersAnswer(dead_letters=[letter_body(each) for each in whole], more=more)


async def show(exchange: Exchange) -> DeadLetterBody:
    """One dead letter."""
    exchange.principal.require("read")
    text = exchange.parameters["dead_sequence"]
    if not (text.isascii() and text.isdecimal() and len(text) <= 19):
        raise NotFound(f"there is no dead letter {text[:80]!r}", hint="GET /v1/dead-letters lists them")
    letter = _find(await _visible(exchange), int(text))
    return letter_body(await exchange.served.session.whole(letter))


async def redrive(exchange: Exchange) -> RedrivenAnswer:
    """Send dead letters back, or to another agent, unchanged or edited, at a given rate. Letters that were
    redriven before an error stay redriven, and the same request redrives the rest.
    """
    principal, served = exchange.principal, exchange.served
    principal.require("write")
    request = await exchange.decode(RedriveRequest)
    target = None if request.to is None else principal.address(request.to, "to")
    chosen = _chosen(await _visible(exchange), request.letters, request.filter)
    edited = [_edited(served, letter, choice, request.content) for letter, choice in chosen]
    letters = [letter for letter, _ in chosen]
    sequences: list[int | None] = [None] * len(letters)
    if not request.dry_run:
        await _redrive_paced(served, letters, edited, target, request.rate_per_s, sequences)
    return RedrivenAnswer(
        redriven=[
            RedrivenBody(
                dead_sequence=letter.dead_sequence,
                message_id=letter.envelope.id,
                receiver=letter.mailbox,
                to=target or letter.mailbox,
                sequence=sequence,
                redriven_as=_name(letter.redriven_as if sequence is None or new is None else new.id),
            )
            for letter, sequence, new in zip(letters, sequences, edited, strict=True)
        ],
        dry_run=request.dry_run,
    )


async def purge(exchange: Exchange) -> PurgedAnswer:
    """Remove dead letters for good."""
    exchange.principal.require("write")
    request = await exchange.decode(PurgeRequest)
    named = request.letters
    choices = None if named is None else [LetterChoice(dead_sequence=each) for each in dict.fromkeys(named)]
    chosen = _chosen(await _visible(exchange), choices, request.filter)
    keys = [(letter.mailbox, letter.dead_sequence) for letter, _ in chosen]
    return PurgedAnswer(purged=await exchange.served.session.execute(PurgeDeadLetters(keys)) if keys else 0)


# -- which ------------------------------------------------------------------------------------


async def _visible(exchange: Exchange) -> list[Letter]:
    async with exchange.account.long_work:
        letters = await exchange.served.session.look(DeadLetters())
        return await letters_after(letters, (0, ""), exchange.principal.sees)


def _fitting(letters: Sequence[Letter], wanted: LetterFilter) -> list[Letter]:
    if wanted.after is not None:
        letters = [letter for letter in letters if letter.dead_sequence > wanted.after]
    chosen: list[DeadLetter] = select(
        letters,
        receiver=wanted.receiver,
        sender=wanted.sender,
        reason=wanted.reason,
        code=wanted.code,
        ids=None if wanted.ids is None else frozenset(wanted.ids),
        since=_moment(wanted.since, "since"),
        until=_moment(wanted.until, "until"),
        status=None if wanted.status == "all" else wanted.status,
        limit=wanted.limit,
    )
    return [each.letter for each in chosen]


def _moment(text: str | None, field: str) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidEnvelope(f"{field} is not an ISO 8601 time: {text[:80]!r}") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _find(letters: Sequence[Letter], dead_sequence: int) -> Letter:
    for letter in letters:
        if letter.dead_sequence == dead_sequence:
            return letter
    raise NotFound(f"there is no dead letter {dead_sequence}", hint="GET /v1/dead-letters lists them")


def _chosen(
    letters: Sequence[Letter], choices: list[LetterChoice] | None, wanted: LetterFilter | None
) -> list[tuple[Letter, LetterChoice]]:
    """The selected letters. It is an error to select nothing: `all` must be given."""
    if (choices is None) == (wanted is None):
        raise InvalidSettings(
            "which dead letters? name `letters` or a `filter`, and not both",
            hint='{"filter": {"receiver": "coder"}}, or {"filter": {}} for all that wait',
        )
    if wanted is not None:
        fitting = _fitting(letters, wanted)
        return [(letter, LetterChoice(dead_sequence=letter.dead_sequence)) for letter in fitting]
    by_sequence = {letter.dead_sequence: letter for letter in letters}
    chosen = []
    for choice in choices or ():
        letter = by_sequence.get(choice.dead_sequence)
        chosen.append((letter or _find((), choice.dead_sequence), choice))
    return chosen


# -- sending back -----------------------------------------------------------------------------


def _edited(served: Served, letter: Letter, choice: LetterChoice, for_all: Any) -> Envelope | None:
    """The letter's message with its own new content, or the one for all; None leaves it as it was."""
    content = choice.content if choice.content is not UNSET else for_all
    if choice.content_base64 is not UNSET:
        if choice.content is not UNSET:
            raise InvalidEnvelope("content and contentBase64 exclude each other")
        data, encoding = _decoded(choice.content_base64), Encoding.BYTES
    elif content is UNSET:
        if choice.id is not UNSET:
            raise InvalidEnvelope("an id is only for edited content: unedited, a message keeps its id")
        return None
    else:
        data, encoding = bytes(content), Encoding.JSON
    limit = served.session.payload_bytes_max
    checked = check_json(data, limit) if encoding == Encoding.JSON else data
    given = None if choice.id is UNSET else check_id(choice.id)
    old = letter.envelope
    return msgspec.structs.replace(
        old,
        id=given or served.session.new_ids(1)[0],
        content=checked,
        encoding=encoding,
        origin=old.origin or old.id,
    )


def _name(id: str) -> str | UnsetType:
    return id or UNSET


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidEnvelope("contentBase64 is not base64") from None


async def _redrive_paced(
    served: Served,
    letters: Sequence[Letter],
    edited: Sequence[Envelope | None],
    target: str | None,
    rate_per_s: float,
    sequences: list[int | None],
) -> None:
    """Pieces of a tenth of a second's worth, not faster than the rate. Writes into `sequences`."""
    if rate_per_s and len(letters) / rate_per_s > REDRIVE_S_MAX:
        raise InvalidSettings(
            f"{len(letters)} letters at {rate_per_s:g} a second take longer than {REDRIVE_S_MAX} s",
            hint="redrive fewer in one request, or raise ratePerS",
        )
    loop = asyncio.get_running_loop()
    size = max(1, int(rate_per_s / 10)) if rate_per_s else max(1, len(letters))
    began = loop.time()
    for start in range(0, len(letters), size):
        if rate_per_s:
            await asyncio.sleep(max(0.0, began + start / rate_per_s - loop.time()))
        piece = slice(start, start + size)
        keys = [(letter.mailbox, letter.dead_sequence) for letter in letters[piece]]
        sequences[piece] = await served.session.execute(Redrive(keys, target, edited[piece]))
