"""A mesh in which time passes only when the test says so."""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime
from pathlib import Path

from relaymesh.errors import InvalidSettings
from relaymesh.journal import Disk
from relaymesh.kernel.bounds import SECONDS_MAX, TOKEN_MAX, real, shown, whole
from relaymesh.kernel.timers import NEVER
from relaymesh.node.clock import Latch
from relaymesh.node.local import LocalSession
from relaymesh.node.node import Node
from relaymesh.node.settings import Durability, MeshSettings, directory
from relaymesh.sdk.delivery import Delivery
from relaymesh.sdk.mesh import Mesh
from relaymesh.sdk.place import settings_of
from relaymesh.sdk.pool import CORE_DEFAULT, MAX_DEFAULT, worker_counts
from relaymesh.sdk.renewal import RENEW_BELOW, Renewer
from relaymesh.testing.clock import NS, ManualClock

WAIT_MAX_S = 86_400.0
"""How long `timeout=None` waits, in virtual time, before it is taken for a wait without end."""


class ManualMesh(Mesh):
    """`Mesh` with a manual clock and without threads: everything happens in the caller's thread.

    Where a mesh would wait, virtual time passes: `receive(timeout=5)` lets up to 5 s pass until
    something arrives, `ask` lets handlers answer, and `advance(30)` moves through every retry, lease
    and delay that falls due in 30 s. Handlers run inside these calls, one at a time, and take no time,
    unless a handler itself calls `advance` to say how long its work takes.

    In memory by default; a `path` or a `disk` (see `MemoryDisk`) keeps a journal, `synced` unless
    `durability` says otherwise. Ids and jitter follow from `seed`. For one thread only.
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
    ) -> None:
        if settings is None and durability is None and path is None and disk is None:
            durability = "memory"
        settings = settings_of(settings, durability)
        if path is None and disk is None and settings.durability != "memory":
            raise InvalidSettings(
                f"durability is {settings.durability!r}, and there is no journal to write to",
                hint="pass a path, or a disk such as MemoryDisk()",
            )
        if disk is not None and not callable(getattr(disk, "make_folder", None)):
            raise InvalidSettings(f"disk must be a disk such as MemoryDisk(), not {shown(disk)}")
        counts = worker_counts(workers)
        if clock is not None and not isinstance(clock, ManualClock):
            raise InvalidSettings(f"clock must be a ManualClock, not {shown(clock)}")
        self.clock = ManualClock() if clock is None else clock
        self._handling = False
        in_memory = path is None or settings.durability == "memory"
        place = None if in_memory else Path(directory(path, "path"))
        self._node = Node(
            place,
            settings,
            clock=_WaitingClock(self.clock, self),
            rng=random.Random(whole(seed, "seed", -TOKEN_MAX, TOKEN_MAX)),
            disk=disk,
            background=False,
        )
        session = LocalSession(self._node)
        self._start(session, counts, inline=True)
        self._renewing = _InlineRenewer(session)
        self._renewer = self._renewing

    @property
    def now(self) -> datetime:
        """Mesh time."""
        return datetime.fromtimestamp(self._node.time.now() / 1000, UTC)

    def advance(self, seconds: float = 0) -> int:
        """Let time pass, event by event, and run handlers as their deliveries come. Answers how many ran."""
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
            ran += done
            if not done:
                return ran

    def _quiet_ns(self) -> int:
        """How long nothing will happen: until a timer of the kernel, or a renewal."""
        now = self._node.time.now()
        event: int = self._node.core.read(lambda kernel: kernel.next_event_at)
        return max(1, min(event, self._renewing.next_at) - now) * 1_000_000


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


class _InlineRenewer(Renewer):
    """Renews when asked, at the very moment a lease needs it."""

    def add(self, delivery: Delivery) -> None:
        self.hold(delivery)

    @property
    def next_at(self) -> int:
        """Mesh time of the next renewal."""
        moments = [
            held.delivery._lease.deadline - int(held.length_ms * RENEW_BELOW) + 1
            for held in self._held.values()
        ]
        return min(moments, default=NEVER)
