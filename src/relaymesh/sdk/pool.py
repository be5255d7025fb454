"""The worker pool: a bounded number of threads that run handlers.

It starts with `core` threads at the first delivery. It grows to `max` while deliveries wait for a thread, or
to one thread per handler if there are more handlers. Each handler has one outstanding receive at a time, so
no thread only waits. Deliveries of one lane that came together run one after the other, in one thread.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from relaymesh.errors import InvalidSettings, LeaseLost, MeshError, UnknownRecipient, Unreachable
from relaymesh.kernel.bounds import shown, whole
from relaymesh.kernel.commands import Release
from relaymesh.kernel.deliveries import NO_LANE, Deliveries
from relaymesh.sdk.agent import Handler, Inbox
from relaymesh.sdk.delivery import Delivery
from relaymesh.sdk.handed import AnyDelivery
from relaymesh.sdk.handlers import NO_LIMITS, Limits, finished
from relaymesh.sdk.hooks import call_hooks
from relaymesh.sdk.session import Arrival, Pull
from relaymesh.sdk.time_limit import TimeLimit, call_within
from relaymesh.wire.parameters import DEFAULTS

if TYPE_CHECKING:
    from relaymesh.sdk.mesh import Mesh

log = logging.getLogger("relaymesh.sdk")

CORE_DEFAULT = DEFAULTS.thread_pool_core
MAX_DEFAULT = DEFAULTS.thread_pool_max
IDLE_S = 10.0
JOIN_S = 0.1
"""How long a close waits for a thread before it checks whether to stop waiting."""
WORKERS_MAX = 10_000


def worker_counts(workers: Any) -> tuple[int, int] | None:
    """How many handlers run at first, and at most; None: the settings of the node."""
    if workers is None:
        return None
    try:
        if type(workers) not in (tuple, list) or len(workers) != 2:
            raise InvalidSettings(f"workers must be two numbers, at first and at most, not {shown(workers)}")
        core = whole(workers[0], "workers[0]", 1, WORKERS_MAX, InvalidSettings)
        return core, whole(workers[1], "workers[1]", core, WORKERS_MAX, InvalidSettings)
    except InvalidSettings as error:
        hint = "how many handlers may run, at first and at most, such as workers=(4, 8)"
        raise InvalidSettings(error.message, hint=hint) from None


class Route:
    """One handler and its deliveries."""

    def __init__(
        self,
        inbox: Inbox,
        handler: Handler,
        limits: Limits,
        arrived: Callable[[Route, Deliveries, MeshError | None], None],
    ) -> None:
        self.inbox = inbox
        self.handler = handler
        self.limits = limits
        self.in_hand = 0
        self.asking = False
        """A receive for it is outstanding, or about to be."""
        self.asked = 0
        """How many deliveries the last receive may bring."""
        self.pull: Pull | None = None
        self.arrived: Arrival = partial(arrived, self)
        self.waits = False
        """It could not pull because no worker was free; it pulls again when one is."""


Job = tuple[Route, list[Delivery]]


class WorkerPool:
    """Threads that run handlers. `inline`: no threads; `drain` runs what is queued in the caller's thread."""

    def __init__(self, mesh: Mesh, core: int, max: int, *, inline: bool = False) -> None:
        self._mesh = mesh
        self._core = core
        self._max = max
        self._inline = inline
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._routes: list[Route] = []
        self._threads: set[threading.Thread] = set()
        self._working: dict[int, list[Delivery]] = {}
        """By thread: the deliveries that it works on."""
        self._settling: set[int] = set()
        """Threads that settle the last delivery of their job: each can take another one in a moment."""
        self._kept: dict[int, Job] = {}
        """By thread: the job that it takes next. It was granted by the settle of the one before."""
        self._idle = 0
        self._lock = threading.Lock()
        self._closing = False
        self._closed = False

    @property
    def threads(self) -> int:
        return len(self._threads)

    def resize(self, core: int, max: int) -> None:
        """Set the number of threads, at first and at most. Running handlers go on."""
        with self._lock:
            grown = max > self._max
            self._core, self._max = core, max
            hungry = list(self._routes) if grown else []
        for route in hungry:
            self._pull_again(route)
        self._grow()

    def serve(self, inbox: Inbox, handler: Handler, limits: Limits = NO_LIMITS) -> None:
        """Run the handler for everything the inbox gets, until the mesh closes."""
        self._mesh._follower.begin()
        route = Route(inbox, handler, limits, self._arrived)
        self._routes.append(route)
        self._pull(route)

    # -- deliveries come in

    def _pull(self, route: Route) -> None:
        """Pull as many deliveries as the route may still hold. A route without deliveries may always pull
        one."""
        with self._lock:
            room = 0 if self._closing or route.asking else self._room_for(route)
            route.waits = room == 0 and not route.asking
            if room == 0:
                return
            route.asking, route.asked = True, room
        try:
            route.pull = self._mesh._session.pull(route.inbox.address, room, route.arrived)
        except BaseException:
            route.asking = False
            raise

    def _pull_again(self, route: Route) -> None:
        """Pull more. A route whose subscription has ended is dropped; the others continue."""
        try:
            self._pull(route)
        except UnknownRecipient as error:
            with self._lock:
                self._routes = [each for each in self._routes if each is not route]
            log.info("a handler ends with its mailbox: %s", error)

    def _room_for(self, route: Route) -> int:
        """One worker is kept for every route, so that a handler that hangs does not stop the other routes."""
        own = max(0, route.limits.most_of(self._max) - route.in_hand)
        if len(self._routes) == 1 or own == 0:
            return own
        taken = sum([max(1, each.in_hand + each.asking) for each in self._routes])
        return 1 if route.in_hand == 0 or taken < self._most else 0

    @property
    def _most(self) -> int:
        return max(self._max, len(self._routes))

    def _arrived(self, route: Route, got: Deliveries, error: MeshError | None) -> None:
        """Called by the thread that committed the grant: it only queues, and never runs handlers. Leases of
        queued deliveries are renewed.
        """
        with self._lock:
            route.asking = False
            route.in_hand += len(got)
        if error is not None or self._closing:
            return
        deliveries = route.inbox._deliveries(got)
        for delivery in deliveries:
            if not delivery.settled:
                self._mesh._renewer.add(delivery)
        jobs = [(route, run) for run in runs_of(deliveries)]
        thread = threading.get_ident()
        if len(got) == 1 < route.asked and thread in self._settling and self._jobs.empty():
            self._kept[thread] = jobs[0]  # nothing else waits: the thread goes on, and no other need wake
            return
        for job in jobs:
            self._jobs.put(job)
        self._grow()

    def _grow(self) -> None:
        with self._lock:
            if self._inline or self._closing:
                return
            waiting = self._jobs.qsize() - self._idle
            wanted = min(self._most, max(self._core, len(self._threads) + waiting))
            while len(self._threads) < wanted:
                thread = threading.Thread(target=self._work, name="relaymesh-worker", daemon=True)
                self._threads.add(thread)
                thread.start()

    # -- deliveries are handled

    def _work(self) -> None:
        thread = threading.get_ident()
        try:
            while True:
                job = self._kept.pop(thread, None)
                if job is None:
                    try:
                        job = self._next_job()
                    except queue.Empty:
                        if len(self._threads) > self._core:
                            return
                        continue
                if job is None:
                    return
                self._run_job(*job)
                if len(self._threads) > self._most:
                    return
        except Exception as error:
            log.debug("a worker ends with the mesh: %s", error)
        finally:
            self._threads.discard(threading.current_thread())

    def _next_job(self) -> Job | None:
        """Wait for a job; None: the pool is closing. Raises `queue.Empty` if no job came."""
        with self._lock:
            self._idle += 1
        try:
            return self._jobs.get(timeout=IDLE_S)
        finally:
            with self._lock:
                self._idle -= 1

    def drain(self) -> int:
        """Run what is queued, in this thread. Returns how many deliveries."""
        done = 0
        while True:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return done
            if job is not None:
                done += len(job[1])
                self._run_job(*job)

    def _run_job(self, route: Route, run: list[Delivery]) -> None:
        """Run them one after the other. Those that a failure sent back are skipped: they are delivered again
        later.
        """
        thread = threading.get_ident()
        self._working[thread] = run
        try:
            self._pull_again(route)
            for delivery in run:
                if delivery._held and not self._closed:
                    self._run_one(route, delivery, delivery is run[-1])
        finally:
            self._working.pop(thread, None)
            for delivery in run:
                self._mesh._renewer.discard(delivery)
            with self._lock:
                route.in_hand -= len(run)
                hungry = [each for each in self._routes if each.waits and each is not route]
            for each in (route, *hungry):
                self._pull_again(each)

    def _run_one(self, route: Route, delivery: Delivery, is_last: bool) -> None:
        """Run the handler once. The worker ends with the mesh, not with what a handler raises."""
        hooks, error = self._mesh.hooks, None
        thread = threading.get_ident()
        try:
            with delivery:
                try:
                    if hooks.present:
                        call_hooks(hooks._beginning(delivery), may_end=True)
                    self._call(route, delivery)
                    if is_last and not hooks.present and not self._inline:
                        self._settling.add(thread)
                except Exception as raised:
                    error = raised
                    raise
        except Exception as raised:
            error = raised
            self._failed(raised)
        finally:
            self._settling.discard(thread)
        if hooks.present:
            call_hooks(hooks._ending(delivery, error))

    def _call(self, route: Route, delivery: Delivery) -> None:
        seconds = route.limits.time_limit
        if seconds is None:
            result = route.handler(delivery)
            if inspect.isawaitable(result):
                result = asyncio.run(finished(result))
        else:
            with self._mesh._renewer.watch(TimeLimit(delivery, seconds, self._mesh._session.now())) as limit:
                result = call_within(limit, route.handler)
        if not delivery._settled:
            delivery._take_result(result)

    def _failed(self, error: Exception) -> None:
        """A handler raised this. The nack has recorded, logged and counted it."""
        if self._mesh._session.failure is not None:
            raise error
        if isinstance(error, (LeaseLost, Unreachable)):
            log.warning("%s", error)

    def close(self, timeout: float | None, cut_short: Callable[[], bool] = lambda: False) -> None:
        """Stop receiving; let running handlers finish within the time, and give back the other deliveries.
        `cut_short` is called repeatedly: True ends the wait. If interrupted, it stops waiting for handlers
        and still gives their deliveries back. A second call does nothing.
        """
        if self._closing:
            return
        self._closing = True
        unbegun: list[Delivery] = []
        try:
            self._forgo_pulls()
            while not self._jobs.empty():
                job = self._jobs.get_nowait()
                unbegun.extend([] if job is None else job[1])
            unbegun += self._take_kept()
            self._join_threads(timeout, cut_short)
        finally:
            self._closed = True
            self._give_back(unbegun)

    def _take_kept(self) -> list[Delivery]:
        """Deliveries that threads have taken and not begun."""
        jobs = [self._kept.pop(thread, None) for thread in list(self._kept)]
        return [delivery for job in jobs if job is not None for delivery in job[1]]

    def _forgo_pulls(self) -> None:
        for route in self._routes:
            if route.asking and route.pull is not None:
                try:
                    route.pull.forgo()
                except MeshError:
                    return

    def _join_threads(self, timeout: float | None, cut_short: Callable[[], bool]) -> None:
        with self._lock:
            threads = [each for each in self._threads if each is not threading.current_thread()]
        for _ in threads:
            self._jobs.put(None)
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        for thread in threads:
            while thread.is_alive() and not cut_short() and (left := deadline - time.monotonic()) > 0:
                thread.join(min(left, JOIN_S))

    def _give_back(self, unbegun: list[Delivery]) -> None:
        """Give back deliveries that were not started, and those that other threads have not finished."""
        own = threading.get_ident()
        late = [run for thread, run in list(self._working.items()) if thread != own]
        unbegun = [*unbegun, *self._take_kept()]
        if late:
            log.warning("%d handlers did not finish in time; their deliveries go back", len(late))
        deliveries = [*unbegun, *(delivery for run in late for delivery in run)]
        for delivery in deliveries:
            self._mesh._renewer.discard(delivery)
        tokens = [delivery._token for delivery in deliveries if not delivery._settled]
        if tokens:
            try:
                self._mesh._session.execute(Release(tokens))
            except MeshError as error:
                log.debug("deliveries were not given back: %s", error)


def runs_of(deliveries: list[AnyDelivery]) -> list[list[AnyDelivery]]:
    """Group deliveries that came together: those of one lane together in order, all others alone."""
    runs: list[list[AnyDelivery]] = []
    by_lane: dict[int, list[AnyDelivery]] = {}
    for delivery in deliveries:
        lane = delivery._lane
        if lane == NO_LANE:
            runs.append([delivery])
        elif lane in by_lane:
            by_lane[lane].append(delivery)
        else:
            run = by_lane[lane] = [delivery]
            runs.append(run)
    return runs
