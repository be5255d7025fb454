"""`AsyncMesh`: the mesh for programs on an event loop. It has the methods of `Mesh`, awaited."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Unpack

from relaymesh.client.settings import Transport
from relaymesh.errors import Closed
from relaymesh.kernel.bounds import flag, patience
from relaymesh.node.clock import Clock
from relaymesh.node.settings import Durability
from relaymesh.sdk.async_agent import AsyncHandler
from relaymesh.sdk.async_operations import AsyncOperations
from relaymesh.sdk.async_pool import AsyncWorkerPool
from relaymesh.sdk.endings import FailureTable
from relaymesh.sdk.following import AsyncFollower
from relaymesh.sdk.handlers import Limits, checked_handler, checked_step, checked_topic, handler_name
from relaymesh.sdk.hooks import Hooks
from relaymesh.sdk.location import LocalLocation, Settings, location_of
from relaymesh.sdk.mesh import HANDLERS_STOP_S, WATCH_S, deadline_of, log_stop, raise_failure
from relaymesh.sdk.model_calls import AsyncModelCalls
from relaymesh.sdk.names import Names
from relaymesh.sdk.opening import checked_clock, open_async_session
from relaymesh.sdk.options import MailboxOptions, mailbox_settings
from relaymesh.sdk.pool import MAX_DEFAULT, worker_counts
from relaymesh.sdk.renewal import AsyncRenewer
from relaymesh.sdk.session import AsyncSession
from relaymesh.sdk.stop_signals import exit_of, told_to_stop
from relaymesh.wire.parameters import Parameters


class AsyncMesh(AsyncOperations):
    """A mesh on an event loop: a directory, memory only, or a remote node; see `Mesh`.

    It belongs to the loop it is opened on. Calls from another loop raise `Closed` and do nothing.

    async with AsyncMesh("data") as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        await planner.send("coder", {"do": "bump version"})
        async with await coder.receive(timeout=5) as delivery:
            print(delivery.content)
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        durability: Durability | None = None,
        *,
        settings: Settings | None = None,
        workers: tuple[int, int] | None = None,
        clock: Clock | None = None,
        token: str | None = None,
        transport: Transport | None = None,
    ) -> None:
        """Opened by `async with`, or `await mesh.open()`. At most `workers[1]` handlers run at once.

        workers: None: the settings of the node, by default at most 8.
        """
        self._location = location_of(
            path, durability=durability, settings=settings, token=token, transport=transport
        )
        self._clock = checked_clock(clock)
        self._workers = worker_counts(workers)
        self._begin()

    def _begin(self) -> None:
        self.hooks = Hooks()
        """Functions to call before and after each run of a handler."""
        self._told_limit = 0
        self._model_calls = AsyncModelCalls()
        self._names = Names()
        self._tables: dict[str, FailureTable] = {}
        self._opened: AsyncSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop that it was opened on, or first used on."""
        self._starting: list[asyncio.Task[None]] = []
        self._closed = False
        self._ended = asyncio.Event()

    async def open(self) -> AsyncMesh:
        """Lock the directory and recover, without blocking the loop."""
        if self._closed:
            raise Closed("this mesh is closed")
        if self._opened is None:
            session = self._opened = await open_async_session(self._location, self._clock)
            self._loop = asyncio.get_running_loop()
            self._names = Names(session.namespace)
            self._renewer = AsyncRenewer(session)
            self._pool = AsyncWorkerPool(MAX_DEFAULT if self._workers is None else self._workers[1])
            self._follower = AsyncFollower(session, self._follow)
            self._renewer.on_first = self._follower.begin
        return self

    def _follow(self, values: Parameters) -> None:
        """Apply new settings of the node, except those that the program chose itself."""
        self._renewer.beat.ms = values.lease_heartbeat_ms
        self._model_calls.limit_to(values.llm_parallel_limit)
        if self.path is None:
            self._told_limit = values.payload_max_bytes
        if self._workers is None:
            self._pool.resize(values.thread_pool_max)

    def model_call(self) -> AbstractAsyncContextManager[None]:
        """A block that calls a model. At most `llm_parallel_limit` (4) of a mesh run at once; others wait."""
        _ = self._session  # raise for a mesh that is not open, or belongs to another loop
        self._follower.begin()
        return self._model_calls.one()

    @property
    def _session(self) -> AsyncSession:
        if self._opened is None:
            raise Closed("this mesh is not open", hint="use it in an async with block, or await mesh.open()")
        if asyncio._get_running_loop() is not self._loop:
            self._check_loop()
        return self._opened

    def _check_loop(self) -> None:
        """Raise on a loop that is not the mesh's own. Outside a loop nothing is awaited: do nothing."""
        running = asyncio._get_running_loop()
        if self._loop is None:
            self._loop = running
        elif running not in (None, self._loop):
            raise Closed(
                "this AsyncMesh belongs to the event loop that opened it; this is another loop",
                hint="open an AsyncMesh on each loop, or use Mesh: any thread may call it",
            )

    @property
    def path(self) -> os.PathLike[str] | None:
        """The data directory; None for a mesh in memory or a remote mesh."""
        if self._opened is not None:
            return self._opened.path
        return self._location.path if isinstance(self._location, LocalLocation) else None

    def on(
        self,
        topic: str,
        name: str | None = None,
        *,
        concurrency: int | None = None,
        time_limit: float | None = None,
        **options: Unpack[MailboxOptions],
    ) -> Callable[[AsyncHandler], AsyncHandler]:
        """Decorator: subscribe, and run the function for every message, as soon as the loop runs it."""
        checked_topic(topic)
        limits = Limits(concurrency, time_limit)

        def register(handler: AsyncHandler) -> AsyncHandler:
            self._names.subscription(
                topic, handler_name(handler) if name is None else name
            )  # raise for a bad name or setting at once
            mailbox_settings(options)
            _ = self._session  # and for a mesh that is not open, or belongs to another loop

            async def start() -> None:
                subscription = await self.subscribe(
                    topic, handler_name(handler) if name is None else name, **options
                )
                subscription._serve(handler, limits)

            self._starting.append(asyncio.get_running_loop().create_task(start()))
            return handler

        return register

    def step(
        self,
        agent: str,
        *,
        concurrency: int | None = None,
        time_limit: float | None = None,
        **options: Unpack[MailboxOptions],
    ) -> Callable[[AsyncHandler], AsyncHandler]:
        """Decorator: run the function for the steps of an agent; what it returns is the step's result."""
        checked_step(agent)
        limits = Limits(concurrency, time_limit)

        def register(handler: AsyncHandler) -> AsyncHandler:
            checked_handler(handler)
            self._names.agent(agent)  # raise for a bad name or setting at once
            mailbox_settings(options)
            _ = self._session  # and for a mesh that is not open, or belongs to another loop

            async def start() -> None:
                (await self.agent(agent, **options))._serve(handler, limits)

            self._starting.append(asyncio.get_running_loop().create_task(start()))
            return handler

        return register

    async def _started(self) -> None:
        """Wait until what `on` began is done: a later publish then reaches the subscription."""
        while self._starting:
            await self._starting.pop()

    # -- the end

    async def run(self, seconds: float | None = None, *, timeout: float | None = HANDLERS_STOP_S) -> None:
        """Keep handlers running until the mesh is closed, the time is over, or a signal comes; see
        `Mesh.run`.
        """
        loop = asyncio.get_running_loop()
        deadline = deadline_of(seconds, loop.time())
        most = patience(timeout)
        told: asyncio.Queue[signal.Signals] = asyncio.Queue()
        with told_to_stop(lambda number: loop.call_soon_threadsafe(told.put_nowait, number)):
            first = await self._until_told(told, deadline)
            if first is None:
                return
            log_stop(first, most)
            second = asyncio.create_task(told.get())
            stopping = asyncio.create_task(self._pool.close(most))
            try:
                await asyncio.wait({stopping, second}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                hurried = second.result() if second.done() else None
                second.cancel()
                stopping.cancel()
                await asyncio.gather(stopping, return_exceptions=True)
        if hurried is not None:
            raise exit_of(hurried)

    async def _until_told(
        self, told: asyncio.Queue[signal.Signals], deadline: float
    ) -> signal.Signals | None:
        """The signal that came; None when the mesh was closed or the time is over."""
        session, now = self._session, asyncio.get_running_loop().time
        waits = {asyncio.create_task(told.get()), asyncio.create_task(self._ended.wait())}
        try:
            while not self._ended.is_set():
                raise_failure(session)
                left = deadline - now()
                done, _ = await asyncio.wait(
                    waits, timeout=min(WATCH_S, max(0.0, left)), return_when=asyncio.FIRST_COMPLETED
                )
                for each in done:
                    if isinstance(number := each.result(), signal.Signals):
                        return number
                if left <= 0:
                    return None
        finally:
            for each in waits:
                each.cancel()
        return None

    async def close(self, *, force: bool = False, timeout: float | None = HANDLERS_STOP_S) -> None:
        """Let handlers finish, give back unsettled deliveries, and release the directory; see
        `Mesh.close`."""
        flag(force, "force")
        most = patience(timeout)
        if self._closed:
            return
        if self._opened is None or self._opened.forked:
            self._closed = True
            return
        if self._loop is not None and self._loop.is_closed():
            await self._close_without_loop(self._opened, force)
            return
        self._check_loop()
        self._closed = True
        self._ended.set()
        try:
            await asyncio.gather(*self._starting, return_exceptions=True)
            await self._pool.close(0.0 if force else most)
        finally:
            await self._follower.close()
            await self._renewer.close()
            await self._opened.close(force=force)

    async def _close_without_loop(self, session: AsyncSession, force: bool) -> None:
        """The loop has ended, with its tasks and connections: only the directory must be released."""
        self._closed = True
        with contextlib.suppress(RuntimeError):
            await session.close(force=force)

    async def __aenter__(self) -> AsyncMesh:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
