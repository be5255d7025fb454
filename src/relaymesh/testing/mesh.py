"""A mesh in which time passes only when the test says so."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from relaymesh.journal import Disk
from relaymesh.kernel.bounds import SECONDS_MAX, real
from relaymesh.kernel.moment import NEVER
from relaymesh.node.clock import Latch
from relaymesh.node.local import LocalSession
from relaymesh.node.settings import Durability, MeshSettings
from relaymesh.sdk.mesh import Mesh
from relaymesh.sdk.pool import CORE_DEFAULT, MAX_DEFAULT, WorkerPool, worker_counts
from relaymesh.sdk.renewal import AsyncRenewer, Renewer
from relaymesh.testing.clock import NS, ManualClock
from relaymesh.testing.following import ManualFollower
from relaymesh.testing.opening import manual_clock, manual_node
from relaymesh.testing.raised import Raised

WAIT_MAX_S = 86_400.0
"""How long `timeout=None` waits, in virtual time, before it is taken for a wait without end."""


class ManualMesh(Mesh):
    """`Mesh` with a manual clock and without threads: everything happens in the caller's thread.

    Where a mesh would wait, virtual time passes: `receive(timeout=5)` lets up to 5 s pass until
    something arrives, `ask` lets handlers answer, and `advance(30)` moves through every retry, lease
    and delay that falls due in 30 s. Handlers run inside these calls, one at a time, and take no time,
    unless a handler itself calls `advance` to say how long its work takes. A call that waits is not cut short
    while a handler runs inside it, and a handler that waits is not joined by others.

    In memory by default; a `path` or a `disk` (see `MemoryDisk`) keeps a journal, `synced` unless
    `durability` says otherwise. Ids and jitter follow from `seed`. For one thread only.

    `raise_errors`: what a handler raises, `Retry`, `Reject` and `Drop` excepted, is raised again by the
    call in which the handler ran, so that a failing `assert` in a handler fails the test. The mesh has dealt
    with the delivery by then, as it always does.
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
        self._raised = Raised(raise_errors)
        self.clock = manual_clock(clock)
        self._handling = False
        waiting = _WaitingClock(self.clock, self)
        self._node = manual_node(path, disk, durability, settings, seed, waiting)
        session = LocalSession(self._node)
        self._start(session, counts, inline=True)
        self._pool = _InlinePool(self, *counts, inline=True)
        self._renewing = _InlineRenewer(session)
        self._renewer = self._renewing
        self._follower = ManualFollower(self._node, self._follow)
        self._renewer.on_first = self._follower.begin

    @property
    def now(self) -> datetime:
        """Mesh time."""
        return datetime.fromtimestamp(self._node.time.now() / 1000, UTC)

    def advance(self, seconds: float = 0) -> int:
        """Let time pass, event by event, and run handlers as their deliveries come. Returns how many ran."""
        return self._pass_time(real(seconds, "seconds", 0, SECONDS_MAX), None)

    def run(self, seconds: float | None = None, *, timeout: float | None = None) -> None:
        """`advance`: there is nothing to keep running for, nor to wait for at the end."""
        self.advance(0 if seconds is None else seconds)

    def _pass_time(self, seconds: float, until: Latch | None) -> int:
        end = self.clock.elapsed_ns() + round(seconds * NS)
        ran = 0
        while True:
            ran += self._happen()
            left = end - self.clock.elapsed_ns()
            if left <= 0 or (until is not None and until.opened):
                return ran
            self.clock.advance_ns(min(left, self._quiet_ns()))

    def _happen(self) -> int:
        """Everything that is due at this moment. A handler that lets time pass is not joined by others."""
        ran = 0
        while True:
            self._renewing.renew()
            self._node.tend()
            if self._handling:
                return ran
            self._handling = True
            try:
                done = self._pool.drain()
            finally:
                self._handling = False
            self._raised.throw()
            ran += done
            if not done:
                return ran

    def _quiet_ns(self) -> int:
        """How long nothing will happen: until a timer of the kernel, or a renewal."""
        now = self._node.time.now()
        event: int = self._node.core.read(lambda kernel: kernel.next_event_at)
        return max(1, min(event, next_renewal(self._renewing)) - now) * 1_000_000


class _WaitingClock:
    """The manual clock as one mesh sees it: while it waits, its own events happen."""

    def __init__(self, clock: ManualClock, mesh: ManualMesh) -> None:
        self.wall_ms = clock.wall_ms
        self.elapsed_ns = clock.elapsed_ns
        self.awake_ns = clock.awake_ns
        self._mesh = mesh

    def wait(self, latch: Latch, seconds: float | None) -> bool:
        if not latch.opened:
            self._mesh._pass_time(WAIT_MAX_S if seconds is None else max(0.0, seconds), latch)
        return latch.opened


class _InlinePool(WorkerPool):
    """Runs handlers in the caller's thread."""

    _mesh: ManualMesh

    def _failed(self, error: Exception) -> None:
        super()._failed(error)
        self._mesh._raised.note(error)


class _InlineRenewer(Renewer):
    """Renews when asked, at the very moment a lease needs it."""

    def _start(self) -> None:
        """The mesh looks, whenever time passes."""


def next_renewal(renewer: Renewer | AsyncRenewer) -> int:
    """Mesh time of the next renewal, or end of a time limit."""
    moments = [held.delivery._deadline - int(held.renew_below_ms) + 1 for held in renewer._held.values()]
    return min([*moments, *(limit.at for limit in renewer._limits.values())], default=NEVER)
