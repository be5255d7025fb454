"""The worker pool of an `AsyncMesh`: a bounded number of tasks that run handlers."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from relaymesh.errors import LeaseLost, MeshError, Unreachable
from relaymesh.sdk.async_delivery import AsyncDelivery
from relaymesh.sdk.pool import runs_of

if TYPE_CHECKING:
    from relaymesh.sdk.async_agent import AsyncInbox

log = logging.getLogger("relaymesh.sdk")


class AsyncWorkerPool:
    """At most `max` runs of a handler at once; handlers do not wait for each other.

    A plain function runs in a thread.
    """

    def __init__(self, max: int) -> None:
        self._max = max
        self._fetchers: list[asyncio.Task[None]] = []
        self._workers: dict[asyncio.Task[None], list[AsyncDelivery]] = {}
        self._closing = False

    def serve(self, inbox: AsyncInbox, handler: Callable[[AsyncDelivery], Any]) -> None:
        task = asyncio.get_running_loop().create_task(
            self._fetch(inbox, handler), name=f"relaymesh-{inbox.name}"
        )
        self._fetchers.append(task)

    async def _fetch(self, inbox: AsyncInbox, handler: Callable[[AsyncDelivery], Any]) -> None:
        """Take as much as the route may have in hand, run by run. What waits for its turn is renewed."""
        mesh = inbox._mesh
        free = asyncio.Semaphore(self._max)
        try:
            while True:
                room = await _take_all(free)
                got = await mesh._session.pull(inbox.address, room)
                for _ in range(room - len(got)):
                    free.release()
                deliveries = inbox._deliveries(got)
                for delivery in deliveries:
                    if not delivery.settled:
                        mesh._renewer.add(delivery)
                for run in runs_of(deliveries):
                    worker = asyncio.create_task(self._work(handler, run, free))
                    self._workers[worker] = run
                    worker.add_done_callback(self._workers.pop)
        except MeshError as error:
            log.debug("the handler of %s ends: %s", inbox.name, error)

    async def _work(
        self, handler: Callable[[AsyncDelivery], Any], run: list[AsyncDelivery], free: asyncio.Semaphore
    ) -> None:
        """One after the other. What a failure took back with it is somebody's later."""
        try:
            for delivery in run:
                if delivery._held and not self._closing:
                    await _run_one(handler, delivery)
        except Exception as error:
            log.debug("a worker ends with the mesh: %s", error)
        finally:
            for delivery in run:
                delivery._mesh._renewer.discard(delivery)
                free.release()

    async def close(self, timeout: float | None) -> None:
        """Take no more; let handlers that run finish within the time. The others' deliveries go back.

        Cancelled, it waits for handlers no longer, and gives their deliveries back all the same.
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


async def _take_all(free: asyncio.Semaphore) -> int:
    """Wait for room, then take all there is. Returns how much."""
    await free.acquire()
    room = 1
    while not free.locked():
        await free.acquire()
        room += 1
    return room


async def _run_one(handler: Callable[[AsyncDelivery], Any], delivery: AsyncDelivery) -> None:
    """Run the handler once. The worker ends with the mesh, not with what a handler raises."""
    try:
        async with delivery:
            if inspect.iscoroutinefunction(handler):
                await handler(delivery)
            else:
                result = await asyncio.to_thread(handler, delivery)
                if inspect.isawaitable(result):
                    await result
    except Exception as error:
        # The failure is recorded, logged and counted by the nack.
        if delivery._mesh._session.failure is not None:
            raise
        if isinstance(error, (LeaseLost, Unreachable)):
            log.warning("%s", error)
