"""The sockets: limits that uvicorn's protocols do not have.

uvicorn (0.54, httptools) bounds neither the head of a request, in size or in time, nor how long a
reader may leave its answer lying. `Connections` counts what is open, and looks at each connection
once a second, which costs a request nothing. Its `http` and `websocket` go into `uvicorn.Config`.
When all are open, the oldest without a valid credential makes room for the next.
"""

from __future__ import annotations

import asyncio
import socket
from asyncio.transports import BaseTransport
from collections import deque
from collections.abc import MutableMapping
from typing import Any, cast

from uvicorn._types import ASGIReceiveEvent
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from relaymesh.server.security import refusals
from relaymesh.server.security.accounts import Account
from relaymesh.server.security.arrival import CONNECTION_KEY
from relaymesh.server.security.bulk import FEEL_S, Bulk, Window
from relaymesh.server.security.frame_scan import FrameScan
from relaymesh.server.security.limits import SecuritySettings
from relaymesh.server.security.refusals import Refusal
from relaymesh.server.security.writing import Outgoing, answer_now

LOOK_SECONDS = 1.0
SWITCHING_PROTOCOLS = 101
TURNED_AWAY_MAX = 16
"""How many connections beyond the limit get an answer; further ones are closed without one."""
PIPELINE_MAX = 32
"""Requests of one connection that wait for the answers before theirs. uvicorn reads on with every answer."""

CLOSE_WAIT = 8
"""The state of a TCP connection whose other end is closed, as Linux names it."""
UNKNOWN_BYTES_MAX = 65_536
"""What a WebSocket may send before it shows a valid credential: a `hello`."""
FRAMES_A_TURN = 128
"""WebSocket frames of one connection that are read without a pause: about a millisecond's worth."""


class Connections:
    """Every open connection of one server. For the event loop's thread alone."""

    def __init__(self, settings: SecuritySettings) -> None:
        self.settings = settings
        self.allowed = settings.connections_allowed()
        self.allowed_each = max(1, self.allowed // 2)
        """Of one credential."""
        self._open: set[GuardedHttp | GuardedWebSocket] = set()
        self._unknown: dict[GuardedHttp | GuardedWebSocket, None] = {}
        """Those that have shown no valid credential, the oldest first."""
        self._bulk = Bulk(settings.bulk_rate)
        self._feeling = False
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
        self._unknown[connection] = None
        if self._look is None:
            self._look = loop.call_later(LOOK_SECONDS, self._look_at_all, loop)

    def discard(self, connection: GuardedHttp | GuardedWebSocket) -> None:
        if connection not in self._open:
            return
        self._open.discard(connection)
        self._unknown.pop(connection, None)
        if connection.account is not None:
            connection.account.connections -= 1
            connection.account = None

    def make_room(self) -> bool:
        """Close the oldest connection without a credential if all are open. Returns whether one more may
        be opened."""
        if len(self._open) < self.allowed:
            return True
        oldest = next(iter(self._unknown), None)
        if oldest is None:
            return False
        self.discard(oldest)
        oldest.transport.abort()
        return True

    def belongs(self, connection: GuardedHttp | GuardedWebSocket, account: Account) -> bool:
        """Count the connection for this credential. Returns whether it may have one more."""
        if account.connections >= self.allowed_each:
            return False
        if connection in self._open:
            self._unknown.pop(connection, None)
            if connection.account is not None:
                connection.account.connections -= 1
            connection.account = account
            account.connections += 1
            self.came(connection, 0, connection.loop.time())
        return True

    def came(self, connection: GuardedHttp | GuardedWebSocket, bulk: int, now: float) -> float:
        """Data came, with this much bulk. Returns how long the connection must not be read."""
        if bulk:
            return self.bulk_s(connection, bulk, now)
        if self._feeling and connection.account is not None:
            self._bulk.modest(now, connection.account)
        return 0.0

    def bulk_s(self, connection: GuardedHttp | GuardedWebSocket, size: int, now: float) -> float:
        """Count so many bytes of bulk, either way. Returns how long the connection is to be left alone."""
        if not self._feeling:
            self._feeling = True
            connection.loop.call_later(FEEL_S, self._feel, connection.loop, now + FEEL_S)
        return self._bulk.pause_s(size, now, connection.account)

    def _feel(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        now = loop.time()
        self._feeling = self._bulk.felt(now - due, now)
        if self._feeling:
            loop.call_later(FEEL_S, self._feel, loop, now + FEEL_S)

    def _look_at_all(self, loop: asyncio.AbstractEventLoop) -> None:
        self._look = loop.call_later(LOOK_SECONDS, self._look_at_all, loop) if self._open else None
        now = loop.time()
        for connection in list(self._open):
            if connection.is_too_slow(now):
                connection.give_up()


class PacedFlow(FlowControl):
    """uvicorn's control of what is read, with a second reason not to read: a pace.

    The transport is paused as long as either holds.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._paced = False

    def pause_reading(self) -> None:
        self._set(True, self._paced)

    def resume_reading(self) -> None:
        self._set(False, self._paced)

    def pace(self) -> None:
        self._set(self.read_paused, True)

    def go_on(self) -> None:
        self._set(self.read_paused, False)

    def _set(self, read_paused: bool, paced: bool) -> None:
        before, after = self.read_paused or self._paced, read_paused or paced
        self.read_paused, self._paced = read_paused, paced
        if before == after or self._transport.is_closing():
            return
        if after:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()


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
        self._paced_flow: PacedFlow
        self._window = Window()
        self.account: Account | None = None
        """Of the credential that was shown here last."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = self._paced_flow = PacedFlow(transport)
        self._outgoing = Outgoing(transport, self._settings)
        self._head_since = self.loop.time()
        free = self._connections.make_room()
        self._connections.add(self, self.loop)
        if not free:
            if len(self._connections) > self._connections.allowed + TURNED_AWAY_MAX:
                transport.abort()
            else:
                self.app = _turned_away

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        super().connection_lost(exc)

    def belongs_to(self, account: Account) -> bool:
        """Whether the credential of this account may have this connection."""
        return self._connections.belongs(self, account)

    def data_received(self, data: bytes) -> None:
        now = self.loop.time()
        if self._in_head and self._head_since is None:
            self._head_since = now
        bulk = self._window.bulk_of(len(data), now)
        if pause_s := self._connections.came(self, bulk, now):
            self._paced_flow.pace()
            self.loop.call_later(pause_s, self._paced_flow.go_on)
        super().data_received(data)
        if self._in_head and self._head_since is not None:
            self._head_bytes += len(data)  # also of a header that has no end yet
            if self._head_bytes > self._settings.header_bytes_max:
                self._refuse(refusals.HEADERS_TOO_LARGE)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[CONNECTION_KEY] = self  # type: ignore[literal-required]
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

    def bulk_s(self, size: int) -> float:
        """How long an answer of this size is to wait, so that bulk keeps its rate."""
        return self._connections.bulk_s(self, size, self.loop.time())

    def is_too_slow(self, now: float) -> bool:
        """Whether the head or the body takes too long, or the reader does."""
        if self._head_since is not None and now - self._head_since > self._settings.header_seconds:
            return True
        if self._body_since is not None:
            counted = 0 if self.cycle.response_complete else self._body_bytes  # it was answered
            allowed = self._settings.body_seconds + counted / self._settings.body_rate_min
            if now - self._body_since > allowed:
                return True
        return self._outgoing.is_stuck(now)

    def give_up(self) -> None:
        """Answer if the client waits for an answer, then close the connection."""
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
        cycle.disconnected = True  # it is this request's own body: no other response may follow
        cycle.message_event.set()
        return True


class GuardedWebSocket(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol with bounded fragments, frames that are charged, readers that must read.

    Not read while: messages wait for the application; the credential is over its rate; it sends more than its
    share of what the server reads; or frames that came wait for their turn.
    """

    def __init__(self, connections: Connections, **given: Any) -> None:
        super().__init__(**given)
        self._connections = connections
        self._settings = connections.settings
        self._fragments_since: float | None = None
        self._outgoing: Outgoing
        self._scan = FrameScan()
        self._rest = b""
        """Frames that came and wait for their turn."""
        self._turn: asyncio.Handle | None = None
        self._sizes: deque[int] = deque()
        """Of the messages that wait for the application."""
        self._held = 0
        self._unknown_bytes = 0
        """Read before a valid credential came."""
        self._window = Window()
        self._pause_s = 0.0
        """How long what came lately is to be followed by nothing."""
        self.account: Account | None = None

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)
        self._outgoing = Outgoing(cast(asyncio.Transport, transport), self._settings)
        self._connections.add(self, self.loop)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._turn is not None:
            self._turn.cancel()
        self._rest = b""
        self._count(0)
        self._connections.discard(self)
        super().connection_lost(exc)

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.response.status_code == SWITCHING_PROTOCOLS:
            self.scope[CONNECTION_KEY] = self  # type: ignore[literal-required]

    def belongs_to(self, account: Account) -> bool:
        """Whether the credential of this account may have this connection."""
        return self._connections.belongs(self, account)

    # -- reading

    def data_received(self, data: bytes) -> None:
        if not self.handshake_initiated:
            super().data_received(data)
            return
        if self.account is None:
            self._unknown_bytes += len(data)
            if self._unknown_bytes > UNKNOWN_BYTES_MAX:
                self._fail(1009, "more than a hello came before the credential")
                return
        now = self.loop.time()
        bulk = self._window.bulk_of(len(data), now)
        if pause_s := self._connections.came(self, bulk, now):
            self._pause_s = max(self._pause_s, pause_s)
        if self._rest or self._turn is not None:
            self._rest += data
            self._pause()  # uvicorn reads on when it sends a close
        else:
            self._take(data)

    def _take(self, data: bytes) -> None:
        """Read frames, as many as may be read in one turn."""
        end = self._scan.cut(data, FRAMES_A_TURN)
        self._rest = data[end:]
        super().data_received(data if not self._rest else data[:end])
        if self.transport.is_closing():
            self._rest = b""
        else:
            self._check()
            self._wait_if_needed()

    def _check(self) -> None:
        self._count(sum(self._sizes) + len(self.conn.reader.buffer) + sum(map(len, self.frames)))
        if len(self.frames) > self._settings.fragments_max:
            self._fail(1008, "too many fragments")
        elif self.account is not None and self._held and self.account.is_over_incoming():
            self._fail(1013, "too much of this credential is under way")
        elif self._outgoing.is_too_much():  # pongs are written whether or not the client reads
            self.transport.abort()
        elif not self.frames:
            self._fragments_since = None
        elif self._fragments_since is None:
            self._fragments_since = self.loop.time()

    def _count(self, held: int) -> None:
        """Count what has come and was not taken, for the credential."""
        if self.account is not None:
            self.account.incoming += held - self._held
            self._held = held

    def _wait_if_needed(self) -> None:
        """Charge what was read. Go on in the next turn, or when the rate allows."""
        wait, self._pause_s = self._pause_s, 0.0
        control = self._scan.charged()
        if control and self.account is not None:
            self.account.owe(control)
            wait = max(wait, self.account.take(self.loop.time(), 0.0))
        if wait:
            self._pause()
            self._turn = self.loop.call_later(wait, self._go_on)
            return
        if self._rest:
            self._pause()
            if self._is_free():
                self._turn = self.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._turn = None
        if self.account is not None and (wait := self.account.take(self.loop.time(), 0.0)):
            self._turn = self.loop.call_later(wait, self._go_on)
            return
        if self._rest:
            self._take(self._rest)
        if self.read_paused and self._has_nothing_left():
            self.read_paused = False
            if not self.transport.is_closing():
                self.transport.resume_reading()

    def _has_nothing_left(self) -> bool:
        return not self._rest and self._turn is None and self._is_free()

    def _is_free(self) -> bool:
        """Whether nothing waits for the application. After a close it takes nothing more, and all is read."""
        return self.queue.empty() or self.close_sent

    def _pause(self) -> None:
        if not self.read_paused and not self.transport.is_closing():
            self.read_paused = True
            self.transport.pause_reading()

    def send_receive_event_to_app(self) -> None:
        if not self.close_sent:
            self._sizes.append(sum(map(len, self.frames)))
        super().send_receive_event_to_app()

    async def receive(self) -> ASGIReceiveEvent:
        message = await self.queue.get()
        if self.queue.empty() and self._turn is None:
            self._go_on()
        return message

    def taken(self) -> None:
        """The application works on the message that it took last."""
        if self._sizes:
            self._count(max(0, self._held - self._sizes.popleft()))

    def keepalive_timeout(self) -> None:
        """An unread pong does not show that the client is gone."""
        if self.read_paused:
            self.pong_timer = self.pending_ping_payload = None
            self.schedule_ping()
        else:
            super().keepalive_timeout()

    async def drained(self) -> None:
        """Return when the client has read enough of what was written."""
        await self.writable.wait()

    def bulk_s(self, size: int) -> float:
        """How long an answer of this size is to wait, or to be waited after, so that bulk keeps its rate."""
        return self._connections.bulk_s(self, size, self.loop.time())

    # -- watched

    def resume_writing(self) -> None:
        self._outgoing.moved()
        super().resume_writing()

    def is_too_slow(self, now: float) -> bool:
        """Whether a message in fragments takes too long, or the reader does, or the client is gone."""
        if self.read_paused and _has_hung_up(self.transport.get_extra_info("socket")):
            return True
        if self._fragments_since is not None:
            received = sum(map(len, self.frames))
            allowed = self._settings.body_seconds + received / self._settings.body_rate_min
            if now - self._fragments_since > allowed:
                return True
        return self._outgoing.is_stuck(now)

    def give_up(self) -> None:
        self.transport.abort()

    def _fail(self, code: int, reason: str) -> None:
        self.frames, self._rest = [], b""
        self.conn.fail(code, reason)
        self.handle_parser_exception()


def _has_hung_up(connection: Any) -> bool:
    """Whether the client closed a connection that is not being read now: reading would show it, but must
    wait."""
    if connection is None or not hasattr(socket, "TCP_INFO"):
        return False
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    except OSError:
        return True
    return bool(info[0] == CLOSE_WAIT)


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
