"""The worker pool of an `AsyncMesh`: a bounded number of tasks that run handlers."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from relaymesh.errors import LeaseLost, MeshError, Unreachable
from relaymesh.sdk.async_delivery import AsyncDelivery
from relaymesh.sdk.handlers import NO_LIMITS, Limits
from relaymesh.sdk.hooks import await_hooks
from relaymesh.sdk.pool import runs_of
from relaymesh.sdk.time_limit import TimeLimit, call_awaited_within

if TYPE_CHECKING:
    from relaymesh.sdk.async_agent import AsyncInbox

log = logging.getLogger("relaymesh.sdk")


class AsyncWorkerPool:
    """At most `max` handlers run at once; they do not wait for each other.

    A plain function runs in a thread.
    """

    def __init__(self, max: int) -> None:
        self._max = max
        self._slots: list[tuple[Slots, Limits]] = []
        self._fetchers: list[asyncio.Task[None]] = []
        self._workers: dict[asyncio.Task[None], list[AsyncDelivery]] = {}
        self._closing = False

    def resize(self, max: int) -> None:
        """Set how many handlers may run at once. Running ones go on."""
        before, self._max = self._max, max
        for slots, limits in self._slots:
            slots.give_back(limits.most_of(max) - limits.most_of(before))

    def serve(
        self, inbox: AsyncInbox, handler: Callable[[AsyncDelivery], Any], limits: Limits = NO_LIMITS
    ) -> None:
        inbox._mesh._follower.begin()
        task = asyncio.get_running_loop().create_task(
            self._fetch(inbox, handler, limits), name=f"relaymesh-{inbox.name}"
        )
        self._fetchers.append(task)

    async def _fetch(
        self, inbox: AsyncInbox, handler: Callable[[AsyncDelivery], Any], limits: Limits
    ) -> None:
        """Receive as many deliveries as the route may hold, and run them. Leases of queued deliveries are
        renewed."""
        mesh = inbox._mesh
        free = Slots(limits.most_of(self._max))
        self._slots.append((free, limits))
        call = partial(_call, handler, limits)
        try:
            while True:
                room = await free.take_all()
                got = await mesh._session.pull(inbox.address, room)
                free.give_back(room - len(got))
                deliveries = inbox._deliveries(got)
                for delivery in deliveries:
                    if not delivery.settled:
                        mesh._renewer.add(delivery)
                for run in runs_of(deliveries):
                    worker = asyncio.create_task(self._work(call, run, free))
                    self._workers[worker] = run
                    worker.add_done_callback(self._workers.pop)
        except MeshError as error:
            log.debug("the handler of %s ends: %s", inbox.name, error)

    async def _work(
        self,
        call: Callable[[AsyncDelivery], Awaitable[None]],
        run: list[AsyncDelivery],
        free: Slots,
    ) -> None:
        """Run them one after the other. Those that a failure sent back are skipped: they are delivered again
        later.
        """
        try:
            for delivery in run:
                if delivery._held and not self._closing:
                    error = await run_one(call, delivery)
                    if isinstance(error, (LeaseLost, Unreachable)):
                        log.warning("%s", error)
        except Exception as error:
            log.debug("a worker ends with the mesh: %s", error)
        finally:
            for delivery in run:
                delivery._mesh._renewer.discard(delivery)
            free.give_back(len(run))

    async def close(self, timeout: float | None) -> None:
        """Stop receiving; let running handlers finish within the time, and give back the other deliveries. If
        cancelled, it stops waiting for handlers and still gives their deliveries back.
        """
        self._closing = True
        for fetcher in self._fetchers:
            fetcher.cancel()
        try:
            await asyncio.gather(*self._fetchers, return_exceptions=True)
            self._fetchers.clear()
            if self._workers:
                await asyncio.wait(list(self._workers), timeout=0.001 if timeout == 0 else timeout)
        finally:
            late = list(self._workers)
            if late:
                log.warning("%d handlers did not finish in time; their deliveries go back", len(late))
            for worker in late:
                for delivery in self._workers[worker]:
                    delivery._mesh._session.give_back([delivery._token])
                worker.cancel()
            await asyncio.gather(*late, return_exceptions=True)


class Slots:
    """How many more deliveries a route may hold. One coroutine takes permits, any may give them back. Below
    0: the pool was made smaller meanwhile.
    """

    __slots__ = ("_count", "_some")

    def __init__(self, count: int) -> None:
        self._count = count
        self._some = asyncio.Event()
        if count:
            self._some.set()

    async def take_all(self) -> int:
        """Wait for one permit, then take all. Returns how many."""
        while self._count <= 0:  # it may have been made smaller meanwhile
            await self._some.wait()
        self._some.clear()
        count, self._count = self._count, 0
        return count

    def give_back(self, count: int) -> None:
        self._count += count
        if self._count > 0:
            self._some.set()
        else:
            self._some.clear()


async def _call(handler: Callable[[AsyncDelivery], Any], limits: Limits, delivery: AsyncDelivery) -> None:
    mesh = delivery._mesh
    if limits.time_limit is not None:
        with mesh._renewer.watch(TimeLimit(delivery, limits.time_limit, mesh._session.now())) as limit:
            result = await call_awaited_within(limit, handler, asyncio.to_thread)
    elif inspect.iscoroutinefunction(handler):
        result = await handler(delivery)
    else:
        result = await asyncio.to_thread(handler, delivery)
        if inspect.isawaitable(result):
            result = await result
    if not delivery._settled:
        delivery._take_result(result)


async def run_one(
    call: Callable[[AsyncDelivery], Awaitable[None]], delivery: AsyncDelivery
) -> Exception | None:
    """Run the handler once. Returns what it raised; the nack has recorded, logged and counted it.

    The worker ends with the mesh, not with what a handler raises.
    """
    mesh = delivery._mesh
    hooks, error, failed = mesh.hooks, None, None
    try:
        async with delivery:
            try:
                if hooks.present:
                    await await_hooks(hooks._beginning(delivery), may_end=True)
                await call(delivery)
            except asyncio.CancelledError:
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    mesh._session.give_back([delivery._token])  # the loop ends, maybe before `close`
                raise
            except Exception as raised:
                error = raised
                raise
    except Exception as raised:
        if mesh._session.failure is not None:
            raise
        error = failed = raised
    if hooks.present:
        await await_hooks(hooks._ending(delivery, error))
    return failed
