"""Lease renewal, so that a long model call is not delivered twice. Also the end of time limits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from relaymesh.errors import LeaseLost, MeshError
from relaymesh.kernel.bounds import LEASE_MS_MAX
from relaymesh.kernel.commands import ExtendAll, Nack
from relaymesh.sdk.async_delivery import AsyncDelivery
from relaymesh.sdk.delivery import Delivery
from relaymesh.sdk.session import AsyncSession, Session
from relaymesh.sdk.time_limit import TimeLimit
from relaymesh.wire.parameters import DEFAULTS
from relaymesh.wire.tasks import is_step

log = logging.getLogger("relaymesh.sdk")

LOOK_EVERY_S = 0.5
"""How often to check for leases to renew; four times within the shortest lease if that is more often."""
RENEW_BELOW = 2 / 3
"""A lease is renewed to its full length when less than this share of it is left."""


class Beat:
    """The lease of a step is renewed at least every `ms`: `lease_heartbeat_ms`.

    All leases that are due are one call, which writes no record.
    """

    __slots__ = ("ms",)

    def __init__(self) -> None:
        self.ms = DEFAULTS.lease_heartbeat_ms


class _Held:
    __slots__ = ("_beat", "delivery", "length_ms")

    def __init__(self, delivery: Any, length_ms: int, beat: Beat) -> None:
        self.delivery = delivery
        self.length_ms = max(1, length_ms)
        self._beat = beat if is_step(delivery._envelope) else None

    @property
    def renew_below_ms(self) -> float:
        share = self.length_ms * RENEW_BELOW
        return share if self._beat is None else max(share, self.length_ms - self._beat.ms)


class _Asked(NamedTuple):
    """A renewal that was sent; `before`: the known deadline when it was sent."""

    delivery: Any
    length_ms: int
    before: int


class _Renewing:
    """The running deliveries, and which of them need a longer lease."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._held: dict[int, _Held] = {}
        self._limits: dict[int, TimeLimit] = {}
        self._noting = threading.Lock()
        self.beat = Beat()
        self.on_first: Callable[[], None] = _nothing
        """Called when the first delivery is held."""

    def hold(self, delivery: Any) -> None:
        """Renew from now on, to the current length of the lease. Does nothing if it is already renewed."""
        if id(delivery) not in self._held:
            length_ms = min(max(1, delivery._deadline - self._now()), LEASE_MS_MAX)
            self._held[id(delivery)] = _Held(delivery, length_ms, self.beat)
            self.on_first()

    def discard(self, delivery: Any) -> None:
        self._held.pop(id(delivery), None)

    def due(self) -> list[_Asked]:
        now = self._now()
        return [
            _Asked(held.delivery, held.length_ms, held.delivery._extended)
            for held in list(self._held.values())
            if not held.delivery._settled and held.delivery._deadline - now < held.renew_below_ms
        ]

    def pause_s(self) -> float:
        shortest_ms = min([held.length_ms for held in list(self._held.values())], default=60_000)
        pause_s = min(LOOK_EVERY_S, shortest_ms / 4_000, self.beat.ms / 2_000)
        if self._limits:
            next_ms = min([limit.at for limit in list(self._limits.values())], default=0) - self._now()
            pause_s = max(0.001, min(pause_s, next_ms / 1000))
        return pause_s

    @contextlib.contextmanager
    def watch(self, limit: TimeLimit) -> Iterator[TimeLimit]:
        """End the run of a handler when its time is over."""
        self._limits[id(limit)] = limit
        self._start()
        if limit.seconds < LOOK_EVERY_S:
            self._wake()
        try:
            yield limit
        finally:
            self._limits.pop(id(limit), None)

    def _start(self) -> None:
        """Start checking leases and limits."""

    def _wake(self) -> None:
        """Check now: something is due before the next check."""

    def _overdue(self) -> list[tuple[Any, Nack]]:
        """Runs whose time is over, to be nacked now. Their leases are no longer renewed. For the handler that
        still runs, the delivery is lost: its calls on it are refused.
        """
        now, nacks = self._now(), []
        for limit in list(self._limits.values()):
            if limit.at > now:
                continue
            self._limits.pop(id(limit), None)
            delivery = limit.delivery
            to_nack = limit.expire()
            if limit.over:
                self.discard(delivery)
            if to_nack and not delivery._settled:
                delivery._lost = True
                nacks.append((delivery, delivery._table.nack(delivery._token, limit.error)))
        return nacks

    def _lose(self, delivery: Any) -> None:
        delivery._lost = True
        self.discard(delivery)
        log.warning("the lease of %s was lost while it was worked on", delivery.id)

    def extended(self, delivery: Any, deadline: int, before: int) -> None:
        """Record a deadline that the node returned; `before`: the known deadline when the request was sent.
        If another answer came meanwhile, the two answers may be in the wrong order, and the later deadline
        counts, because an extension never shortens a lease. Otherwise this deadline counts, even if it is
        earlier: a restarted node gives its remote holders one full lease from its start on.
        """
        with self._noting:
            overlapped = delivery._extended != before
            delivery._extended = max(delivery._extended, deadline) if overlapped else deadline

    def _renewed(self, asked: list[_Asked], deadlines: Sequence[int | None]) -> None:
        for each, deadline in zip(asked, deadlines, strict=True):
            if deadline is not None:
                self.extended(each.delivery, deadline, each.before)
            elif not each.delivery._settled:  # or it was settled while its renewal was sent
                self._lose(each.delivery)


def _nothing() -> None:
    return None


def _extends(asked: list[_Asked]) -> list[tuple[int, int]]:
    return [(each.delivery._token, each.length_ms) for each in asked]


class Renewer(_Renewing):
    """Renews in a thread that starts with the first delivery."""

    def __init__(self, session: Session) -> None:
        super().__init__(session.now)
        self._session = session
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._due = threading.Event()
        self._starting = threading.Lock()

    def add(self, delivery: Delivery) -> None:
        self.hold(delivery)
        if self._thread is None:
            self._start()

    def _start(self) -> None:
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="relaymesh-renewal", daemon=True)
                    self._thread.start()

    def _wake(self) -> None:
        self._due.set()

    def renew(self) -> None:
        for delivery, nack in self._overdue():
            try:
                delivery._mesh.hooks._told(nack.token, self._session.execute(nack))
            except LeaseLost as error:
                log.debug("%s: its lease ended before its time limit: %s", delivery.id, error)
        asked = self.due()
        if asked:
            self._renewed(asked, self._session.execute(ExtendAll(_extends(asked))))

    def _run(self) -> None:
        while True:
            self._due.wait(self.pause_s())
            self._due.clear()
            if self._stopping:
                return
            try:
                self.renew()
            except MeshError as error:
                if not error.retryable:
                    return
                log.warning("leases could not be renewed; the renewal is tried again: %s", error)

    def close(self) -> None:
        self._stopping = True
        self._due.set()
        self._held.clear()
        self.on_first = _nothing  # the thread may end a moment later, and must not keep the mesh in memory


class AsyncRenewer(_Renewing):
    """Renews in a task that starts with the first delivery."""

    def __init__(self, session: AsyncSession) -> None:
        super().__init__(session.now)
        self._session = session
        self._task: asyncio.Task[None] | None = None
        self._due = asyncio.Event()

    def add(self, delivery: AsyncDelivery) -> None:
        self.hold(delivery)
        if self._task is None:
            self._start()

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="relaymesh-renewal")

    def _wake(self) -> None:
        self._due.set()

    async def renew(self) -> None:
        for delivery, nack in self._overdue():
            try:
                delivery._mesh.hooks._told(nack.token, await self._session.execute(nack))
            except LeaseLost as error:
                log.debug("%s: its lease ended before its time limit: %s", delivery.id, error)
        asked = self.due()
        if asked:
            self._renewed(asked, await self._session.execute(ExtendAll(_extends(asked))))

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._due.wait(), self.pause_s())
            self._due.clear()
            try:
                await self.renew()
            except MeshError as error:
                if not error.retryable:
                    return
                log.warning("leases could not be renewed; the renewal is tried again: %s", error)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._held.clear()
