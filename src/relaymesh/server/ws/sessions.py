"""Sessions: the requests and deliveries of a client, independent of a connection."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from relaymesh.errors import MeshError
from relaymesh.kernel.commands import Release, Unexpect
from relaymesh.kernel.looks import mailboxes_of, remote_leases
from relaymesh.kernel.query import MailboxesOf
from relaymesh.server.security.accounts import Account
from relaymesh.server.security.principal import Principal
from relaymesh.server.served import Served

if TYPE_CHECKING:
    from relaymesh.server.ws.connection import Connection

log = logging.getLogger("relaymesh.server")

ANSWERS_MAX = 256
ANSWERS_BYTES_MAX = 1_048_576
"""Answers to writes that are kept for a client that did not get them. Those beyond are not covered."""
KEPT_BYTES_MAX = 16_777_216
"""The same for all sessions of one credential; the oldest sessions forget theirs first."""
DETACHED_MAX = 10_000
DETACHED_EACH_MAX = 1_000
DETACHED_S = 600.0
"""How many sessions without a connection are remembered, of all credentials and of each; and how long."""
PRUNE_AT = 1_000
Asked = tuple[Any, bytes | msgspec.Raw]
"""A frame, and the bytes it was read from."""
Question = tuple[int, int]
"""A ref, and a digest of the frame: a client that counts its refs from 1 again sends other frames."""
_ID = re.compile(r"[0-9a-f]{32}\Z")


class Session:
    """One client. `granted`: the tokens that it got and has not settled, with their mailbox."""

    def __init__(self, id: str, principal: Principal, account: Account, subprotocol: str) -> None:
        self.id = id
        self.account = account
        self.subprotocol = subprotocol
        """The answers that are kept are written in it."""
        self.token_id = principal.token_id
        self.holder = holder_of(principal, id)
        self.granted: dict[int, str] = {}
        self.connection: Connection | None = None
        self.detached_at = 0.0
        self.running: set[Question] = set()
        """What is being worked on."""
        self.expected: set[tuple[str, str]] = set()
        """Answers that are expected: mailbox and correlation id."""
        self.agents: set[str] = set()
        """Agents that speak or receive here."""
        self._answers: dict[Question, bytes] = {}
        self._missed: dict[Question, bytes] = {}
        self.kept = 0
        """Bytes of both."""
        self._prune_at = PRUNE_AT

    def attach(self, connection: Connection) -> None:
        """A connection takes over. Answers of earlier ones are kept for what is asked again."""
        self.connection = connection
        self._missed, self._answers = {**self._missed, **self._answers}, {}
        self._keep_newest(self._missed)

    def missed(self, question: Question) -> bytes | None:
        """The answer that was given on an earlier connection."""
        return self._missed.get(question)

    def answered(self, question: Question, data: bytes) -> None:
        """Keep the answer, and send it to wherever the client is now."""
        answers, size = self._answers, len(data)
        answers[question] = data
        if len(answers) > ANSWERS_MAX:
            size -= len(answers.pop(next(iter(answers))))
        self.kept += size
        self.account.kept += size
        if self.kept > ANSWERS_BYTES_MAX:
            self._keep_newest(self._missed)
            self._keep_newest(answers)
        if self.connection is not None:
            self.connection.put(data)

    def tell(self, data: bytes) -> None:
        """Send it to wherever the client is now, if it is anywhere."""
        if self.connection is not None:
            self.connection.put(data)

    def forget_answers(self) -> None:
        self._answers.clear()
        self._missed.clear()
        self._count(-self.kept)

    def _count(self, size: int) -> None:
        self.kept += size
        self.account.kept += size

    def _keep_newest(self, answers: dict[Question, bytes]) -> None:
        while answers and (len(answers) > ANSWERS_MAX or self.kept > ANSWERS_BYTES_MAX):
            self._count(-len(answers.pop(next(iter(answers)))))

    def give(self, mailbox: str, tokens: Iterable[int]) -> None:
        self.granted.update(dict.fromkeys(tokens, mailbox))

    def take(self, tokens: Iterable[int]) -> None:
        """Settled, or lost."""
        granted = self.granted
        for token in tokens:
            granted.pop(token, None)

    @property
    def is_crowded(self) -> bool:
        """Whether it is time to forget tokens whose leases ran out."""
        return len(self.granted) >= self._prune_at

    async def prune(self, served: Served) -> None:
        """Forget tokens whose leases ran out."""
        self.granted = await served.session.execute(MailboxesOf(list(self.granted)))
        self._prune_at = max(PRUNE_AT, 2 * len(self.granted))


class Sessions:
    """Every session of this server."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._sessions: dict[str, Session] = {}
        self._detached: dict[str, dict[str, Session]] = {}
        """Those without a connection, by credential, the longest detached first."""
        self._orphans: dict[str, list[int]] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._forgetting: asyncio.TimerHandle | None = None
        self._endings: set[asyncio.Task[None]] = set()

    def begin(self, principal: Principal, account: Account, subprotocol: str) -> Session:
        """A new one."""
        return self._remember(Session(secrets.token_hex(16), principal, account, subprotocol))

    async def resume(
        self, id: str, principal: Principal, account: Account, subprotocol: str, held: Sequence[int]
    ) -> Session | None:
        """The session of this id, if it is the credential's; None begins a new one.

        Deliveries that it was granted and that the client does not list never arrived: they go back, and no
        attempt is counted. After a restart of the node the journal still says which leases the session has.
        """
        session = self._sessions.get(id)
        if session is None:
            session = self._orphaned(id, principal, account, subprotocol)
        if session is None or (session.token_id, session.subprotocol) != (principal.token_id, subprotocol):
            return None
        self._attached(session)
        if session.connection is not None:
            await session.connection.supplant()
        listed = set(held)
        unseen = [token for token in session.granted if token not in listed]
        session.take(unseen)
        if unseen:
            await self._served.session.execute(Release(unseen))
        return session

    def _orphaned(self, id: str, principal: Principal, account: Account, subprotocol: str) -> Session | None:
        """A session of the process before this one, as its leases tell."""
        if not _ID.match(id):
            return None
        if self._orphans is None:
            self._orphans = self._served.node.core.read(remote_leases)
        session = Session(id, principal, account, subprotocol)
        tokens = self._orphans.pop(session.holder, [])
        mailboxes = self._served.node.core.read(partial(mailboxes_of, tokens))
        session.granted.update(mailboxes)
        return self._remember(session)

    def _remember(self, session: Session) -> Session:
        self._sessions[session.id] = session
        return session

    def detach(self, session: Session, connection: Connection) -> None:
        """The connection is gone; the session waits to be resumed."""
        if session.connection is not connection:
            return
        session.connection = None
        if session.id not in self._sessions:
            return  # it said goodbye
        session.detached_at = asyncio.get_running_loop().time()
        detached = self._detached.setdefault(session.token_id, {})
        detached[session.id] = session
        if len(detached) > DETACHED_EACH_MAX:
            self._forget(next(iter(detached.values())))
        if len(self._sessions) > DETACHED_MAX:
            most = max(self._detached.values(), key=len)
            self._forget(next(iter(most.values())))
        self._keep_within(session.account)
        self._forget_old()

    def _attached(self, session: Session) -> None:
        detached = self._detached.get(session.token_id)
        if detached is not None and detached.pop(session.id, None) is not None and not detached:
            del self._detached[session.token_id]

    def _keep_within(self, account: Account) -> None:
        """The oldest sessions of a credential that keeps too many answers forget theirs."""
        for session in self._detached.get(account.token_id, {}).values():
            if account.kept <= KEPT_BYTES_MAX:
                return
            session.forget_answers()

    def _forget_old(self) -> None:
        """Those that lost their connection long ago. Looks again when the next is due."""
        loop = asyncio.get_running_loop()
        before = loop.time() - DETACHED_S
        for detached in list(self._detached.values()):
            for session in list(detached.values()):
                if session.detached_at > before:
                    break
                self._forget(session)
        if self._detached and self._forgetting is None:
            self._forgetting = loop.call_later(DETACHED_S / 10, self._look_again)

    def _look_again(self) -> None:
        self._forgetting = None
        self._forget_old()

    def _forget(self, session: Session) -> None:
        """It will not be resumed. Leases that it has run out by themselves."""
        self._sessions.pop(session.id, None)
        self._attached(session)
        session.forget_answers()
        if session.expected:
            ending = asyncio.create_task(self._unexpect(session))
            self._endings.add(ending)
            ending.add_done_callback(self._endings.discard)

    async def end(self, session: Session) -> None:
        """The client will not come back: its deliveries go back, and no attempt is counted."""
        self._sessions.pop(session.id, None)
        self._attached(session)
        session.forget_answers()
        self._leave(session)
        tokens = list(session.granted)
        session.granted.clear()
        if tokens:
            await self._served.session.execute(Release(tokens))
        await self._unexpect(session)

    def _leave(self, session: Session) -> None:
        """Its agents are offline, unless they are on another connection too."""
        agents, session.agents = session.agents, set()
        if agents:
            agents = agents.difference(*[each.agents for each in self._sessions.values() if each.connection])
        for agent in agents:
            self._served.roster.presence.gone(agent, self._served.now)

    async def _unexpect(self, session: Session) -> None:
        """No receive waits for these answers any more: they become ordinary messages."""
        expected, session.expected = session.expected, set()
        try:
            for mailbox, correlation_id in expected:
                await self._served.session.execute(Unexpect(mailbox, correlation_id))
        except MeshError as error:
            log.debug("what a session expected could not be given up: %s", error)

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
