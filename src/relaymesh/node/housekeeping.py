"""Housekeeping of a node: what falls due while there are no calls, schedules, idle syncs, old ids,
checkpoints, and the daily work.
"""

from __future__ import annotations

import logging
import threading
from functools import partial

from relaymesh.errors import MeshError
from relaymesh.journal.bell import Bell
from relaymesh.kernel.commands import Tick
from relaymesh.kernel.kernel import Kernel
from relaymesh.node.advancing import Advancing
from relaymesh.node.checkpointing import Checkpointing
from relaymesh.node.clock import SuspendGuard
from relaymesh.node.core import Core
from relaymesh.node.daily import Daily
from relaymesh.node.schedules import Schedules
from relaymesh.node.settings import MeshSettings
from relaymesh.node.side_work import SideWork
from relaymesh.node.tuning import Tuning
from relaymesh.store import SqliteStore

__all__ = ["Housekeeping"]

log = logging.getLogger("relaymesh.node")
alert = logging.getLogger("relaymesh.alert")

HOUSEKEEPING_S = 1.0


class Housekeeping:
    """Does what is due, in its own thread or when `tend` is called."""

    def __init__(
        self,
        core: Core,
        settings: MeshSettings,
        store: SqliteStore | None,
        guard: SuspendGuard,
        checkpointing: Checkpointing,
        daily: Daily,
        advancing: Advancing,
        schedules: Schedules,
        tuning: Tuning,
        *,
        background: bool,
    ) -> None:
        self._core = core
        self._settings = settings
        self._store = store
        self._guard = guard
        self._guarding = threading.Lock()
        self._checkpointing = checkpointing
        self._daily = daily
        self._advancing = advancing
        self._schedules = schedules
        self._tuning = tuning
        self._background = background
        self._last_sync_ms = core.time.now()
        self._wake = Bell()
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._at_daily = SideWork("relaymesh-daily")
        core.on_due = self._watch_clock

    def start(self) -> None:
        """Begin the thread."""
        self._core.on_timer = self._wake.ring
        self._thread = threading.Thread(target=self._keep_house, name="relaymesh-housekeeping", daemon=True)
        self._thread.start()

    def _keep_house(self) -> None:
        while not self._stopped:
            try:
                wait_s = self.tend()
            except MeshError:
                return
            except Exception:
                log.exception("housekeeping failed; it goes on")
                wait_s = HOUSEKEEPING_S
            self._wake.wait(wait_s)

    def tend(self) -> float:
        """Do what is due; answers how many seconds nothing will be."""
        core = self._core
        now = core.time.now()
        self._watch_clock(now)
        self._tuning.poll(now)
        if core.kernel.next_event_at <= now:
            core.execute(Tick())
            self._schedules.tend(now)
        advance_at = self._advancing.tend(now)
        core.idle_sync_asked = False
        if core.unsynced and now - self._last_sync_ms >= self._sync_every_ms():
            self._last_sync_ms = now
            core.sync()
        elif core.unsynced:
            core.idle_sync_asked = True  # no call needs to wake this thread for it: the thread wakes in time
        core.read(partial(_forget, None if self._store is None else self._store.applied, now))
        self._checkpointing.begin_if_due()
        self._daily_if_due(now)
        next_at = core.arm_timer()
        next_sync_at = self._last_sync_ms + self._sync_every_ms() if core.unsynced else next_at
        advance_at = next_at if advance_at is None else advance_at
        rest_ms = min(HOUSEKEEPING_S * 1000, self._tuning.values.reclaim_scan_interval_ms)
        soonest = min(next_at, next_sync_at, advance_at, now + rest_ms)
        return max(0.0, (soonest - now) / 1000)

    def _sync_every_ms(self) -> int:
        settings = self._settings
        if settings.durability == "batched":
            return 0 if self._core.unsynced >= settings.batch_events else settings.batch_ms
        return settings.idle_sync_ms

    def _watch_clock(self, now: int) -> None:
        """After a suspend, holders that were suspended too get one round to renew before their leases end."""
        with self._guarding:
            event = self._guard.look()
            pause_ms = self._tuning.values.reclaim_scan_interval_ms
            if event is not None:
                self._core.read(lambda kernel: kernel.pause_reclaim(now + pause_ms))
        if event is not None:
            alert.warning("%s: no lease is reclaimed for %d ms", event, pause_ms)

    def _daily_if_due(self, now: int) -> None:
        if self._at_daily.running or not self._daily.due(now):
            return
        if self._background:
            self._at_daily.begin(self._daily.run)
        else:
            self._daily.run()

    def stop(self) -> None:
        """Start nothing more: the mesh closes."""
        self._stopped = True
        self._wake.ring()
        self._daily.stop()

    def end_daily(self, seconds: float) -> None:
        """Wait for running daily work: it ends after its current portion of letters."""
        self._at_daily.end(seconds)

    def join(self, seconds: float) -> None:
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(seconds)


def _forget(applied: int | None, now: int, kernel: Kernel) -> None:
    """Ids and ended tasks that the store has, up to the sequence `applied`. None: there is no store."""
    if applied is not None:
        kernel.state.admitted.forget(applied, now)
    kernel.state.board.forget(applied, now)
