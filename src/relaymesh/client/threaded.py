"""A remote session for ordinary threads: the async session, on a loop in a thread of its own.

Each call costs one hand-over to that thread and one back.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from relaymesh.errors import Closed, MeshError
from relaymesh.kernel.deliveries import Deliveries, nothing_from
from relaymesh.kernel.request import Request, Result

if TYPE_CHECKING:
    from relaymesh.client.http import HttpSession
    from relaymesh.client.websocket import WebSocketSession

    AnySession: TypeAlias = WebSocketSession | HttpSession

Answer = TypeVar("Answer")
Arrival = Callable[[Deliveries, MeshError | None], None]


class _LoopThread:
    """An event loop that runs in a thread until it is stopped."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="relaymesh-client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        try:
            self._loop.run_until_complete(_cancel_all())
        finally:
            self._loop.close()

    def start(self, work: Coroutine[Any, Any, Answer]) -> Future[Answer]:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise Closed("this mesh is closed") from None

    def run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # interrupted: deliveries that are on their way go back
            raise

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class RemotePull:
    """A receive that no thread waits in."""

    def __init__(self, future: Future[Deliveries]) -> None:
        self._future = future

    def forgo(self) -> None:
        """Stop waiting. Deliveries that still come go back; no attempt is counted."""
        self._future.cancel()


class ThreadedSession:
    """Requests to a remote node, in the caller's thread. Thread-safe."""

    path = None

    def __init__(self, open_session: Callable[[], Awaitable[AnySession]]) -> None:
        self._thread = _LoopThread()
        self._closed = False
        try:
            self._session = self._thread.run(_awaited(open_session))
        except BaseException:
            self._thread.stop()
            raise
        self.now = self._session.now
        self.new_ids = self._session.new_ids
        self.holds = self._session.holds

    @property
    def url(self) -> str:
        return self._session.url

    @property
    def namespace(self) -> str:
        return self._session.namespace

    @property
    def payload_bytes_max(self) -> int:
        return self._session.payload_bytes_max

    @property
    def failure(self) -> MeshError | None:
        return Closed("this mesh is closed") if self._closed else self._session.failure

    @property
    def forked(self) -> bool:
        return self._session.forked

    def _run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        if self._closed or self._session.forked:
            work.close()
            raise Closed(
                "this mesh is closed"
                if self._closed
                else "this mesh belongs to the process that opened it; this process was forked from that one"
            )
        return self._thread.run(work)

    def execute(
        self, request: Request[Result], *, timeout: float | None = None, durable: bool = False
    ) -> Result:
        return self._run(self._session.execute(request, timeout=timeout, durable=durable))

    def receive(
        self, mailbox: str, max: int, timeout: float | None, correlation_id: str | None = None
    ) -> Deliveries:
        return self._run(self._session.receive(mailbox, max, timeout, correlation_id))

    def pull(self, mailbox: str, max: int, arrived: Arrival) -> RemotePull:
        """`arrived` is called in the client's thread."""

        async def wait() -> Deliveries:
            try:
                got = await self._session.pull(mailbox, max)
            except MeshError as error:
                nothing = nothing_from(mailbox)
                arrived(nothing, error)
                return nothing
            arrived(got, None)
            return got

        return RemotePull(self._thread.start(wait()))

    def close(self, *, force: bool = False) -> None:
        if self._closed or self._session.forked:
            return
        try:
            self._run(self._session.close(force=force))
        finally:
            self._closed = True
            self._thread.stop()


async def _awaited(open_session: Callable[[], Awaitable[AnySession]]) -> AnySession:
    return await open_session()
