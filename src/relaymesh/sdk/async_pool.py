"""The worker pool of an `AsyncMesh`: a bounded number of tasks that run handlers."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from relaymesh.errors import LeaseLost, MeshError
from relaymesh.kernel.entry import Lease
from relaymesh.sdk.delivery import AsyncDelivery
from relaymesh.sdk.pool import runs_of

if TYPE_CHECKING:
    from relaymesh.sdk.async_agent import AsyncInbox

log = logging.getLogger("relaymesh.sdk")


class AsyncWorkerPool:
    """At most `max` handlers run at once, on all routes together. A plain function runs in a thread."""

    def __init__(self, max: int) -> None:
        self._max = max
        self._running = asyncio.Semaphore(max)
        self._fetchers: list[asyncio.Task[None]] = []
        self._workers: set[asyncio.Task[None]] = set()

    def serve(self, inbox: AsyncInbox, handler: Callable[[AsyncDelivery], Any]) -> None:
        task = asyncio.get_running_loop().create_task(
            self._fetch(inbox, handler), name=f"relaymesh-{inbox.name}"
        )
        self._fetchers.append(task)

    async def _fetch(self, inbox: AsyncInbox, handler: Callable[[AsyncDelivery], Any]) -> None:
        """Take what the route may have in hand, run by run."""
        free = asyncio.Semaphore(self._max)
        try:
            while True:
                await free.acquire()
                leases = await inbox._mesh._session.receive(inbox.address, self._max, None)
                free.release()
                for run in runs_of(leases):
                    await free.acquire()
                    worker = asyncio.create_task(self._work(inbox, handler, run, free))
                    self._workers.add(worker)
                    worker.add_done_callback(self._workers.discard)
        except MeshError as error:
            log.debug("the handler of %s ends: %s", inbox.name, error)

    async def _work(
        self,
        inbox: AsyncInbox,
        handler: Callable[[AsyncDelivery], Any],
        run: list[Lease],
        free: asyncio.Semaphore,
    ) -> None:
        try:
            async with self._running:
                for delivery in inbox._deliveries(run):
                    if not await _run_one(handler, delivery):
                        return
        except MeshError as error:
            log.debug("a handler of %s ends: %s", inbox.name, error)
        finally:
            free.release()

    async def close(self, timeout: float) -> None:
        """Take no more; let handlers that run finish within the time."""
        for fetcher in self._fetchers:
            fetcher.cancel()
        await asyncio.gather(*self._fetchers, return_exceptions=True)
        if self._workers:
            _, late = await asyncio.wait(list(self._workers), timeout=timeout or 0.001)
            for worker in late:
                worker.cancel()


async def _run_one(handler: Callable[[AsyncDelivery], Any], delivery: AsyncDelivery) -> bool:
    """Run the handler once. False when it failed, and with it the rest of its run."""
    try:
        async with delivery:
            if inspect.iscoroutinefunction(handler):
                await handler(delivery)
            else:
                await asyncio.to_thread(handler, delivery)
    except LeaseLost as error:
        log.warning("%s", error)
        return False
    except MeshError:
        raise
    except Exception:
        # The failure is recorded, logged and counted by the nack; the worker goes on.
        return False
    return not delivery.lost
