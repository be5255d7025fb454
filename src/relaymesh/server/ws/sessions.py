"""Sessions: what a client has asked for and holds, beyond any one connection."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from relaymesh.kernel.kernel import Kernel
from relaymesh.server.security.principal import Principal
from relaymesh.server.served import Served

if TYPE_CHECKING:
    from relaymesh.server.ws.connection import Connection

ANSWERS_MAX = 256
"""Answers kept for a client that did not get them. More requests than this in flight are not all covered."""
DETACHED_MAX = 10_000
DETACHED_S = 600.0
"""How many sessions without a connection are remembered, and how long."""
PRUNE_AT = 1_000
Asked = tuple[Any, bytes | msgspec.Raw]
"""A frame, and the bytes it was read from."""
Question = tuple[int, int]
"""A ref, and a digest of the frame that asked: a client that counts its refs anew asks another question."""
_ID = re.compile(r"[0-9a-f]{32}\Z")


class Session:
    """One client. `granted`: the tokens it was given and has not settled, with their mailbox."""

    def __init__(self, id: str, principal: Principal, subprotocol: str) -> None:
        self.id = id
        self.subprotocol = subprotocol
        """The answers that are kept are written in it."""
        self.token_id = principal.token_id
        self.holder = holder_of(principal, id)
        self.granted: dict[int, str] = {}
        self.connection: Connection | None = None
        self.detached_at = 0.0
        self.running: set[Question] = set()
        """What is being worked on."""
        self._answers: dict[Question, bytes] = {}
        self._missed: dict[Question, bytes] = {}
        self._prune_at = PRUNE_AT

    def attach(self, connection: Connection) -> None:
        """A connection takes over. Answers of earlier ones are kept for what is asked again."""
        self.connection = connection
        self._missed, self._answers = {**self._missed, **self._answers}, {}
        _keep_newest(self._missed)

    def missed(self, question: Question) -> bytes | None:
        """The answer that was given on an earlier connection."""
        return self._missed.get(question)

    def answered(self, question: Question, data: bytes) -> None:
        """Keep the answer, and send it to wherever the client is now."""
        self._answers[question] = data
        _keep_newest(self._answers)
        if self.connection is not None:
            self.connection.put(data)

    def give(self, mailbox: str, tokens: Iterable[int]) -> None:
        self.granted.update(dict.fromkeys(tokens, mailbox))

    def take(self, tokens: Iterable[int]) -> None:
        """Settled, or lost."""
        granted = self.granted
        for token in tokens:
            granted.pop(token, None)

    async def prune(self, served: Served) -> None:
        """Forget tokens whose leases ran out, now and then."""
        if len(self.granted) >= self._prune_at:
            self.granted = await served.session.mailbox_of(list(self.granted))
            self._prune_at = max(PRUNE_AT, 2 * len(self.granted))


class Sessions:
    """Every session of this server."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._sessions: dict[str, Session] = {}
        self._orphans: dict[str, list[int]] | None = None
        self._stopping: asyncio.Task[None] | None = None

    def begin(self, principal: Principal, subprotocol: str) -> Session:
        """A new one."""
        return self._remember(Session(secrets.token_hex(16), principal, subprotocol))

    async def resume(
        self, id: str, principal: Principal, subprotocol: str, held: Sequence[int]
    ) -> Session | None:
        """The session of this id, if it is the credential's; None begins a new one.

        What it was granted and the client does not list never arrived: it goes back unburned. After a
        restart of the node the journal still says which leases the session has.
        """
        session = self._sessions.get(id)
        if session is None:
            session = self._orphaned(id, principal, subprotocol)
        if session is None or (session.token_id, session.subprotocol) != (principal.token_id, subprotocol):
            return None
        if session.connection is not None:
            await session.connection.supplant()
        listed = set(held)
        unseen = [token for token in session.granted if token not in listed]
        session.take(unseen)
        if unseen:
            await self._served.session.release(unseen)
        return session

    def _orphaned(self, id: str, principal: Principal, subprotocol: str) -> Session | None:
        """A session of the process before this one, as its leases tell."""
        if not _ID.match(id):
            return None
        if self._orphans is None:
            self._orphans = self._served.node.core.read(_remote_leases)
        session = Session(id, principal, subprotocol)
        tokens = self._orphans.pop(session.holder, [])
        mailboxes = self._served.node.core.read(lambda kernel: _mailboxes(kernel, tokens))
        session.granted.update(mailboxes)
        return self._remember(session)

    def _remember(self, session: Session) -> Session:
        self._forget_old()
        self._sessions[session.id] = session
        return session

    def _forget_old(self) -> None:
        """Those that lost their connection long ago, and the oldest when there are too many."""
        before = asyncio.get_running_loop().time() - DETACHED_S
        detached = [each for each in self._sessions.values() if each.connection is None]
        for session in detached:
            if session.detached_at < before or len(self._sessions) > DETACHED_MAX:
                del self._sessions[session.id]

    def detach(self, session: Session, connection: Connection) -> None:
        """The connection is gone; the session waits to be resumed."""
        if session.connection is connection:
            session.connection = None
            session.detached_at = asyncio.get_running_loop().time()
            self._sessions[session.id] = self._sessions.pop(session.id, session)

    async def end(self, session: Session) -> None:
        """The client will not come back: what it holds goes back unburned."""
        self._sessions.pop(session.id, None)
        tokens = list(session.granted)
        session.granted.clear()
        if tokens:
            await self._served.session.release(tokens)

    # -- the stop

    def watch_stop(self) -> None:
        """When the node stops, every connection is told."""
        if self._stopping is None or self._stopping.done():
            self._stopping = asyncio.create_task(self._go_away(), name="relaymesh-ws-stop")

    async def _go_away(self) -> None:
        await self._served.stopping.wait()
        for session in list(self._sessions.values()):
            if session.connection is not None:
                session.connection.go_away()


def holder_of(principal: Principal, id: str) -> str:
    return f"{principal.token_id}/{id}"


def _keep_newest(answers: dict[Question, bytes]) -> None:
    while len(answers) > ANSWERS_MAX:
        del answers[next(iter(answers))]


def _remote_leases(kernel: Kernel) -> dict[str, list[int]]:
    by_holder: dict[str, list[int]] = {}
    for token, lease in kernel.state.leases.items():
        if lease.grant.remote:
            by_holder.setdefault(lease.grant.holder, []).append(token)
    return by_holder


def _mailboxes(kernel: Kernel, tokens: Sequence[int]) -> dict[int, str]:
    leases = kernel.state.leases
    return {token: leases[token].grant.mailbox for token in tokens if token in leases}
