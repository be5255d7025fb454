"""One WebSocket connection: frames in, answers out, neither without bounds.

reading     one frame after the other; not while IN_FLIGHT_MAX of them are being worked on
working     a task for each frame, begun in their order; answers leave as they come
writing     what waits for the client, all of a moment in one message; too much ends the connection with 1013
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import msgspec
from xxhash import xxh3_64_intdigest

from relaymesh.errors import InvalidEnvelope, InvalidSettings, MeshError, RateLimited
from relaymesh.kernel.address import DEFAULT_NAMESPACE
from relaymesh.kernel.deliveries import Deliveries, nothing_from
from relaymesh.server.exchange import Event, Receive, Scope, Send
from relaymesh.server.problem import Broken, status_of
from relaymesh.server.routing import App, refuse_handshake
from relaymesh.server.security.accounts import Account, account_of
from relaymesh.server.security.arrival import CONNECTION_KEY
from relaymesh.server.security.bulk import SMALL_BYTES
from relaymesh.server.security.principal import EVERYWHERE, Principal, login_of, principal_of
from relaymesh.server.security.rates import BYTES_A_WRITE
from relaymesh.server.security.trail import Trail, trail_of
from relaymesh.server.served import Served
from relaymesh.server.tasks import renew_taken
from relaymesh.server.ws.binary import Binary
from relaymesh.server.ws.calls import PAGES, READING, SELF_AUDITED, WAITING
from relaymesh.server.ws.closing import Close, Ended
from relaymesh.server.ws.credit import Feed
from relaymesh.server.ws.login import logged_in, next_frame
from relaymesh.server.ws.mistyped import Mistyped
from relaymesh.server.ws.operations import Operations
from relaymesh.server.ws.outbox import Outbox
from relaymesh.server.ws.sessions import Asked, Question, Session, Sessions
from relaymesh.server.ws.text import Text
from relaymesh.wire import frames

log = logging.getLogger("relaymesh.server")

HELLO_S = 10.0
IN_FLIGHT_MAX = 64
RECEIVES_MAX = 1_000
FEEDS_MAX = 1_000
WAITS_MAX = 1_000
STOP_S = 2.0
"""How long operations may take to finish when the node stops."""

CODECS: tuple[type[Binary | Text], ...] = (Binary, Text)
NO_CODEC = "the WebSocket's handshake offers no subprotocol of this node (Sec-WebSocket-Protocol)"
CODEC_HINT = f"offer {frames.SUBPROTOCOL_JSON}; {frames.SUBPROTOCOL_MSGPACK} is for RelayMesh's own client"


def websocket_app(served: Served) -> App:
    """The ASGI app behind `/v1/ws`. The guard has said who is asking."""
    sessions = Sessions(served)

    async def endpoint(scope: Scope, receive: Receive, send: Send) -> None:
        codec = _codec_for(scope.get("subprotocols", []))
        if codec is None:
            await refuse_handshake(scope, send, InvalidEnvelope(NO_CODEC, hint=CODEC_HINT))
            return
        await send({"type": "websocket.accept", "subprotocol": codec.subprotocol})
        first = None
        login = login_of(scope)
        if login is not None:
            first = await logged_in(login, codec, receive, send)
            if first is None:
                return
        sessions.watch_stop()
        socket = scope.get(CONNECTION_KEY)
        drained, bulk_s = (None, _at_once) if socket is None else (socket.drained, socket.bulk_s)
        account = account_of(scope)
        outbox = partial(Outbox, account=account, drained=drained)
        connection = Connection(
            served,
            sessions,
            principal_of(scope),
            account,
            trail_of(scope),
            codec,
            send,
            outbox,
            bulk_s,
            first,
        )
        await connection.run(receive)

    return endpoint


def _codec_for(offered: list[str]) -> Binary | Text | None:
    """The first protocol of ours that the client speaks."""
    for name in offered:
        for codec in CODECS:
            if codec.subprotocol == name:
                return codec()
    return None


class Connection:
    """The connection of one client."""

    def __init__(
        self,
        served: Served,
        sessions: Sessions,
        principal: Principal,
        account: Account,
        trail: Trail,
        codec: Binary | Text,
        send: Send,
        outbox: Callable[[Binary | Text, Send, Callable[[Ended], None]], Outbox],
        bulk_s: Callable[[int], float],
        first: Event | None = None,
    ) -> None:
        """`bulk_s`: how long to wait after an answer of so many bytes.

        `first`: its hello, if that was read already for the token in it.
        """
        self._served = served
        self._trail = trail
        self._sessions = sessions
        self._principal = principal
        self._account = account
        self._codec = codec
        self._send = send
        self._bulk_s = bulk_s
        self._session: Session | None = None
        self._first = first
        self._gone = False
        self._outbox = outbox(codec, send, self._end)
        self._working: set[asyncio.Task[Any]] = set()
        self._room = asyncio.Event()
        self._room.set()
        self._receives: dict[int, asyncio.Task[None]] = {}
        self._waits: set[asyncio.Task[int]] = set()
        self._feeds: dict[str, Feed] = {}
        self._ended: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()

    # -- its life

    async def run(self, receive: Receive) -> None:
        """Serve the client until either side ends it."""
        reading = asyncio.create_task(self._read(receive))
        try:
            done: set[asyncio.Future[Any]] = {reading, self._ended}
            await asyncio.wait(done, return_when=asyncio.FIRST_COMPLETED)
            if self._ended.done():
                await self._close(self._ended.result())
            elif reading.exception() is not None:
                await self._close(self._reason(reading.exception()))
        finally:
            reading.cancel()
            await self._cease()
            await asyncio.gather(reading, return_exceptions=True)

    def _reason(self, error: BaseException | None) -> Ended:
        if isinstance(error, Ended):
            return error
        if isinstance(error, MeshError):
            self.put(self._codec.problem(None, error))
            return Ended(Close.RESTART, error.message)
        log.error("a WebSocket connection failed", exc_info=error)
        return Ended(Close.BROKEN, "a mistake in the node")

    async def _close(self, ended: Ended) -> None:
        if self._working and ended.code is Close.RESTART:
            await asyncio.wait(self._working, timeout=STOP_S)
        if ended.code is Close.TRY_LATER:
            self._outbox.clear()
        await self._outbox.flushed(STOP_S)
        close = {"type": "websocket.close", "code": int(ended.code), "reason": ended.reason[:100]}
        try:
            await asyncio.wait_for(self._send(close), STOP_S)
        except (OSError, RuntimeError):
            return  # the client was faster, or does not read at all

    async def _cease(self) -> None:
        """The client is gone. Started requests go on in the session; receives end."""
        self._gone = True
        if self._session is not None:
            self._sessions.detach(self._session, self)
        await self._stop_giving()
        await self._outbox.stop()

    async def _stop_giving(self) -> None:
        """No more deliveries are sent here; those on their way go back, and no attempt is counted."""
        tasks = [*self._receives.values(), *self._waits]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *[feed.stop() for feed in self._feeds.values()], return_exceptions=True)

    async def supplant(self) -> None:
        """The client has come back on another connection, and reads this one no longer."""
        self._gone = True
        await self._stop_giving()
        self._end(Ended(Close.DONE, "the session goes on elsewhere"))

    def go_away(self) -> None:
        """The node stops: tell the client, accept no more frames, send no more deliveries."""
        self.put(self._codec.frame(frames.GoingAway("the node stops")))
        self._end(Ended(Close.RESTART, "the node stops"))

    def _end(self, ended: Ended) -> None:
        if not self._ended.done():
            self._ended.set_result(ended)

    # -- reading

    async def _read(self, receive: Receive) -> None:
        first = self._first
        if first is None:
            try:
                first = await asyncio.wait_for(next_frame(receive), HELLO_S)
            except TimeoutError:
                raise Ended(Close.PROTOCOL, "no hello came in time") from None
        if first is None:
            return
        (hello, _), *others = self._codec.read(first) or [(None, b"")]
        operations = await self._greet(hello)
        goes_on = await self._begin_all(operations, others)
        while goes_on and (event := await next_frame(receive)) is not None:
            goes_on = await self._begin_all(operations, self._codec.read(event))

    async def _greet(self, hello: Any) -> Operations:
        if isinstance(hello, Mistyped):
            self.put(self._codec.problem(None, hello.error))
        if not isinstance(hello, frames.Hello):
            raise Ended(Close.PROTOCOL, "a connection begins with hello")
        if hello.token is not None and self._first is None:
            error: MeshError = InvalidEnvelope(
                "this connection was opened with Authorization, and hello brings a token",
                hint="give the credential once: in the header, or in hello",
            )
            self.put(self._codec.problem(None, error))
            raise Ended(Close.PROTOCOL, "two credentials")
        if hello.protocol.partition(".")[0] != frames.PROTOCOL.partition(".")[0]:
            error = InvalidSettings(
                f"this node speaks protocol {frames.PROTOCOL}, not {hello.protocol[:20]!r}",
                hint="use a client and a node of the same major version",
            )
            self.put(self._codec.problem(None, error))
            raise Ended(Close.PROTOCOL, "another version of the protocol")
        served, principal = self._served, self._principal
        session = None
        if hello.resume is not None:
            session = await self._sessions.resume(
                hello.resume, principal, self._account, self._codec.subprotocol, hello.held
            )
        resumed = session is not None
        if session is None:
            session = self._sessions.begin(principal, self._account, self._codec.subprotocol)
        operations = Operations(served, principal, self._account, session)
        operations.trail = self._trail
        if hello.agent is not None:
            await self._join(operations, hello.agent, hello.settles)
        session.attach(self)
        self._session = session
        self._outbox.bundles = hello.bundles
        namespace = DEFAULT_NAMESPACE if principal.namespace == EVERYWHERE else principal.namespace
        self.put(
            self._codec.frame(
                frames.Welcome(
                    session.id,
                    frames.PROTOCOL,
                    served.now,
                    served.roster.config.heartbeat_interval,
                    namespace,
                    served.session.payload_bytes_max,
                    served.settings.body_bytes_max,
                    resumed,
                    bundles=hello.bundles,
                )
            )
        )
        return operations

    async def _join(self, on: Operations, agent: str, settles: bool | None) -> None:
        try:
            await on.join(agent, settles)
        except MeshError as error:
            self.put(self._codec.problem(None, error))
            raise Ended(Close.PROTOCOL, "this agent may not join") from None

    # -- working

    async def _begin_all(self, on: Operations, asked: list[Asked]) -> bool:
        """Whether the client goes on: what comes behind a goodbye is not begun."""
        if len(asked) > 1:
            self._account.owe(len(asked) - 1)  # the guard has charged the first, and the bytes
        for frame, data in asked:
            self._begin(on, frame, data)
            if not self._room.is_set():
                await self._room.wait()
            if isinstance(frame, frames.Goodbye):
                await asyncio.wait({self._ended})
                return False
        return True

    def _begin(self, on: Operations, frame: Any, data: bytes | msgspec.Raw) -> None:
        if frame.__class__ in self._codec.routes:
            self._begin_work(on, frame, (frame.ref, xxh3_64_intdigest(data)), len(data))
        elif isinstance(frame, frames.Receive):
            self._begin_receive(on, frame)
        elif isinstance(frame, frames.Cancel):
            task = self._receives.get(frame.ref)
            if task is not None:
                task.cancel()
        elif isinstance(frame, frames.Credit):
            self._allow(on, frame)
        elif isinstance(frame, frames.Ping):
            self.put(self._codec.frame(frames.Pong(frame.ref, self._served.now)))
        elif isinstance(frame, frames.Heartbeat):
            self._beat(on, frame)
        elif isinstance(frame, frames.Hello):
            raise Ended(Close.PROTOCOL, "hello was said before")
        elif isinstance(frame, frames.Goodbye):
            self._track(asyncio.create_task(self._goodbye(on.session)))
        else:
            assert isinstance(frame, Mistyped)
            self.put(self._codec.problem(frame.ref, frame.error))
            if frame.ends:
                raise Ended(Close.UNREADABLE, f"a frame cannot be read: {frame.error.message}")

    def _beat(self, on: Operations, frame: frames.Heartbeat) -> None:
        try:
            renewing = on.beat(frame.agents, frame.status)
        except MeshError as error:
            self.put(self._codec.problem(frame.ref, error))
            return
        if renewing:
            self._track(asyncio.create_task(self._renew(frame, renewing)))
        else:
            self.put(self._codec.frame(frames.Beat(frame.ref, self._served.now)))

    async def _renew(self, frame: frames.Heartbeat, agents: list[str]) -> None:
        """A heartbeat of agents that took steps is answered once their leases are renewed."""
        try:
            await renew_taken(self._served, agents)
        except MeshError as error:
            self.put(self._codec.problem(frame.ref, error))
        else:
            self.put(self._codec.frame(frames.Beat(frame.ref, self._served.now)))

    def _begin_work(self, on: Operations, frame: Any, question: Question, size: int) -> None:
        session = on.session
        missed = session.missed(question)
        name: str | None = getattr(frame, "name", None)  # of a call; frequent frames have none
        if missed is not None:
            self.put(missed)
        elif name is not None and name in WAITING and len(self._waits) >= WAITS_MAX:
            error = RateLimited(
                f"{WAITS_MAX} watches wait already", hint="wait until one of them returns, or list the tasks"
            )
            self.put(self._codec.problem(frame.ref, error))
        elif question not in session.running:
            account = self._account
            account.incoming += size
            if account.is_over_incoming():
                account.incoming -= size
                error = RateLimited(
                    "too much of this credential is under way",
                    hint="wait for replies to earlier frames before you send more",
                    retry_after=1.0,
                )
                self.put(self._codec.problem(frame.ref, error))
                return
            session.running.add(question)
            if name is not None and name in WAITING:
                self._begin_wait(on, frame, question, size)
                return
            work = self._page if name is not None and name in PAGES else self._work
            self._track(asyncio.create_task(work(on, frame, question, size)))

    def _begin_wait(self, on: Operations, frame: Any, question: Question, size: int) -> None:
        """A call that waits takes no place of those that work, and ends with the connection."""
        task = asyncio.create_task(self._work(on, frame, question, size))
        self._waits.add(task)
        task.add_done_callback(self._waits.discard)

    def _track(self, task: asyncio.Task[Any]) -> None:
        self._working.add(task)
        task.add_done_callback(self._worked)
        if len(self._working) >= IN_FLIGHT_MAX:
            self._room.clear()

    def _worked(self, task: asyncio.Task[Any]) -> None:
        self._working.discard(task)
        if len(self._working) < IN_FLIGHT_MAX:
            self._room.set()

    async def _page(self, on: Operations, frame: Any, question: Question, size: int) -> None:
        """A page of a long list: one at a time for a credential, and no faster than bulk may move."""
        async with self._account.pages:
            length = await self._work(on, frame, question, size)
            await asyncio.sleep(self._bulk_s(length) if length > SMALL_BYTES else 0)

    async def _work(self, on: Operations, frame: Any, question: Question, size: int) -> int:
        """Done to the end even if the connection is lost meanwhile: the client may ask again.

        Returns the length of the answer.
        """
        session, status = on.session, 200
        try:
            data = await self._codec.answer(on, frame, size)
        except MeshError as error:
            status = status_of(error)
            data = self._codec.problem(frame.ref, error)
        except Exception:
            log.exception("%s failed", type(frame).__name__)
            status = 500
            data = self._codec.problem(frame.ref, Broken("this request met a mistake in the node"))
        finally:
            session.running.discard(question)
            self._account.incoming -= size
        name, acted = getattr(frame, "name", None), on.acted.pop(frame.ref, ())
        if name is not None and name in READING:
            self._account.owe(len(data) / BYTES_A_WRITE)
            session.tell(data)
        else:
            session.answered(question, data)
            if name not in SELF_AUDITED or status != 200:
                self._audit(frame, name, status, acted)
        return len(data)

    def _audit(self, frame: Any, name: str | None, status: int, acted: Collection[str]) -> None:
        """Every write is audited: a batch is one."""
        route = self._codec.routes[frame.__class__] if name is None else f"{frames.PATH} {name}"
        self._trail.write("ws.write", status, route=route, acted=acted)

    async def _goodbye(self, session: Session) -> None:
        await self._stop_giving()
        try:
            await self._sessions.end(session)
        except MeshError as error:
            log.debug("a goodbye came too late: %s", error)
        self._end(Ended(Close.DONE, "goodbye"))

    # -- deliveries

    def _begin_receive(self, on: Operations, frame: frames.Receive) -> None:
        if len(self._receives) >= RECEIVES_MAX or frame.ref in self._receives:
            error = RateLimited(
                f"{len(self._receives)} receives wait already, or one under this ref",
                hint="wait until one of them returns, and give each receive a ref of its own",
            )
            self.put(self._codec.problem(frame.ref, error))
            return
        task = self._receives[frame.ref] = asyncio.create_task(self._receive(on, frame))
        task.add_done_callback(partial(self._received, frame))

    async def _receive(self, on: Operations, frame: frames.Receive) -> None:
        try:
            mailbox = on.mailbox(frame.mailbox)
            if not self._outbox.has_room:
                await self._outbox.room()
            given = await on.receive(mailbox, frame.max, frame.wait_ms, frame.correlation_id)
            data = self._codec.deliveries(frame.ref, mailbox, given, self._served.now)
        except MeshError as error:
            data = self._codec.problem(frame.ref, error)
        except Exception:
            log.exception("a receive failed")
            data = self._codec.problem(frame.ref, Broken("this request met a mistake in the node"))
        self.put(data)

    def _received(self, frame: frames.Receive, task: asyncio.Task[None]) -> None:
        """A receive that was cancelled, maybe before it began, is answered with nothing."""
        self._receives.pop(frame.ref, None)
        if task.cancelled():
            nothing = nothing_from(frame.mailbox)
            self.put(self._codec.deliveries(frame.ref, frame.mailbox, nothing, self._served.now))

    def _allow(self, on: Operations, frame: frames.Credit) -> None:
        try:
            mailbox = on.mailbox(frame.mailbox)
        except MeshError as error:
            self.put(self._codec.problem(None, error))
            return
        feed = self._feeds.get(mailbox)
        if feed is None:
            if len(self._feeds) >= FEEDS_MAX:
                full = RateLimited(
                    f"{FEEDS_MAX} mailboxes are pushed already",
                    hint="open another connection for more, or receive from them",
                )
                self.put(self._codec.problem(None, full))
                return
            feed = self._feeds[mailbox] = Feed(on, mailbox, self._push, self._refuse, self._outbox.room)
        feed.allow(max(0, frame.credit))

    def _push(self, mailbox: str, given: Deliveries) -> None:
        self.put(self._codec.deliveries(None, mailbox, given, self._served.now))

    def _refuse(self, error: MeshError) -> None:
        self.put(self._codec.problem(None, error))

    def settled(self, tokens: list[int]) -> None:
        """Credit comes back."""
        for feed in self._feeds.values():
            feed.settled(tokens)

    # -- writing

    def put(self, data: bytes) -> None:
        """Leave a frame to be written. One too many for a client that does not read ends the connection."""
        if self._gone:
            return
        self._outbox.put(data)


def _at_once(size: int) -> float:  # noqa: ARG001 - what moves is not counted
    return 0.0
