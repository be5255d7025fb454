"""The guard: every request and every WebSocket passes here first.

The order is: Host, Origin, URL, credential, its connections, scope, write rate, body; the connection limit
and the limits of the head lie before it, in `connections`. Refused requests are answered here and never reach
the application. What passes carries its `Principal` (`principal_of`), `Account` (`account_of`) and `Trail`
(`trail_of`) in the scope, its body is whole and within bounds, and if it writes, it is audited with the
status it got.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from functools import partial
from typing import Any

from relaymesh.errors import Unauthorized
from relaymesh.server.security import compat, refusals
from relaymesh.server.security.accounts import ACCOUNT_KEY, Account, Accounts
from relaymesh.server.security.arrival import CONNECTION_KEY, Arrival, Scope, arrival_of, check_url
from relaymesh.server.security.audit import AuditEvent, AuditLog
from relaymesh.server.security.bodies import Bodies, Gone, drain, replayed
from relaymesh.server.security.hosts import Hosts, own_names
from relaymesh.server.security.principal import LOGIN_KEY, STATE_KEY, Principal
from relaymesh.server.security.proxies import Proxies
from relaymesh.server.security.rates import BYTES_A_WRITE
from relaymesh.server.security.refusals import Refused, problem_body
from relaymesh.server.security.response import Answered, secured
from relaymesh.server.security.sockets import Socket, Sockets
from relaymesh.server.security.trail import AGENT_KEY, TRAIL_KEY, RefusalLog, Trail
from relaymesh.server.served import Served

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

HEALTH_PATHS = frozenset({"/healthz", "/readyz"})
"""Answered without a credential: they hold no data."""
READS = frozenset({"GET", "HEAD", "OPTIONS"})
METHODS = READS | {"POST", "PUT", "DELETE", "PATCH"}

_AUDITED = {
    refusals.UNAUTHORIZED.code: "auth.refused",
    refusals.HOST_REFUSED.code: "host.refused",
    refusals.ORIGIN_REFUSED.code: "origin.refused",
    refusals.TOKEN_IN_URL.code: "auth.refused",
    refusals.COOKIE_REFUSED.code: "auth.refused",
}

log = logging.getLogger("relaymesh.server")


class Guard:
    """The ASGI application around the application."""

    def __init__(
        self, app: App, served: Served, *, open_paths: Iterable[str] = (), login_paths: Iterable[str] = ()
    ) -> None:
        """`open_paths`: what may be read without a credential, beside whether the node lives.

        `login_paths`: WebSockets that may bring their credential in their first frame (`login_of`).
        """
        settings = served.settings.security
        self._app = app
        self._open_paths = HEALTH_PATHS | frozenset(open_paths)
        self._login_paths = frozenset(login_paths)
        self._served = served
        self._settings = settings
        self._hosts = Hosts((*settings.allow_hosts, *own_names(served.settings.host)))
        self._proxies = Proxies(settings.proxies)
        self._accounts = Accounts(settings)
        self._bodies = Bodies(settings, served.settings.body_bytes_max)
        self._refusals = RefusalLog()
        self._sockets = Sockets(served.tokens)
        served.tokens.on_change = self._audit_token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    # -- HTTP

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        answered = Answered(send)
        try:
            arrival = self._admitted(scope)
            if arrival.method not in METHODS:
                raise Refused(refusals.METHOD_REFUSED, headers={"allow": ", ".join(sorted(METHODS))})
            if arrival.path.startswith(compat.PREFIX):
                await self._compat(scope, arrival, receive, answered)
            elif arrival.method in READS:
                await self._app(scope, receive, answered)
            else:
                self._check_scope(scope)
                cost = self._take_write(scope, self._bodies.length(arrival.content_length))
                await self._write(scope, receive, answered, cost)
        except Refused as refused:
            await self._refuse(scope, refused, receive, answered)
        except Gone:
            pass
        except Exception:
            log.exception("%s %s failed", scope["method"], scope.get("relaymesh.route", "before its route"))
            if not answered.status:
                await self._refuse(scope, Refused(refusals.INTERNAL), receive, answered)
            else:
                raise

    async def _write(self, scope: Scope, receive: Receive, answered: Answered, cost: float) -> None:
        account: Account = scope[ACCOUNT_KEY]
        body = await self._bodies.read(receive, account)
        if len(body) > cost * BYTES_A_WRITE:
            account.owe(len(body) / BYTES_A_WRITE - cost)  # it came without a length
        await self._audited(scope, replayed(body, receive), answered, "web.write", len(body))

    async def _audited(
        self, scope: Scope, receive: Receive, answered: Answered, event: str, size: int
    ) -> None:
        trail: Trail = scope[TRAIL_KEY]
        try:
            await self._app(scope, receive, answered)
        finally:
            self._bodies.release(size, scope[ACCOUNT_KEY])
            trail.write(
                event,
                answered.status,
                route=scope.get("relaymesh.route", ""),
                acted=scope.get(AGENT_KEY, ()),
            )

    async def _compat(self, scope: Scope, arrival: Arrival, receive: Receive, answered: Answered) -> None:
        post, body = compat.translated(scope, arrival, enabled=self._settings.get_compat)
        self._check_scope(scope)
        self._take_write(scope, len(body))
        self._served.counts.write_get_compat += 1
        answered.extra.append(compat.DEPRECATION)
        answered.extra.append((b"link", f'<{post["path"]}>; rel="successor-version"'.encode()))
        self._bodies.take(len(body), scope[ACCOUNT_KEY])
        await self._audited(post, replayed(body, receive), answered, compat.EVENT, len(body))

    async def _refuse(self, scope: Scope, refused: Refused, receive: Receive, answered: Answered) -> None:
        """Answer after the client has finished its request, and close the connection unless the request
        was complete."""
        headers, body = self._problem(scope, refused)
        waits = any(name == b"expect" for name, _ in scope["headers"])  # for our word, before it sends
        whole = False if waits or refused.refusal is refusals.INTERNAL else await drain(receive)
        if not whole:
            headers.append((b"connection", b"close"))
        await answered({"type": "http.response.start", "status": refused.refusal.status, "headers": headers})
        await answered({"type": "http.response.body", "body": body})

    # -- WebSocket

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # websocket.connect
        try:
            arrival = self._checked(scope)
            comes_later = arrival.authorization is None and arrival.path in self._login_paths
            if not comes_later:
                self._known(scope, arrival, self._authenticated(arrival))
        except Refused as refused:
            await self._refuse_handshake(scope, refused, send)
            return
        connection = scope.get(CONNECTION_KEY)
        taken = _nothing if connection is None else connection.taken
        with self._sockets.opened(send) as socket:
            if comes_later:
                scope[LOGIN_KEY] = partial(self._log_in, scope, arrival, socket)
            else:
                self._opened(scope, socket)
            try:
                await self._app(scope, self._paced(receive, scope, taken), socket.send)
            finally:
                if socket.token_id is not None:
                    scope[TRAIL_KEY].write("ws.closed", 0, route=arrival.path)

    def _opened(self, scope: Scope, socket: Socket) -> None:
        """The socket has a credential: it ends when that does."""
        socket.token_id = scope[STATE_KEY].token_id
        scope[TRAIL_KEY].write("ws.opened", 101, route=scope["path"])

    def _log_in(self, scope: Scope, arrival: Arrival, socket: Socket, token: str) -> None:
        """The credential of an open WebSocket, checked as one in Authorization. Raises `Refused`."""
        try:
            self._known(scope, arrival, self._principal_of(token))
        except Refused as refused:
            self._audit_refusal(scope, refused)
            self._served.counts.problems += 1
            raise
        self._opened(scope, socket)

    def _paced(self, receive: Receive, scope: Scope, taken: Callable[[], None]) -> Receive:
        """Messages of one credential, no faster than its rate: the socket is not read while it waits.

        `taken` is called for each message that leaves the queue of the socket.
        """
        loop = asyncio.get_running_loop()
        connect: list[Message] = [{"type": "websocket.connect"}]

        async def receive_paced() -> Message:
            if connect:
                return connect.pop()
            message = await receive()
            if message["type"] == "websocket.receive":
                account: Account | None = scope.get(ACCOUNT_KEY)
                size = len(message.get("bytes") or message.get("text") or b"")
                cost = max(1.0, size / BYTES_A_WRITE)
                while account is not None and (wait := account.take(loop.time(), cost)):
                    self._served.counts.write_rate_limited += 1
                    await asyncio.sleep(wait)
                taken()
            return message

        return receive_paced

    async def _refuse_handshake(self, scope: Scope, refused: Refused, send: Send) -> None:
        headers, body = self._problem(scope, refused)
        status = refused.refusal.status
        await send({"type": "websocket.http.response.start", "status": status, "headers": secured(headers)})
        await send({"type": "websocket.http.response.body", "body": body})

    def _problem(self, scope: Scope, refused: Refused) -> tuple[list[tuple[bytes, bytes]], bytes]:
        """The headers and the body of a refusal, which is counted, and audited where it is of that kind."""
        self._audit_refusal(scope, refused)
        self._served.counts.problems += 1
        body = problem_body(refused.refusal, refused.detail, scope["path"][:200], refused.retry_after_ms)
        headers = [
            (b"content-type", refusals.PROBLEM_JSON),
            (b"content-length", str(len(body)).encode()),
            *((name.encode(), value.encode()) for name, value in refused.headers.items()),
        ]
        return headers, body

    # -- the checks

    def _admitted(self, scope: Scope) -> Arrival:
        """Host, Origin, URL and credential; puts principal and trail into the scope."""
        arrival = self._checked(scope)
        is_open = arrival.path in self._open_paths and arrival.method in READS
        if not is_open:
            self._known(scope, arrival, self._authenticated(arrival))
        return arrival

    def _checked(self, scope: Scope) -> Arrival:
        """Host, Origin and URL."""
        scope.pop(STATE_KEY, None)
        arrival = arrival_of(scope, self._proxies)
        scope[TRAIL_KEY] = Trail(self._served.audit, arrival, None)
        scheme, port = arrival.scheme, self._port(arrival)
        if arrival.host is None or not self._hosts.knows_host(arrival.host, scheme, port):
            raise Refused(refusals.HOST_REFUSED)
        if arrival.origin is not None and not self._hosts.knows_origin(arrival.origin, scheme, port):
            raise Refused(refusals.ORIGIN_REFUSED)
        check_url(scope)
        return arrival

    def _known(self, scope: Scope, arrival: Arrival, principal: Principal) -> None:
        """Put principal, trail and account into the scope, unless the credential has too many connections."""
        account = self._accounts.of(principal.token_id, asyncio.get_running_loop().time())
        connection = scope.get(CONNECTION_KEY)
        if (
            connection is not None
            and connection.account is not account
            and not connection.belongs_to(account)
        ):
            raise Refused(refusals.TOO_MANY_CONNECTIONS, "this credential has too many", retry_after=1.0)
        scope[STATE_KEY] = principal
        scope[TRAIL_KEY] = Trail(self._served.audit, arrival, principal)
        scope[ACCOUNT_KEY] = account

    def _port(self, arrival: Arrival) -> int | None:
        """The port that Host must name; a proxy in front may listen on any."""
        return None if self._proxies.trusts(arrival.peer) else arrival.server_port

    def _authenticated(self, arrival: Arrival) -> Principal:
        if arrival.authorization is None:
            raise _unauthorized("no credential was given")
        kind, _, text = arrival.authorization.partition(" ")
        if kind.lower() != "bearer":
            raise _unauthorized("the credential is no bearer token")
        return self._principal_of(text.strip())

    def _principal_of(self, token: str) -> Principal:
        try:
            principal: Principal = self._served.tokens.authenticate(token)
        except Unauthorized as error:
            raise _unauthorized(error.message) from None
        return principal

    def _check_scope(self, scope: Scope) -> None:
        """Refuse writes of a credential that may only read, before the body is read."""
        principal: Principal = scope[STATE_KEY]
        if not principal.allows("agent"):
            raise Refused(refusals.FORBIDDEN, f"token {principal.token_id} has no scope that may write")

    def _take_write(self, scope: Scope, size: int) -> float:
        """Charge a request with a body of this size; what it cost."""
        account: Account = scope[ACCOUNT_KEY]
        cost = max(1.0, size / BYTES_A_WRITE)
        wait = account.take(asyncio.get_running_loop().time(), cost)
        if wait > 0:
            self._served.counts.write_rate_limited += 1
            raise Refused(refusals.RATE_LIMITED, retry_after=wait)
        return cost

    def _audit_token(self, event: str, id: str) -> None:
        """Tokens are made and revoked on the command line; the log says when the server heard of it."""
        audit: AuditLog = self._served.audit
        audit.append(AuditEvent(event=event, at=audit.now_ms(), token=id))

    def _audit_refusal(self, scope: Scope, refused: Refused) -> None:
        event = _AUDITED.get(refused.refusal.code)
        trail = scope.get(TRAIL_KEY)
        if event is not None and isinstance(trail, Trail):
            now = asyncio.get_running_loop().time()
            self._refusals.write(trail, event, refused.refusal.status, refused.detail, now)


def _unauthorized(detail: str) -> Refused:
    return Refused(refusals.UNAUTHORIZED, detail, {"www-authenticate": 'Bearer realm="relaymesh"'})


def _nothing() -> None:
    """What is queued is not counted."""
