"""Queries: what the shell may look at. Each is answered from the state, as values, and changes nothing.

A `durable` query shows what must not be taken back by a power loss: its answer leaves once everything that
it saw is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, ClassVar

import msgspec

from relaymesh.errors import UnknownRecipient
from relaymesh.kernel.bounds import COUNT_MAX, whole
from relaymesh.kernel.commands import Request, Result_co
from relaymesh.kernel.dead_letters import DeadLetter
from relaymesh.kernel.entry import Entry
from relaymesh.kernel.state import State

__all__ = ["ANSWERS", "DeadLetters", "FindLetters", "MailboxesOf", "Peek", "Query"]


class Query(Request[Result_co]):
    """A request that changes nothing."""

    durable: ClassVar[bool] = False


class DeadLetters(Query[list[DeadLetter]]):
    """All of them."""

    durable: ClassVar[bool] = True


class FindLetters(Query[list[DeadLetter | None]]):
    """The dead letters of these names, (mailbox, dead sequence); None where there is none."""

    durable: ClassVar[bool] = True
    names: Sequence[tuple[str, int]]


class MailboxesOf(Query[dict[int, str]]):
    """The mailbox of each of these lease tokens that is still good."""

    tokens: Sequence[int]


class Peek(Query[list[Entry]]):
    """Pending messages of a mailbox, in the order of acceptance, without taking them."""

    mailbox: str
    limit: int

    def __post_init__(self) -> None:
        self.limit = whole(self.limit, "limit", 0, COUNT_MAX)


def _dead_letters(state: State, query: DeadLetters) -> list[DeadLetter]:  # noqa: ARG001 - takes nothing
    return list(state.letters)


def _find_letters(state: State, query: FindLetters) -> list[DeadLetter | None]:
    return [state.letters.find(*name) for name in query.names]


def _mailboxes_of(state: State, query: MailboxesOf) -> dict[int, str]:
    leases = state.leases
    return {token: leases[token].grant.mailbox for token in query.tokens if token in leases}


def _peek(state: State, query: Peek) -> list[Entry]:
    box = state.mailboxes.get(query.mailbox)
    if box is None:
        raise UnknownRecipient(f"there is no mailbox {query.mailbox} in this mesh")
    return [seen_from_outside(entry) for entry in islice(box.entries.values(), query.limit)]


def seen_from_outside(entry: Entry) -> Entry:
    """A copy: what a caller does to it changes nothing here."""
    failures = None if entry.failures is None else list(entry.failures)
    return msgspec.structs.replace(entry, failures=failures, lane=None, lease=None)


ANSWERS: dict[type[Query[Any]], Callable[[State, Any], Any]] = {
    DeadLetters: _dead_letters,
    FindLetters: _find_letters,
    MailboxesOf: _mailboxes_of,
    Peek: _peek,
}
