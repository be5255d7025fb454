"""The sockets: what uvicorn's protocols leave open, closed here.

uvicorn (0.54, httptools) bounds neither the head of a request, in size or in time, nor how long a
reader may leave its answer lying. `Connections` counts what is open, and looks at each connection
once a second, which costs a request nothing. Its `http` and `websocket` go into `uvicorn.Config`.
"""

from __future__ import annotations

import asyncio
from asyncio.transports import BaseTransport
from collections.abc import MutableMapping
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from relaymesh.server.security import refusals
from relaymesh.server.security.limits import SecuritySettings
from relaymesh.server.security.refusals import Refusal
from relaymesh.server.security.writing import Outgoing, answer_now

LOOK_SECONDS = 1.0
TURNED_AWAY_MAX = 16
"""Connections beyond the limit that are told so; those beyond these are closed without a word."""
PIPELINE_MAX = 32
"""Requests of one connection that wait for the answers before theirs. uvicorn reads on with every answer."""


class Connections:
    """Every open connection of one server. For the event loop's thread alone."""

    def __init__(self, settings: SecuritySettings) -> None:
        self.settings = settings
        self.allowed = settings.connections_allowed()
        self._open: set[GuardedHttp | GuardedWebSocket] = set()
        self._look: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    def http(self, **given: Any) -> GuardedHttp:
        """A protocol for one accepted connection; what `uvicorn.Config(http=…)` takes. `given`: uvicorn's."""
        return GuardedHttp(self, **given)

    def websocket(self, **given: Any) -> GuardedWebSocket:
        """The same for one that became a WebSocket; what `uvicorn.Config(ws=…)` takes."""
        return GuardedWebSocket(self, **given)

    def add(self, connection: GuardedHttp | GuardedWebSocket, loop: asyncio.AbstractEventLoop) -> None:
        self._open.add(connection)
        if self._look is None:
            self._look = loop.call_later(LOOK_SECONDS, self._look_at_all, loop)

    def discard(self, connection: GuardedHttp | GuardedWebSocket) -> None:
        self._open.discard(connection)

    def _look_at_all(self, loop: asyncio.AbstractEventLoop) -> None:
        self._look = loop.call_later(LOOK_SECONDS, self._look_at_all, loop) if self._open else None
        now = loop.time()
        for connection in list(self._open):
            if connection.is_too_slow(now):
                connection.give_up()


class GuardedHttp(HttpToolsProtocol):
    """uvicorn's HTTP protocol with a bounded head, no trailers, and readers that must read."""

    def __init__(self, connections: Connections, **given: Any) -> None:
        super().__init__(**given)
        self._connections = connections
        self._settings = connections.settings
        self._in_head = True
        self._head_since: float | None = None
        self._body_since: float | None = None
        self._body_bytes = 0
        self._head_bytes = 0
        self._headers_seen = 0
        self._refusal: Refusal = refusals.MALFORMED
        self._outgoing: Outgoing

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._outgoing = Outgoing(transport, self._settings)
        self._head_since = self.loop.time()
        beyond = len(self._connections) - self._connections.allowed
        self._connections.add(self, self.loop)
        if beyond >= 0:
            if beyond >= TURNED_AWAY_MAX:
                transport.abort()
            else:
                self.app = _turned_away

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_head and self._head_since is None:
            self._head_since = self.loop.time()
        super().data_received(data)
        if self._in_head and self._head_since is not None:
            self._head_bytes += len(data)  # also of a header that has no end yet
            if self._head_bytes > self._settings.header_bytes_max:
                self._refuse(refusals.HEADERS_TOO_LARGE)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = self._headers_seen = 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers_seen += 1
        self._count_head(len(name) + len(value) + 4)
        if self._in_head:  # trailers could say what a proxy in front took out of the head
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if not self.url.startswith(b"/"):
            raise ValueError("this is no proxy")  # `GET http://elsewhere/`, `CONNECT elsewhere:443`
        if len(self.pipeline) >= PIPELINE_MAX:
            raise ValueError("too many requests before their answers")
        self._in_head = False
        self._head_since = None
        self._body_since = self.loop.time()
        self._body_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head = True
        self._body_since = None
        self._head_bytes = self._headers_seen = 0

    def handle_websocket_upgrade(self) -> None:
        if self.app is _turned_away:
            self._refuse(refusals.TOO_MANY_CONNECTIONS)
            return
        self._connections.discard(self)
        super().handle_websocket_upgrade()

    def resume_writing(self) -> None:
        self._outgoing.moved()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  uvicorn's words; ours are a problem
        self._refuse(self._refusal)

    def is_too_slow(self, now: float) -> bool:
        """Whether the head or the body takes too long, or the reader does."""
        if self._head_since is not None and now - self._head_since > self._settings.header_seconds:
            return True
        if self._body_since is not None:
            counted = 0 if self.cycle.response_complete else self._body_bytes  # nobody waits for it any more
            allowed = self._settings.body_seconds + counted / self._settings.body_rate_min
            if now - self._body_since > allowed:
                return True
        return self._outgoing.is_stuck(now)

    def give_up(self) -> None:
        """Say so where somebody waits for an answer, and hang up."""
        waiting = self._body_since is not None and not self.cycle.response_complete
        if waiting and not self.transport.is_closing():
            self._refuse(refusals.BODY_TOO_SLOW)
        else:
            self.transport.abort()

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if (
            self._head_bytes > self._settings.header_bytes_max
            or self._headers_seen > self._settings.headers_max
        ):
            self._refusal = refusals.HEADERS_TOO_LARGE
            raise ValueError("the head of the request is too large")  # ends the parser; becomes a refusal

    def _refuse(self, refusal: Refusal) -> None:
        if self.transport.is_closing():
            return
        if self._may_answer():
            self.transport.write(answer_now(refusal, STATUS_LINE[refusal.status]))
        self.transport.close()

    def _may_answer(self) -> bool:
        """Whether an answer would be taken for that of the request it is for, and of no earlier one."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            return True
        if self._in_head or self.pipeline or cycle.response_started:
            return False
        cycle.disconnected = True  # it is this one's own body: nobody else may answer it any more
        cycle.message_event.set()
        return True


class GuardedWebSocket(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol with bounded fragments and readers that must read."""

    def __init__(self, connections: Connections, **given: Any) -> None:
        super().__init__(**given)
        self._connections = connections
        self._settings = connections.settings
        self._fragments_since: float | None = None
        self._outgoing: Outgoing

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)
        self._outgoing = Outgoing(cast(asyncio.Transport, transport), self._settings)
        self._connections.add(self, self.loop)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if len(self.frames) > self._settings.fragments_max:
            self._fail(1008, "too many fragments")
        elif self._outgoing.is_too_much():  # pongs are written whether or not anybody reads
            self.transport.abort()
        elif not self.frames:
            self._fragments_since = None
        elif self._fragments_since is None:
            self._fragments_since = self.loop.time()

    def resume_writing(self) -> None:
        self._outgoing.moved()
        super().resume_writing()

    def is_too_slow(self, now: float) -> bool:
        """Whether a message in fragments takes too long, or the reader does."""
        if self._fragments_since is not None:
            received = sum(map(len, self.frames))
            allowed = self._settings.body_seconds + received / self._settings.body_rate_min
            if now - self._fragments_since > allowed:
                return True
        return self._outgoing.is_stuck(now)

    def give_up(self) -> None:
        self.transport.abort()

    def _fail(self, code: int, reason: str) -> None:
        self.frames = []
        self.conn.fail(code, reason)
        self.handle_parser_exception()


async def _turned_away(
    scope: MutableMapping[str, Any],  # noqa: ARG001
    receive: Any,  # noqa: ARG001
    send: Any,
) -> None:
    body = refusals.problem_body(refusals.TOO_MANY_CONNECTIONS)
    headers = [
        (b"content-type", refusals.PROBLEM_JSON),
        (b"content-length", str(len(body)).encode()),
        (b"retry-after", b"1"),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})
