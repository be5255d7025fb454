"""Checkpoints of a node: when one is due, and how it is written. Then older segments are archived."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from relaymesh.errors import MeshError
from relaymesh.journal import Disk, archive_behind, write_checkpoint
from relaymesh.kernel.snapshot import Snapshot
from relaymesh.node.core import Core
from relaymesh.node.projector import InlineProjector, Projector
from relaymesh.node.retention import drop_old_segments
from relaymesh.node.settings import MeshSettings
from relaymesh.node.side_work import SideWork
from relaymesh.wire.snapshot import encode_piece

__all__ = ["Checkpointing"]

log = logging.getLogger("relaymesh.node")

T = TypeVar("T")

SEGMENTS_MAX = 64
"""With this many segments at a start (each start begins one), a checkpoint is taken."""


class Checkpointing:
    """Takes one checkpoint at a time. `disk` is None for a mesh in memory, which takes none."""

    def __init__(
        self,
        core: Core,
        disk: Disk | None,
        settings: MeshSettings,
        projector: Projector | InlineProjector | None,
        segments: int,
        *,
        background: bool,
    ) -> None:
        self._core = core
        self._disk = disk
        self._settings = settings
        self._projector = projector
        self._background = background
        self._one = threading.Lock()
        self._checkpointed_bytes = 0
        self._many_segments = segments >= SEGMENTS_MAX
        self._at_work = SideWork("relaymesh-checkpoint")

    def begin_if_due(self) -> None:
        """Take one when the journal has grown enough: in its own thread, or here if there are no threads."""
        grown = self._core.journal.bytes_written - self._checkpointed_bytes
        due = grown >= self._settings.checkpoint_bytes or self._many_segments
        if not due or self._at_work.running or self._disk is None:
            return
        self._many_segments = False
        if self._background:
            self._at_work.begin(self._take_quietly)
        else:
            self.take()

    def _take_quietly(self) -> None:
        try:
            self.take()
        except (MeshError, OSError) as error:
            log.warning("no checkpoint was taken: %s", error)

    def take(self) -> int | None:
        """Write the whole state, so that a start need not replay what lies before it. One at a time."""
        if self._disk is None:
            return None
        with self._one:
            return self._write(self._disk)

    def _write(self, disk: Disk) -> int | None:
        core = self._core
        self._checkpointed_bytes = core.journal.bytes_written
        snapshot = core.snapshot()
        try:
            core.sync()
            if self._projector is not None and not self._projector.drain(60):
                log.warning("the store is behind: the checkpoint waits for it")
                return None
            written = write_checkpoint(
                disk, snapshot.sequence, self._chunks(snapshot), core.time.wall_ns(), epoch=core.epoch
            )
            core.journal.reserve_for_checkpoint(2 * written.bytes)
        finally:
            core.let_go(snapshot)
        archive_behind(disk, snapshot.sequence)
        drop_old_segments(disk, self._settings, core.time.wall_ns())
        return snapshot.sequence

    def _chunks(self, snapshot: Snapshot) -> Iterator[bytes]:
        pieces = snapshot.pieces()
        while (piece := self._core.draw(pieces)) is not None:
            yield encode_piece(piece)

    def drop_old_segments(self) -> None:
        """Drop archived segments that are too old; never while a checkpoint archives some."""
        if self._disk is not None:
            with self._one:
                drop_old_segments(self._disk, self._settings, self._core.time.wall_ns())

    def alone(self, work: Callable[[], T]) -> T:
        """Do something while no checkpoint is written and no segment dropped."""
        with self._one:
            return work()

    def end(self, seconds: float) -> None:
        """Start no more, and wait for a running checkpoint, because the next start needs it."""
        self._at_work.end(seconds)
