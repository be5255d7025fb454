"""Queries: what the shell may read. Each is answered from the state, as values, and changes nothing.

A `durable` query shows what a power loss must not revert: its answer leaves once everything that it saw is
durable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from relaymesh.kernel.bounds import COUNT_MAX, whole
from relaymesh.kernel.commands import Request, Result_co
from relaymesh.kernel.dead_letters import DeadLetter
from relaymesh.kernel.looks import Looked, first_pending, mailboxes_of
from relaymesh.kernel.pending import Pending

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
    """The mailbox of each of these lease tokens that is still held."""

    tokens: Sequence[int]


class Peek(Query[list[Pending]]):
    """Pending messages of a mailbox, in the order of acceptance, without taking them."""

    mailbox: str
    limit: int

    def __post_init__(self) -> None:
        self.limit = whole(self.limit, "limit", 0, COUNT_MAX)


def _dead_letters(of: Looked, query: DeadLetters) -> list[DeadLetter]:  # noqa: ARG001 - takes nothing
    return list(of.state.letters)


def _find_letters(of: Looked, query: FindLetters) -> list[DeadLetter | None]:
    return [of.state.letters.find(*name) for name in query.names]


def _mailboxes_of(of: Looked, query: MailboxesOf) -> dict[int, str]:
    return mailboxes_of(query.tokens, of)


def _peek(of: Looked, query: Peek) -> list[Pending]:
    return first_pending(query.mailbox, query.limit, of)


ANSWERS: dict[type[Query[Any]], Callable[[Looked, Any], Any]] = {
    DeadLetters: _dead_letters,
    FindLetters: _find_letters,
    MailboxesOf: _mailboxes_of,
    Peek: _peek,
}
