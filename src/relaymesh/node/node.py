"""A node: one core and the background work around it.

Owns the directory, the clock and the background threads. Decides nothing about messages.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import cast

from relaymesh.errors import Closed, StoreLagging
from relaymesh.journal import Disk, Mirror
from relaymesh.kernel.commands import Request, Result, Start, Stop
from relaymesh.kernel.kernel import Kernel
from relaymesh.kernel.looks import delayed_count
from relaymesh.node.checkpointing import Checkpointing
from relaymesh.node.clock import Clock, MeshTime, SuspendGuard, SystemClock
from relaymesh.node.core import Core, JournalPort, NullJournal
from relaymesh.node.daily import Daily
from relaymesh.node.housekeeping import Housekeeping
from relaymesh.node.intake import Intake
from relaymesh.node.letter_archive import LetterArchive
from relaymesh.node.opening import STORE_FILE, Opened, first_state, open_directory
from relaymesh.node.originals import Originals
from relaymesh.node.own import own_directory
from relaymesh.node.projector import InlineProjector, Projector
from relaymesh.node.rng import Rng, system_rng
from relaymesh.node.sent import Refusals
from relaymesh.node.settings import MeshSettings
from relaymesh.node.stats import stats_of
from relaymesh.wire.housekeeping import Checkpoint, Stats
from relaymesh.wire.ids import IdMint
from relaymesh.wire.records import ENCODERS

log = logging.getLogger("relaymesh.node")


class Node:
    """An open mesh directory, or a mesh in memory. `close` it; otherwise the next start replays more."""

    def __init__(
        self,
        path: Path | None,
        settings: MeshSettings,
        *,
        clock: Clock | None = None,
        rng: Rng | None = None,
        disk: Disk | None = None,
        mirror: Mirror | None = None,
        background: bool = True,
    ) -> None:
        """`background=False`: no threads; the caller lets time pass with `tend`. `mirror` belongs to a given
        `disk`.
        """
        self.path = path
        self.settings = settings
        self.clock = clock or SystemClock()
        self.rng = rng or system_rng()
        self.closed = False
        self._closing = threading.Lock()
        self._minting = threading.Lock()
        self.opened: Opened | None = None
        journal: JournalPort
        if settings.durability == "memory":
            state, epoch = first_state(), 1
            journal = NullJournal(state.sequence)
        else:
            if disk is None:
                assert path is not None
                disk, mirror = own_directory(path, settings)
            store_path = None if path is None else path / STORE_FILE
            self.opened = open_directory(
                disk, store_path, settings, mirror, now_ns=self.clock.wall_ms() * 1_000_000
            )
            disk = self.opened.disk
            state, epoch, journal = self.opened.state, self.opened.epoch, self.opened.writer
        self.disk = disk
        state.admitted.remembered_max = settings.remembered_ids_max
        self.time = MeshTime(self.clock, state.now)
        self.mint = IdMint(self.rng)
        self.store = self.opened.store if self.opened else None
        self.projector = self._projector(background)
        self.core = Core(
            Kernel(self.rng.random, state, ENCODERS),
            journal,
            self.time,
            waits_for_sync=settings.durability == "synced",
            project=None if self.projector is None else self.projector.offer,
        )
        self.originals, self.refusals = Originals(self.core, disk), Refusals(self.time)
        self.prepare = Intake(self.core, settings, self.store, self.projector, path).prepare
        self._checkpointing = Checkpointing(
            self.core,
            None if settings.durability == "memory" else disk,
            settings,
            self.projector,
            self.opened.segments if self.opened is not None else 0,
            background=background,
        )
        self._housekeeping = self._housekeeper(background)
        try:
            self.core.execute(Start(epoch), durable=True)
        except BaseException:
            self.close(force=True)
            raise
        if background:
            self._housekeeping.start()

    def _projector(self, background: bool) -> Projector | InlineProjector | None:
        if self.store is None:
            return None
        kind = Projector if background else InlineProjector
        return kind(self.store, now_ms=self.time.now, lag_max=self.settings.store_lag_max)

    def _housekeeper(self, background: bool) -> Housekeeping:
        drop_segments = self._checkpointing.drop_old_segments
        return Housekeeping(
            self.core,
            self.settings,
            self.store,
            SuspendGuard(self.clock, self.time),
            self._checkpointing,
            Daily(self.core, self.settings, LetterArchive(self.disk), drop_segments),
            background=background,
        )

    def new_ids(self, count: int) -> list[str]:
        with self._minting:
            return self.mint.mint(self.time.now(), count)

    def answer(self, request: Request[Result]) -> Result:
        """Answer a request to the node itself: see `relaymesh.wire.housekeeping`."""
        if isinstance(request, Stats):
            return cast("Result", self.core.read(lambda kernel: stats_of(self, kernel)))
        assert isinstance(request, Checkpoint), f"no node answers {request!r}"
        return cast("Result", self.checkpoint())

    def tend(self) -> float:
        """Do what is due; answers how many seconds nothing will be."""
        return self._housekeeping.tend()

    def checkpoint(self) -> int | None:
        """Write the whole state, so that a start need not replay what lies before it. One at a time."""
        return self._checkpointing.take()

    def catch_up(self, seconds: float) -> None:
        """Return when everything decided so far is durable and in the store. Waits for the disk twice."""
        if self.core.unsynced:
            self.core.sync()
        if self.projector is not None and not self.projector.drain(seconds):
            raise StoreLagging("the store has not caught up with the journal")

    @property
    def mirror_state(self) -> str | None:
        """`in step`, `behind N bytes`, `catching up` or `lost: why`; None without a mirror."""
        return self.opened.writer.mirror_state if self.opened is not None else None

    # -- the end ------------------------------------------------------------------------------

    def close(self, *, force: bool = False) -> None:
        """Stop: give deliveries back, flush, and release the directory. A second call does nothing.

        `force` skips the flush of what no caller waits for; a mesh in memory then logs what it dropped.
        """
        with self._closing:
            if self.closed:
                return
            self.closed = True
        if self.core.forked:
            return  # everything here is the parent's
        self._housekeeping.stop()
        try:
            self._housekeeping.join_daily(60)
            self._checkpointing.join(60)
            if self.core.failure is None:
                self._stop(force)
        finally:
            self.core.shut(Closed("this mesh is closed"))
            self._housekeeping.join(5)
            if self.projector is not None:
                self.projector.close(timeout=30)
            if self.store is not None:
                self.store.close()
            self.core.journal.close()

    def _stop(self, force: bool) -> None:
        if force:
            delayed = self.core.read(delayed_count)
            if delayed and self.settings.durability == "memory":
                log.warning("forced exit: %d delayed messages are dropped", delayed)
            return
        forced = self.core.execute(Stop(self.settings.deliver_delayed_on_stop), durable=True)
        if forced:
            log.info("delivered %d delayed messages at the stop", forced)
        self.core.sync()
