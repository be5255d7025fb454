"""A node: one core and the background work around it.

It owns the directory, the clock and the background threads. It decides nothing about messages.
"""

from __future__ import annotations

import logging
import threading
from functools import partial
from pathlib import Path
from typing import cast

from relaymesh.errors import Closed, InvalidSettings, StoreLagging
from relaymesh.journal import Disk, Mirror
from relaymesh.journal.layout import take_lock
from relaymesh.kernel.commands import Start, Stop
from relaymesh.kernel.kernel import Kernel
from relaymesh.kernel.looks import delayed_count
from relaymesh.kernel.query import ShowWorkflow
from relaymesh.kernel.request import Request, Result
from relaymesh.kernel.tasks.stored import WorkflowView
from relaymesh.node.advancing import Advancing
from relaymesh.node.checkpointing import Checkpointing
from relaymesh.node.clock import Clock, MeshTime, SuspendGuard, SystemClock
from relaymesh.node.core import Core, JournalPort, NullJournal
from relaymesh.node.daily import Daily
from relaymesh.node.disk import RealDisk
from relaymesh.node.growing import Growing
from relaymesh.node.housekeeping import Housekeeping
from relaymesh.node.intake import Intake
from relaymesh.node.letter_archive import LetterArchive
from relaymesh.node.letter_reports import LetterReports, find_report
from relaymesh.node.old_letters import OldLetters
from relaymesh.node.opening import STORE_FILE, Opened, first_state, open_directory
from relaymesh.node.originals import Originals
from relaymesh.node.own import own_directory
from relaymesh.node.payloads import Payloads
from relaymesh.node.projector import InlineProjector, Projector
from relaymesh.node.purging import Purging
from relaymesh.node.rerun import Rerun
from relaymesh.node.rng import Rng, system_rng
from relaymesh.node.schedules import Schedules
from relaymesh.node.sent import Refusals
from relaymesh.node.settings import MeshSettings
from relaymesh.node.stats import stats_of
from relaymesh.node.tasks import Tasks
from relaymesh.node.tuning import OF_SETTINGS, Given, Tuning, with_code
from relaymesh.node.workflows import Workflows
from relaymesh.wire.housekeeping import Checkpoint, Stats
from relaymesh.wire.ids import IdMint
from relaymesh.wire.letter_report import FindReport
from relaymesh.wire.parameters import Parameters
from relaymesh.wire.records import ENCODERS
from relaymesh.wire.retention import PreviewPurge, Purge

DAY_MS = 86_400_000

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
        given: Given | None = None,
    ) -> None:
        """`background=False`: no threads; the caller calls `tend` when time has passed. `mirror` belongs to a
        given `disk`. `given`: the values that take precedence over the settings file.
        """
        self.path = path
        self.settings = settings
        self.clock = clock or SystemClock()
        self._given = with_code(given or Given(), settings)
        self.rng = rng or system_rng()
        self.closed = False
        self.background = background
        self._closing = threading.Lock()
        self._minting = threading.Lock()
        kernel, epoch, journal = self._open_journal(disk, mirror)
        disk, state = self.disk, kernel.state
        state.admitted.remembered_max = settings.remembered_ids_max
        self.time = MeshTime(self.clock, state.now)
        self.mint = IdMint(self.rng)
        self.store = self.opened.store if self.opened else None
        self.projector = self._projector(background)
        self.core = Core(
            kernel,
            journal,
            self.time,
            waits_for_sync=settings.durability == "synced",
            project=None if self.projector is None else self.projector.offer,
        )
        self.workflows = Workflows(self.new_ids, self._find_workflow, self.values)
        self.refusals = Refusals(self.time)
        intake = Intake(self.core, settings, self.store, self.projector, path)
        self.prepare = intake.prepare
        files = None if settings.durability == "memory" else disk
        self.payloads = Payloads(files, intake.require_capacity, settings.inline_bytes_max)
        self.originals = Originals(self.core, disk, self.payloads)
        self._open_tasks(intake, files)
        self._checkpointing = Checkpointing(
            self.core,
            files,
            settings,
            self.projector,
            self.opened.segments if self.opened is not None else 0,
            background=background,
        )
        self._letters = OldLetters(self.core, LetterArchive(disk, self.payloads.get))
        self.purging = Purging(self.core, settings, self._letters, self.projector, self.store, self.values)
        self._apply_values()
        self.tuning.on_load.insert(0, lambda _: self._apply_values())
        self._housekeeping = self._housekeeper(background)
        try:
            self.core.execute(Start(epoch), durable=True)
        except BaseException:
            self.close(force=True)
            raise
        if background:
            self._housekeeping.start()

    def _open_journal(self, disk: Disk | None, mirror: Mirror | None) -> tuple[Kernel, int, JournalPort]:
        """The restored kernel, its next epoch, and the journal for records."""
        path, settings = self.path, self.settings
        self.disk = disk
        self.opened: Opened | None = None
        if settings.durability == "memory":
            self.tuning = Tuning(self._given, None, self.clock.wall_ms)
            state = first_state()
            return Kernel(self.rng.random, state, ENCODERS), 1, NullJournal(state.sequence)
        if disk is None:
            assert path is not None
            disk, mirror = own_directory(path, settings)
        self.tuning = self._tuned(disk)
        store_path = None if path is None else path / STORE_FILE
        opened = self.opened = open_directory(
            disk, store_path, settings, mirror, now_ns=self.clock.wall_ms() * 1_000_000
        )
        self.disk = opened.disk
        self.tuning.begin_history(None if path is None else RealDisk(path))
        return Kernel(self.rng.random, opened.state, ENCODERS), opened.epoch, opened.writer

    def _tuned(self, disk: Disk) -> Tuning:
        """The settings. Only the process that has the directory refuses wrong ones: other processes use
        its node."""
        try:
            return Tuning(self._given, self.path, self.clock.wall_ms)
        except InvalidSettings:
            take_lock(disk).release()
            raise

    def values(self) -> Parameters:
        """The current settings."""
        return self.tuning.values

    def _apply_values(self) -> None:
        """Pass the values to the parts that keep their own copy."""
        values = self.values()
        keys_ms = int(values.idempotency_ttl_days * DAY_MS)
        if self.store is not None:
            self.store.history_ms = int(values.done_retention_days * DAY_MS)
            self.store.keys_ms = keys_ms
        self.core.read(lambda kernel: kernel.keep_keys(keys_ms))

    def _open_tasks(self, intake: Intake, files: Disk | None) -> None:
        """The parts that run tasks. `files`: the disk of the journal; None: there is none."""
        core, new_ids, payloads = self.core, self.new_ids, self.payloads
        self.advancing = Advancing(core, new_ids, payloads, self.values)
        self.tasks = Tasks(core, self.store, intake.require_capacity, payloads, self.disk)
        self.schedules = Schedules(core, self.workflows, new_ids, intake, self.tasks)
        self.rerun = Rerun(core, files, self.tasks.show, new_ids, payloads)
        self.growing = Growing(lambda query: core.read(lambda kernel: kernel.look(query)), self.values)

    def _projector(self, background: bool) -> Projector | InlineProjector | None:
        if self.store is None:
            return None
        kind = Projector if background else InlineProjector
        return kind(self.store, now_ms=self.time.now, lag_max=self.settings.store_lag_max)

    def _housekeeper(self, background: bool) -> Housekeeping:
        reports = LetterReports(self.core, self._reports, self.settings.report_days)
        return Housekeeping(
            self.core,
            self.settings,
            self.store,
            SuspendGuard(self.clock, self.time),
            self._checkpointing,
            Daily(self.core, self.settings, self._letters, reports, self._drop_old),
            self.advancing,
            self.schedules,
            self.tuning,
            background=background,
        )

    @property
    def _reports(self) -> Disk | None:
        """The daily reports of dead letters. A mesh in memory has none, and neither has a simulated one."""
        return None if self.path is None or self.opened is None else RealDisk(self.path)

    def _drop_old(self) -> None:
        self._checkpointing.drop_old_segments()
        self.sweep_payloads()

    def sweep_payloads(self) -> list[str]:
        """Remove payload files that nothing names; returns their names. May take long."""
        payloads, stored = self.payloads, set if self.store is None else self.store.payloads
        payloads.read_names()
        sweep = partial(payloads.sweep, self.core.write, stored, self.time.wall_ns())
        return self._checkpointing.alone(sweep)

    def new_ids(self, count: int) -> list[str]:
        with self._minting:
            return self.mint.mint(self.time.now(), count)

    def _find_workflow(self, query: ShowWorkflow) -> WorkflowView | None:
        return self.core.read(lambda kernel: kernel.look(query))

    def answer(self, request: Request[Result]) -> Result:
        """Answer a request to the node itself: see `relaymesh.wire.housekeeping`."""
        if isinstance(request, Stats):
            return cast("Result", self.core.read(lambda kernel: stats_of(self, kernel)))
        if isinstance(request, PreviewPurge):
            return cast("Result", self.purging.preview(request))
        if isinstance(request, Purge):
            return cast("Result", self.purging.purge(request))
        if isinstance(request, FindReport):
            reports = self._reports
            return cast("Result", None if reports is None else find_report(reports, request.day))
        if isinstance(request, OF_SETTINGS):
            return cast("Result", self.tuning.answer(request))
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

        `force` skips the sync of records for which no caller waits; a mesh in memory then logs what it
        dropped.
        """
        with self._closing:
            if self.closed:
                return
            self.closed = True
        if self.core.forked:
            return  # everything here is the parent's
        self._housekeeping.stop()
        try:
            self._housekeeping.end_daily(60)
            self._checkpointing.end(60)
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
