"""`ManualMesh` on an event loop: virtual time, awaited."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import partial
from typing import Any

from relaymesh.errors import Closed
from relaymesh.journal import Disk
from relaymesh.kernel.bounds import SECONDS_MAX, real
from relaymesh.node.settings import Durability, MeshSettings
from relaymesh.sdk.async_agent import AsyncHandler, AsyncInbox
from relaymesh.sdk.async_delivery import AsyncDelivery
from relaymesh.sdk.async_mesh import AsyncMesh
from relaymesh.sdk.async_pool import AsyncWorkerPool, run_one
from relaymesh.sdk.handlers import NO_LIMITS, Limits
from relaymesh.sdk.pool import CORE_DEFAULT, MAX_DEFAULT, worker_counts
from relaymesh.sdk.renewal import AsyncRenewer
from relaymesh.sdk.time_limit import TimeLimit, call_awaited_within
from relaymesh.testing.async_session import VirtualSession
from relaymesh.testing.clock import NS, ManualClock
from relaymesh.testing.following import AsyncManualFollower
from relaymesh.testing.mesh import WAIT_MAX_S, next_renewal
from relaymesh.testing.opening import manual_clock, manual_node
from relaymesh.testing.raised import Raised

TURNS = 10
"""Turns of the loop that other tasks get before time moves."""

_handling: ContextVar[bool] = ContextVar("relaymesh_handling", default=False)
"""Whether this is a handler of a manual mesh, or a task that one started."""


class AsyncManualMesh(AsyncMesh):
    """`AsyncMesh` with a manual clock and without threads; see `ManualMesh`, whose arguments it takes.

        async def test_a_question_is_answered():
            async with AsyncManualMesh(raise_errors=True) as mesh:
                planner, coder = await mesh.agent("planner"), await mesh.agent("coder")

                @coder.handle
                async def reply(delivery):
                    await mesh.advance(600)  # so long the model takes
                    await coder.answer(delivery, "yes")

                assert (await planner.ask("coder", "?", timeout=3600)).content == "yes"

    It is open when it is made. Where a mesh would wait, virtual time passes, but not before other tasks
    have had their turn: several tasks may wait at once, and time moves to whatever comes first. Handlers run
    one at a time, plain functions too, in the task that lets time pass.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        disk: Disk | None = None,
        durability: Durability | None = None,
        settings: MeshSettings | None = None,
        clock: ManualClock | None = None,
        seed: int = 0,
        workers: tuple[int, int] = (CORE_DEFAULT, MAX_DEFAULT),
        raise_errors: bool = False,
    ) -> None:
        counts = worker_counts(workers) or (CORE_DEFAULT, MAX_DEFAULT)
        raised = Raised(raise_errors)
        self.clock = manual_clock(clock)
        self._node = manual_node(path, disk, durability, settings, seed, self.clock)
        self._begin()
        session = VirtualSession(self._node, self._wait)
        self._opened = session
        self._raised = raised
        self._ends: list[int] = []
        """Until when each task that waits lets time pass."""
        self._renewing = _InlineRenewer(session)
        self._renewer = self._renewing
        self._workers = counts
        self._follower = AsyncManualFollower(self._node, self._follow)
        self._renewer.on_first = self._follower.begin
        self._turns = _Turns(session, self._renewing, counts[1], raised)
        self._pool = self._turns

    async def open(self) -> AsyncManualMesh:
        """It is open already."""
        if self._closed:
            raise Closed("this mesh is closed")
        return self

    @property
    def now(self) -> datetime:
        """Mesh time."""
        return datetime.fromtimestamp(self._node.time.now() / 1000, UTC)

    async def advance(self, seconds: float = 0) -> int:
        """Let time pass, event by event, and run handlers as their deliveries come. Returns how many ran."""
        before = self._turns.ran
        await self._pass_time(real(seconds, "seconds", 0, SECONDS_MAX), _never)
        return self._turns.ran - before

    async def _wait(self, seconds: float | None, holds: Callable[[], bool]) -> None:
        await self._pass_time(WAIT_MAX_S if seconds is None else seconds, holds)

    async def _pass_time(self, seconds: float, holds: Callable[[], bool]) -> None:
        clock = self.clock
        end = clock.elapsed_ns() + round(seconds * NS)
        self._ends.append(end)
        try:
            while not holds():
                await self._happen()
                for _ in range(TURNS):
                    await asyncio.sleep(0)
                now = clock.elapsed_ns()
                if now >= end:
                    return
                if not holds() and not self._turns.waiting:
                    until = end if _handling.get() else min(self._ends)
                    clock.advance_ns(max(0, min(until - now, self._quiet_ns())))
        finally:
            self._ends.remove(end)

    async def _happen(self) -> None:
        """Everything that is due at this moment. A handler that lets time pass is not joined by others."""
        await self._started()
        while True:
            await self._renewing.renew()
            self._node.tend()
            if _handling.get() or not await self._turns.run():
                return

    def _quiet_ns(self) -> int:
        """How long nothing will happen: until a timer of the kernel, or a renewal."""
        now = self._node.time.now()
        event: int = self._node.core.read(lambda kernel: kernel.next_event_at)
        return max(1, min(event, next_renewal(self._renewing)) - now) * 1_000_000

    def close_now(self) -> None:
        """`close` where no loop runs: at the end of a fixture."""
        if not self._closed:
            self._closed = True
            self._node.close()

    async def __aenter__(self) -> AsyncManualMesh:
        return await self.open()


class _Turns(AsyncWorkerPool):
    """Handlers, one delivery after the other, when the mesh says so."""

    def __init__(self, session: VirtualSession, renewer: AsyncRenewer, max: int, raised: Raised) -> None:
        super().__init__(max)
        self._session = session
        self._renewer = renewer
        self._raised = raised
        self._routes: list[tuple[AsyncInbox, AsyncHandler, Limits]] = []
        self._turn = asyncio.Lock()
        self.ran = 0

    def serve(
        self, inbox: AsyncInbox, handler: Callable[[AsyncDelivery], Any], limits: Limits = NO_LIMITS
    ) -> None:
        self._routes.append((inbox, handler, limits))

    @property
    def waiting(self) -> bool:
        """Another task runs handlers: time stands still for all but them."""
        return self._turn.locked() and not _handling.get()

    async def run(self) -> int:
        """Run the handlers of all that is ready; returns how many deliveries that were."""
        async with self._turn:
            before = self.ran
            for inbox, handler, limits in list(self._routes):
                await self._run_route(inbox, handler, limits)
            self._raised.throw()
            return self.ran - before

    async def _run_route(self, inbox: AsyncInbox, handler: AsyncHandler, limits: Limits) -> None:
        if inbox.address not in self._session.node.core.kernel.state.mailboxes:
            return  # its subscription has ended
        deliveries = inbox._deliveries(self._session.take(inbox.address, self._max))
        for delivery in deliveries:
            if not delivery.settled:
                self._renewer.add(delivery)
        try:
            for delivery in deliveries:
                if delivery._held and not self._closing:
                    await self._run_one(handler, delivery, limits)
        finally:
            for delivery in deliveries:
                self._renewer.discard(delivery)

    async def _run_one(self, handler: AsyncHandler, delivery: AsyncDelivery, limits: Limits) -> None:
        self.ran += 1
        inside = _handling.set(True)
        try:
            error = await run_one(partial(self._call, handler, limits), delivery)
            if error is not None:
                self._raised.note(error)
        finally:
            _handling.reset(inside)

    async def _call(self, handler: AsyncHandler, limits: Limits, delivery: AsyncDelivery) -> None:
        if limits.time_limit is not None:
            with self._renewer.watch(TimeLimit(delivery, limits.time_limit, self._session.now())) as limit:
                result = await call_awaited_within(limit, handler, _inline)
        else:
            result = handler(delivery)
            if inspect.isawaitable(result):
                result = await result
        if not delivery._settled:
            delivery._take_result(result)

    async def close(self, timeout: float | None) -> None:
        """No handler runs beside the caller: there is nothing to wait for, however long it may take."""
        self._closing = True


class _InlineRenewer(AsyncRenewer):
    """Renews when asked, at the very moment a lease needs it."""

    def _start(self) -> None:
        """The mesh looks, whenever time passes."""


async def _inline(handler: AsyncHandler, delivery: AsyncDelivery) -> Any:
    return handler(delivery)


def _never() -> bool:
    return False
