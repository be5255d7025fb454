"""A node: one core and everything that has to be done beside it.

Owns the directory, the clock and the background threads. Decides nothing about messages.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import apsw

from relaymesh.errors import Closed, DiskFloor, MeshError, PayloadTooLarge, StoreLagging
from relaymesh.journal import Disk, Mirror, archive_behind, write_checkpoint
from relaymesh.journal.bell import Bell
from relaymesh.kernel.commands import Publish, Request, Result, Start, Stop, Tick
from relaymesh.kernel.dedup import Seen, topic_target
from relaymesh.kernel.envelope import Envelope, size_of
from relaymesh.kernel.kernel import Kernel
from relaymesh.kernel.looks import delayed_count
from relaymesh.kernel.snapshot import Snapshot
from relaymesh.node.clock import Clock, MeshTime, SuspendGuard, SystemClock
from relaymesh.node.core import Core, JournalPort, NullJournal
from relaymesh.node.daily import Daily
from relaymesh.node.letter_archive import LetterArchive
from relaymesh.node.opening import STORE_FILE, Opened, first_state, open_directory
from relaymesh.node.originals import Originals, Sending
from relaymesh.node.own import own_directory
from relaymesh.node.projector import InlineProjector, Projector
from relaymesh.node.retention import drop_old_segments
from relaymesh.node.rng import Rng, system_rng
from relaymesh.node.sent import Refusals
from relaymesh.node.settings import MeshSettings
from relaymesh.node.stats import stats_of
from relaymesh.wire.housekeeping import Checkpoint, Stats
from relaymesh.wire.ids import IdMint, made_otherwise
from relaymesh.wire.records import ENCODERS
from relaymesh.wire.snapshot import encode_piece

log = logging.getLogger("relaymesh.node")

HOUSEKEEPING_S = 1.0
RECLAIM_PAUSE_MS = 5_000
SEGMENTS_MAX = 64
"""So many segments at a start, each begun by a start of its own, are worth a checkpoint."""
ID_CLOCK_SLACK_MS = 60_000
"""How far a sender's clock may be ahead of ours for its UUIDv7 to be believed new."""


class Node:
    """An open mesh directory, or a mesh in memory. `close` it, or the next start has to replay more."""

    _at_daily: threading.Thread | None = None

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
        """`background=False`: no threads; the caller lets time pass with `tend`. `mirror` is for a `disk`."""
        self.path = path
        self.settings = settings
        self.clock = clock or SystemClock()
        self.rng = rng or system_rng()
        self.closed = False
        self._closing = threading.Lock()
        self._minting = threading.Lock()
        self._one_checkpoint = threading.Lock()
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
        self._guard = SuspendGuard(self.clock, self.time)
        self._guarding = threading.Lock()
        self.core.on_due = self._watch_clock
        self._checkpointed_bytes = 0
        self._many_segments = self.opened is not None and self.opened.segments >= SEGMENTS_MAX
        self._last_sync_ms = self.time.now()
        self._daily = Daily(self.core, settings, LetterArchive(disk), self._drop_old_segments)
        self._checkpointing: threading.Thread | None = None
        self._wake = Bell()
        self._background = background
        self._thread: threading.Thread | None = None
        try:
            self.core.execute(Start(epoch), durable=True)
        except BaseException:
            self.close(force=True)
            raise
        if background:
            self.core.on_timer = self._wake.ring
            self._thread = threading.Thread(
                target=self._keep_house, name="relaymesh-housekeeping", daemon=True
            )
            self._thread.start()

    def _projector(self, background: bool) -> Projector | InlineProjector | None:
        if self.store is None:
            return None
        kind = Projector if background else InlineProjector
        return kind(self.store, now_ms=self.time.now, lag_max=self.settings.store_lag_max)

    # -- admission ----------------------------------------------------------------------------

    def new_ids(self, count: int) -> list[str]:
        with self._minting:
            return self.mint.mint(self.time.now(), count)

    def prepare(self, command: Sending) -> None:
        """Make a command that sends ready for the kernel, once the disk and the store can take its messages.

        Notes in it what the store knows of its ids. Does nothing that a second call does not do again.
        """
        if isinstance(command, Publish):
            self._require_capacity(size_of(command.envelopes))
            if not command.minted:
                command.known = self._look_up([(topic_target(command.topic), command.envelopes)])
            return
        self._require_capacity(command.size)
        if not command.minted:
            command.known = self._look_up(command.groups)

    def _require_capacity(self, size: int) -> None:
        if size > self.settings.batch_bytes_max:
            raise PayloadTooLarge(
                f"one batch holds {size} bytes; the limit is {self.settings.batch_bytes_max}",
                hint="send it in several calls",
            )
        if self.projector is not None and self.projector.lagging:
            raise StoreLagging(f"the store is {self.projector.lag} events behind the journal")
        if not self.core.journal.room(size):
            raise DiskFloor(f"the disk of {self.path} is too full to accept messages")

    def _look_up(
        self, targets: Sequence[tuple[str, Sequence[Envelope]]]
    ) -> dict[tuple[str, str], Seen] | None:
        """What the store knows of ids that memory may have forgotten."""
        admitted = self.core.kernel.state.admitted
        if self.store is None or admitted.horizon < 0:
            return None
        horizon, latest = admitted.horizon, self.time.now() + ID_CLOCK_SLACK_MS
        keys = [
            (target, id)
            for target, envelopes in targets
            for id in made_otherwise([envelope.id for envelope in envelopes], horizon, latest)
        ]
        while keys:
            try:
                known = self.store.lookup(keys, self.time.now())
            except apsw.ConnectionClosedError:
                raise Closed("this mesh is closed") from None
            if admitted.horizon == horizon:
                return known
            horizon = admitted.horizon
        return None

    def answer(self, request: Request[Result]) -> Result:
        """Answer a request that is the node's own: see `relaymesh.wire.housekeeping`."""
        if isinstance(request, Stats):
            return cast("Result", self.core.read(lambda kernel: stats_of(self, kernel)))
        assert isinstance(request, Checkpoint), f"no node answers {request!r}"
        return cast("Result", self.checkpoint())

    # -- housekeeping -------------------------------------------------------------------------

    def _keep_house(self) -> None:
        while not self.closed:
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
        now = self.time.now()
        self._watch_clock(now)
        core = self.core
        if core.kernel.next_event_at <= now:
            core.execute(Tick())
        core.idle_sync_asked = False
        if core.unsynced and now - self._last_sync_ms >= self._sync_every_ms():
            self._last_sync_ms = now
            core.sync()
        elif core.unsynced:
            core.idle_sync_asked = True  # nobody need wake this thread for it: it comes back in time
        if self.store is not None and self.projector is not None:
            applied = self.store.applied
            core.read(lambda kernel: kernel.state.admitted.forget(applied, now))
        self._checkpoint_if_due()
        self._daily_if_due(now)
        next_at = core.arm_timer()
        next_sync_at = self._last_sync_ms + self._sync_every_ms() if core.unsynced else next_at
        return max(0.0, min(next_at - now, next_sync_at - now, HOUSEKEEPING_S * 1000) / 1000)

    def _sync_every_ms(self) -> int:
        settings = self.settings
        if settings.durability == "batched":
            return 0 if self.core.unsynced >= settings.batch_events else settings.batch_ms
        return settings.idle_sync_ms

    def _watch_clock(self, now: int) -> None:
        """After a suspend, holders that slept too get one round to speak up before their leases end."""
        with self._guarding:
            event = self._guard.look()
            if event is not None:
                self.core.read(lambda kernel: kernel.pause_reclaim(now + RECLAIM_PAUSE_MS))
        if event is not None:
            logging.getLogger("relaymesh.alert").warning(
                "%s: no lease is reclaimed for %d ms", event, RECLAIM_PAUSE_MS
            )

    def _daily_if_due(self, now: int) -> None:
        running = self._at_daily is not None and self._at_daily.is_alive()
        if running or not self._daily.due(now):
            return
        if not self._background:
            self._daily.run()
            return
        thread = threading.Thread(target=self._daily.run, name="relaymesh-daily", daemon=True)
        thread.start()
        self._at_daily = thread  # only now: a close in another thread may want to join it

    def _drop_old_segments(self) -> None:
        if self.disk is not None and self.settings.durability != "memory":
            with self._one_checkpoint:
                drop_old_segments(self.disk, self.settings, self.time.wall_ns())

    # -- checkpoints --------------------------------------------------------------------------

    def _checkpoint_if_due(self) -> None:
        grown = self.core.journal.bytes_written - self._checkpointed_bytes
        running = self._checkpointing is not None and self._checkpointing.is_alive()
        due = grown >= self.settings.checkpoint_bytes or self._many_segments
        if not due or running or self.disk is None:
            return
        self._many_segments = False
        if not self._background:
            self.checkpoint()
            return
        self._checkpointing = threading.Thread(
            target=self._checkpoint_quietly, name="relaymesh-checkpoint", daemon=True
        )
        self._checkpointing.start()

    def _checkpoint_quietly(self) -> None:
        try:
            self.checkpoint()
        except (MeshError, OSError) as error:
            log.warning("no checkpoint was taken: %s", error)

    def catch_up(self, seconds: float) -> None:
        """Come back when everything decided so far is durable and in the store; waits for the disk twice."""
        if self.core.unsynced:
            self.core.sync()
        if self.projector is not None and not self.projector.drain(seconds):
            raise StoreLagging("the store has not caught up with the journal")

    def checkpoint(self) -> int | None:
        """Write the whole state, so that a start need not replay what lies before it. One at a time."""
        if self.disk is None or self.settings.durability == "memory":
            return None
        with self._one_checkpoint:
            return self._checkpoint(self.disk)

    def _checkpoint(self, disk: Disk) -> int | None:
        self._checkpointed_bytes = self.core.journal.bytes_written
        snapshot = self.core.snapshot()
        try:
            self.core.sync()
            if self.projector is not None and not self.projector.drain(60):
                log.warning("the store is behind: the checkpoint waits for it")
                return None
            written = write_checkpoint(
                disk, snapshot.sequence, self._chunks(snapshot), self.time.wall_ns(), epoch=self.core.epoch
            )
            self.core.journal.reserve_for_checkpoint(2 * written.bytes)
        finally:
            self.core.let_go(snapshot)
        archive_behind(disk, snapshot.sequence)
        drop_old_segments(disk, self.settings, self.time.wall_ns())
        return snapshot.sequence

    @property
    def mirror_state(self) -> str | None:
        """`in step`, `behind N bytes`, `catching up` or `lost: why`; None without a mirror."""
        return self.opened.writer.mirror_state if self.opened is not None else None

    def _chunks(self, snapshot: Snapshot) -> Iterator[bytes]:
        pieces = snapshot.pieces()
        while (piece := self.core.draw(pieces)) is not None:
            yield encode_piece(piece)

    # -- the end ------------------------------------------------------------------------------

    def close(self, *, force: bool = False) -> None:
        """Stop: give deliveries back, flush, and let go of the directory. Twice is once.

        `force` skips the flush of what nobody waits for; a mesh in memory then says what it dropped.
        """
        with self._closing:
            if self.closed:
                return
            self.closed = True
        if self.core.forked:
            return  # everything here is the parent's
        self._wake.ring()
        self._daily.stop()
        try:
            if self._at_daily is not None:
                self._at_daily.join(timeout=60)  # it ends with the letters it has in hand
            if self._checkpointing is not None:
                self._checkpointing.join(timeout=60)  # it is of use to the next start
            if self.core.failure is None:
                self._stop(force)
        finally:
            self.core.shut(Closed("this mesh is closed"))
            if self._thread is not None and self._thread is not threading.current_thread():
                self._thread.join(timeout=5)
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
