"""The worker pool: a bounded number of threads that run handlers.

It starts with `core` threads at the first delivery and grows to `max` while deliveries wait for one. A
handler is served by one outstanding receive at a time, so no thread is spent on waiting; entries
of one lane that came together are worked off one after the other, in one thread.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import queue
import threading
from typing import TYPE_CHECKING, Any

from relaymesh.errors import LeaseLost, MeshError
from relaymesh.kernel.commands import Forgo, Receive
from relaymesh.kernel.entry import Lease
from relaymesh.node.core import Receiver
from relaymesh.sdk.agent import Handler, Inbox
from relaymesh.sdk.delivery import Delivery

if TYPE_CHECKING:
    from relaymesh.sdk.mesh import Mesh

log = logging.getLogger("relaymesh.sdk")

CORE_DEFAULT = 4
MAX_DEFAULT = 8
IDLE_S = 10.0


class Route:
    """One handler and what it has in hand."""

    def __init__(self, inbox: Inbox, handler: Handler) -> None:
        self.inbox = inbox
        self.handler = handler
        self.in_hand = 0
        self.pulling: _Pull | None = None
        self.lock = threading.Lock()


class _Pull(Receiver, gc=False, eq=False, kw_only=True):
    """A receive whose deliveries go to the pool's queue."""

    pool: Any = None
    route: Any = None

    def release(self, error: MeshError | None) -> None:
        self.pool._arrived(self.route, self, error)


class WorkerPool:
    """Threads that run handlers. `inline`: no threads; `drain` runs what is queued in the caller's."""

    def __init__(self, mesh: Mesh, core: int, max: int, *, inline: bool = False) -> None:
        self._mesh = mesh
        self._core = core
        self._max = max
        self._inline = inline
        self._jobs: queue.SimpleQueue[tuple[Route, list[Lease]] | None] = queue.SimpleQueue()
        self._routes: list[Route] = []
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self._lock = threading.Lock()
        self._closing = False

    @property
    def threads(self) -> int:
        return len(self._threads)

    def serve(self, inbox: Inbox, handler: Handler) -> None:
        """Run the handler for everything the inbox gets, until the mesh closes."""
        route = Route(inbox, handler)
        self._routes.append(route)
        self._pull(route)

    # -- deliveries come in

    def _pull(self, route: Route) -> None:
        """Ask for as many deliveries as the route may still take."""
        if self._closing:
            return
        with route.lock:
            if route.pulling is not None or route.in_hand >= self._max:
                return
            pull = _Pull(f"process-{os.getpid()}", self._max - route.in_hand, pool=self, route=route)
            route.pulling = pull
        core = self._mesh._session.node.core
        core.commit(core.submit(Receive(route.inbox.address, pull)))

    def _arrived(self, route: Route, pull: _Pull, error: MeshError | None) -> None:
        """Called by whoever committed the grant: only queue, never work."""
        with route.lock:
            route.pulling = None
            route.in_hand += len(pull.leases)
        if error is None:
            for run in runs_of(pull.leases):
                self._jobs.put((route, run))
            self._grow()

    def _grow(self) -> None:
        with self._lock:
            if self._inline or self._closing:
                return
            waiting = self._jobs.qsize() - self._idle
            wanted = min(self._max, max(self._core, len(self._threads) + waiting))
            while len(self._threads) < wanted:
                thread = threading.Thread(target=self._work, name="relaymesh-worker", daemon=True)
                self._threads.add(thread)
                thread.start()

    # -- deliveries are worked off

    def _work(self) -> None:
        try:
            while True:
                with self._lock:
                    self._idle += 1
                try:
                    job = self._jobs.get(timeout=IDLE_S)
                except queue.Empty:
                    if len(self._threads) > self._core:
                        return
                    continue
                finally:
                    with self._lock:
                        self._idle -= 1
                if job is None:
                    return
                self._run_job(*job)
        except MeshError as error:
            log.debug("a worker ends: %s", error)
        finally:
            self._threads.discard(threading.current_thread())

    def drain(self) -> int:
        """Run what is queued, in this thread; answers how many deliveries."""
        done = 0
        while True:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return done
            if job is not None:
                done += len(job[1])
                self._run_job(*job)

    def _run_job(self, route: Route, run: list[Lease]) -> None:
        self._pull(route)
        try:
            for delivery in route.inbox._deliveries(run):
                if not self._run_one(route, delivery):
                    break
        finally:
            with route.lock:
                route.in_hand -= len(run)
            self._pull(route)

    def _run_one(self, route: Route, delivery: Delivery) -> bool:
        """Run the handler once. False when it failed, and with it the rest of its run."""
        try:
            with delivery:
                result = route.handler(delivery)
                if inspect.isawaitable(result):
                    asyncio.run(_finish(result))
        except LeaseLost as error:
            log.warning("%s", error)
            return False
        except MeshError:
            raise
        except Exception:
            # The failure is recorded, logged and counted by the nack; the worker goes on.
            return False
        return not delivery.lost

    def close(self, timeout: float) -> None:
        """Take no more; let handlers that run finish within the time."""
        self._closing = True
        core = self._mesh._session.node.core
        for route in self._routes:
            pull = route.pulling
            if pull is not None and core.failure is None:
                core.submit(Forgo(route.inbox.address, pull))
        threads = list(self._threads)
        for _ in threads:
            self._jobs.put(None)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(timeout)


async def _finish(awaitable: Any) -> Any:
    return await awaitable


def runs_of(leases: list[Lease]) -> list[list[Lease]]:
    """Leases of one lane together and in order; every other one alone."""
    runs: list[list[Lease]] = []
    by_lane: dict[int, list[Lease]] = {}
    for lease in leases:
        lane = lease.entry.lane
        if lane is None:
            runs.append([lease])
        elif id(lane) in by_lane:
            by_lane[id(lane)].append(lease)
        else:
            run = by_lane[id(lane)] = [lease]
            runs.append(run)
    return runs
