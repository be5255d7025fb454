"""One WebSocket connection that reconnects by itself.

Every request has a `ref` and is kept until it is answered. When the connection is lost, the link connects
again (exponential backoff with jitter), says `hello` with the session to resume and the leases still held,
renews what the session expects, and repeats the unanswered requests. The node knows the refs that it has
answered and the ids that it has accepted, so nothing happens twice. A request that waits for a lost node
longer than `unreachable_s` ends as `Unreachable`: its outcome is unknown.

Small frames of one loop turn leave as one message. The node does the same with its answers.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidStatus,
    InvalidURI,
    WebSocketException,
)
from websockets.typing import Subprotocol

from relaymesh.client.discovery import Find
from relaymesh.client.problem import error_of, problem_of
from relaymesh.client.settings import RemoteSettings
from relaymesh.errors import (
    Closed,
    InvalidEnvelope,
    InvalidSettings,
    MeshError,
    PayloadTooLarge,
    Unauthorized,
    Unreachable,
)
from relaymesh.wire import frames
from relaymesh.wire.bundles import BUNDLE_BYTES_MAX, bundle, take, unbundle
from relaymesh.wire.frames import (
    PATH,
    PROTOCOL,
    SUBPROTOCOL_MSGPACK,
    Beat,
    Call,
    Deliveries,
    GoingAway,
    Heartbeat,
    Hello,
    Ping,
    Pong,
    Problem,
    Receive,
    Welcome,
    decode_node,
    encode,
)

log = logging.getLogger("relaymesh.client")

OFFLINE_CODES = frozenset({"CLOSED", "JOURNAL_POISONED"})
"""The node is shutting down: the request is repeated at the next one, under the same ref and ids."""
REFUSED_CLOSES = frozenset({1003, 1007, 1009})
"""The node could not read a frame. Repeating the frame would end the next connection too."""
CLOSE_S = 2.0


class Request:
    """A request on its way. `patient`: it waits for its answer however long the node is away."""

    __slots__ = ("deadline", "frame", "future", "patient", "sends", "since")

    def __init__(self, frame: Any, future: asyncio.Future[Any], *, patient: bool, now: float) -> None:
        self.frame = frame
        self.future = future
        self.patient = patient
        self.since = now
        self.sends = 0
        wait_ms = getattr(frame, "wait_ms", None)
        self.deadline = None if wait_ms is None else now + wait_ms / 1000


class Link:
    """The connection of one session. Belongs to the loop it was opened on."""

    def __init__(
        self,
        url: str,
        token: str | None,
        settings: RemoteSettings,
        *,
        find: Find | None,
        held: Callable[[], list[int]],
        welcomed: Callable[[Welcome], None],
        unclaimed: Callable[[Deliveries], None],
        beat: Callable[[int], None],
        renewals: Callable[[], list[Call]],
        resume: str | None = None,
    ) -> None:
        """`renewals`: what a restarted node must be told before the requests are repeated.

        `resume`: the id of a session to go on with, of the same credential.
        """
        self.url = url
        self._token = token
        self._find = find
        self._settings = settings
        self._held = held
        self._welcomed = welcomed
        self._unclaimed = unclaimed
        self._beat = beat
        self._renewals = renewals
        self.session = resume
        """The id of the session, which the node gave it."""
        self._loop = asyncio.get_running_loop()
        self._refs = count(1)
        self._requests: dict[int, Request] = {}
        self._connection: ClientConnection | None = None
        self._welcome: Welcome | None = None
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._running: asyncio.Task[None] | None = None
        self._waiting: deque[bytes] = deque()
        self._some_wait = asyncio.Event()
        self._frame_bytes_max = 1 << 62
        self.agents: set[str] = set()
        """Agents that registered here: the connection sends their heartbeats."""
        self._status: str | None = None
        self._shows_life = True
        self.failure: MeshError | None = None
        """Why no call succeeds any more."""

    # -- opening and closing

    async def open(self) -> None:
        """Connect. Raises `Unreachable`, or the node's refusal."""
        self._running = self._loop.create_task(self._run(), name="relaymesh-link")
        try:
            await asyncio.wait_for(asyncio.shield(self._opened), self._settings.connect_s)
        except TimeoutError:
            await self._end(Unreachable(f"no node answers at {self.url}"))
            raise Unreachable(
                f"no node answered at {self.url} within {self._settings.connect_s:g} s",
                hint="see whether it runs: relaymesh serve starts one; check the address",
            ) from None
        except BaseException:
            await self._end(Closed("this mesh is closed"))
            raise

    async def close(self, last: Any = None) -> None:
        """Fail every waiting call, send one last frame if there is one, and do not reconnect."""
        connection = self._connection
        self._fail(Closed("this mesh is closed"))
        if connection is not None and last is not None:
            try:
                self.tell(last)
                await asyncio.wait_for(connection.wait_closed(), CLOSE_S)
            except TimeoutError:
                pass
        await self._end(Closed("this mesh is closed"))

    async def _end(self, failure: MeshError) -> None:
        self._fail(failure)
        if self._running is not None and self._running is not asyncio.current_task():
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    def _fail(self, failure: MeshError) -> None:
        """Fail every waiting call and every later one."""
        if self.failure is None:
            self.failure = failure
        requests, self._requests = self._requests, {}
        for request in requests.values():
            _raise_in(request.future, type(failure)(failure.message, hint=failure.hint))
        _raise_in(self._opened, failure)
        if not self._opened.cancelled():
            self._opened.exception()  # no call may wait for it any more: mark its exception as seen

    # -- asking

    def next_ref(self) -> int:
        return next(self._refs)

    async def ask(self, frame: Any, *, patient: bool = False) -> Any:
        """Send a frame with a new `ref` and return the node's answer. Raises what the node raised."""
        return (await self.ask_again(frame, patient=patient))[0]

    def request(self, frame: Any, *, patient: bool = False) -> Request:
        """A request for `ask_again`, whose `sends` tell how often it was sent, also if it fails."""
        return Request(frame, self._loop.create_future(), patient=patient, now=self._loop.time())

    async def ask_again(
        self, frame: Any, *, patient: bool = False, request: Request | None = None
    ) -> tuple[Any, bool]:
        """The answer, and whether the request had to be repeated."""
        if self.failure is not None:
            raise type(self.failure)(self.failure.message, hint=self.failure.hint)
        request = request or self.request(frame, patient=patient)
        self._requests[frame.ref] = request
        try:
            if self._connection is not None:
                data = self._data_of(request)
                if len(data) <= BUNDLE_BYTES_MAX:
                    self._leave(data)
                else:
                    await self._send_alone(self._connection, data)
            answer = await request.future
        except asyncio.CancelledError:
            if self._requests.pop(frame.ref, None) is not None and isinstance(frame, Receive):
                self.tell(frames.Cancel(frame.ref))
            elif request.future.done() and not request.future.cancelled():
                self._abandoned(request.future)
            raise
        finally:
            self._requests.pop(frame.ref, None)
        return answer, request.sends > 1

    def _abandoned(self, future: asyncio.Future[Any]) -> None:
        """The answer came, but the caller has just been cancelled."""
        if future.exception() is None and isinstance(future.result(), Deliveries):
            self._unclaimed(future.result())

    def tell(self, frame: Any) -> None:
        """Send a frame that has no answer, if there is a connection."""
        if self._connection is not None:
            self._leave(encode(frame))

    def _leave(self, data: bytes) -> None:
        """Leave a frame, if there is one, to be sent with the next message."""
        if data:
            self._waiting.append(data)
            self._some_wait.set()

    async def _send_alone(self, connection: ClientConnection, data: bytes) -> None:
        """Send a large frame at once: a small one leaves with the other frames of this loop turn."""
        try:
            await connection.send(data)
        except ConnectionClosed:
            return  # it is repeated on the next connection

    def _data_of(self, request: Request) -> bytes:
        """A request in the form to send now; empty if the node would refuse it."""
        frame = request.frame
        if request.sends and request.deadline is not None:
            left_ms = max(0, round((request.deadline - self._loop.time()) * 1000))
            frame = msgspec.structs.replace(frame, wait_ms=left_ms)
        data = encode(frame)
        if len(data) > self._frame_bytes_max:
            _raise_in(
                request.future,
                PayloadTooLarge(
                    f"the request has a frame of {len(data)} bytes; the node allows {self._frame_bytes_max}",
                    hint="send it in several calls",
                ),
            )
            return b""
        request.sends += 1
        return data

    # -- the connection

    async def _run(self) -> None:
        """Connect, serve the connection until it is lost, and repeat."""
        failures = 0
        try:
            while self.failure is None:
                try:
                    connection = await self._connect()
                except (OSError, WebSocketException, TimeoutError) as error:
                    failures += 1
                    self._lost(error)
                    await self._pause(failures)
                    continue
                failures = 0
                async with connection:
                    await self._serve(connection)
                if self._loop.is_running() and self.failure is None:
                    await self._pause(1)
        except MeshError as error:
            self._fail(error)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            log.exception("the connection to %s failed for good", self.url)
            self._fail(Unreachable(f"the connection to {self.url} failed: {error!r}"))

    async def _pause(self, failures: int) -> None:
        """Wait before the next try; end the requests that have waited too long."""
        settings = self._settings
        most = min(settings.backoff_s_max, settings.backoff_s_min * 2 ** min(failures, 30))
        await asyncio.sleep(random.uniform(settings.backoff_s_min, most))

    def _lost(self, error: BaseException) -> None:
        """End the requests that have waited too long for a connection; the others keep waiting."""
        now = self._loop.time()
        for ref, request in list(self._requests.items()):
            if not request.patient and now - request.since > self._settings.unreachable_s:
                del self._requests[ref]
                _raise_in(
                    request.future,
                    Unreachable(
                        f"the node at {self.url} cannot be reached for {self._settings.unreachable_s:g} s"
                        f" ({error}); what was sent may have been accepted"
                    ),
                )

    async def _connect(self) -> ClientConnection:
        found = None if self._find is None else self._find()
        if found is not None:
            self.url, self._token = found.url, found.token  # a restarted node may have other limits
        headers = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        try:
            connection = await connect(
                "ws" + self.url.removeprefix("http") + PATH,
                additional_headers=headers,
                subprotocols=[Subprotocol(SUBPROTOCOL_MSGPACK)],
                compression=None,
                max_size=None,
                max_queue=64,
                open_timeout=self._settings.connect_s,
                close_timeout=CLOSE_S,
                user_agent_header=None,
                proxy=None,
            )
        except InvalidStatus as refused:
            raise self._refusal(refused) from refused
        except InvalidURI as error:
            raise InvalidSettings(
                f"{self.url} is not the address of a node: {error}", hint="http://host:port"
            ) from error
        try:
            await self._greet(connection)
        except BaseException:
            await connection.close()
            raise
        return connection

    def _refusal(self, refused: InvalidStatus) -> Exception:
        """The error for a node that refuses the connection."""
        status = refused.response.status_code
        if status in (401, 403) and not (self._find is not None and self._welcome is not None):
            problem = problem_of(refused.response.body or b"")
            return Unauthorized(
                f"the node at {self.url} does not accept this token" if problem is None else problem.detail,
                hint=None if problem is None else problem.hint or None,
                authenticated=status == 403,
            )
        if status == 404:
            return InvalidSettings(
                f"{self.url} answers, but is no RelayMesh node (404 for {PATH})",
                hint="check the address; or ask it over HTTP with transport='http'",
            )
        return InvalidHandshake(f"the node answers with status {status}")

    async def _greet(self, connection: ClientConnection) -> None:
        await connection.send(encode(Hello(PROTOCOL, None, self.session, self._held(), bundles=True)))
        async with asyncio.timeout(self._settings.connect_s):
            answer = decode_node(await connection.recv(decode=False))
        if isinstance(answer, Problem):
            raise _error(answer)
        if not isinstance(answer, Welcome):
            raise InvalidHandshake("the node did not say welcome")
        self._welcome, self.session = answer, answer.session
        self._frame_bytes_max = answer.frame_bytes_max
        self._welcomed(answer)

    async def _serve(self, connection: ClientConnection) -> None:
        assert self._welcome is not None
        self._waiting.clear()
        self._connection = connection
        for renewal in self._renewals():
            self._leave(encode(renewal))
        for request in self._requests.values():
            self._leave(self._data_of(request))
        if self.agents:
            self._heartbeat()
        if not self._opened.done():
            self._opened.set_result(None)
        reading = self._loop.create_task(self._read(connection))
        beside = [
            self._loop.create_task(self._write(connection, bundles=self._welcome.bundles)),
            self._loop.create_task(self._beat_every(self._welcome.heartbeat_ms / 1000)),
        ]
        try:
            await reading
        finally:
            self._connection = None
            for task in (reading, *beside):
                task.cancel()
            now = self._loop.time()
            for request in self._requests.values():
                request.since = now
            if connection.close_code in REFUSED_CLOSES:
                self._refuse_all(f"{connection.close_code} {connection.close_reason}")

    async def _write(self, connection: ClientConnection, *, bundles: bool) -> None:
        """The connection is lost: what it carried is repeated on the next one."""
        waiting = self._waiting
        bytes_max = min(BUNDLE_BYTES_MAX, self._frame_bytes_max) if bundles else 0
        try:
            while True:
                await self._some_wait.wait()
                self._some_wait.clear()
                while waiting:
                    await connection.send(bundle(take(waiting, bytes_max)))
        except ConnectionClosed:
            return

    async def _beat_every(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            self._heartbeat()

    def _heartbeat(self) -> None:
        """The heartbeat names its agents: a restarted node has not heard of them."""
        if self._shows_life:
            self.tell(Heartbeat(agents=sorted(self.agents), status=self._status))
        else:
            self.tell(Ping())  # the connection lives

    def show(self, status: str, *, life: bool) -> None:
        """What the agents do, for the heartbeats. Without `life` there is one more, and then none."""
        self._status, changed = status, life != self._shows_life
        if changed:
            self._shows_life = True
            self._heartbeat()
            self._shows_life = life

    def _refuse_all(self, reason: str) -> None:
        requests, self._requests = self._requests, {}
        for request in requests.values():
            _raise_in(request.future, InvalidEnvelope(f"the node could not read what was sent: {reason}"))

    async def _read(self, connection: ClientConnection) -> None:
        try:
            while True:
                for part in unbundle(await connection.recv(decode=False)):
                    frame = decode_node(part)
                    if self._is_offline(frame):
                        await connection.close()
                        return
                    self._hear(frame)
        except ConnectionClosed:
            return
        except msgspec.MsgspecError as error:
            log.warning("%s sent what this version cannot read: %s", self.url, error)
            await connection.close(1007)

    def _is_offline(self, frame: Any) -> bool:
        """Whether the node says, in answer to a request, that it is shutting down."""
        return isinstance(frame, Problem) and frame.code in OFFLINE_CODES and frame.ref in self._requests

    def _hear(self, frame: Any) -> None:
        ref = getattr(frame, "ref", None)
        request = None if ref is None else self._requests.pop(ref, None)
        if request is not None:
            if isinstance(frame, Problem):
                _raise_in(request.future, _error(frame))
            elif not request.future.done():
                request.future.set_result(frame)
        elif isinstance(frame, Deliveries):
            self._unclaimed(frame)
        elif isinstance(frame, (Pong, Beat)):
            self._beat(frame.now)
        elif isinstance(frame, Problem):
            log.log(logging.WARNING if ref is None else logging.INFO, "%s says: %s", self.url, frame.detail)
        elif isinstance(frame, GoingAway):
            log.info("%s goes away: %s", self.url, frame.reason)


def _raise_in(future: asyncio.Future[Any], error: MeshError) -> None:
    if not future.done():
        future.set_exception(error)


def _error(problem: Problem) -> MeshError:
    return error_of(
        problem.code,
        problem.detail,
        problem.hint,
        retry_after_ms=problem.retry_after_ms,
        authenticated=problem.authenticated,
    )
