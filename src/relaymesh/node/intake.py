"""Checks before a node takes messages: is there room, and does the store know their ids?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import apsw

from relaymesh.errors import Closed, DiskFloor, PayloadTooLarge, StoreLagging
from relaymesh.kernel.commands import Publish
from relaymesh.kernel.dedup import Seen, topic_target
from relaymesh.kernel.envelope import Envelope
from relaymesh.node.core import Core
from relaymesh.node.originals import Sending
from relaymesh.node.projector import InlineProjector, Projector
from relaymesh.node.settings import MeshSettings
from relaymesh.store import SqliteStore
from relaymesh.wire.ids import made_otherwise

__all__ = ["Intake"]

ID_CLOCK_SLACK_MS = 60_000
"""If the time in a UUIDv7 is further ahead of this node's clock than this, the id is not taken for new."""


class Intake:
    """Prepares commands that send for the kernel. A refusal names `path`."""

    def __init__(
        self,
        core: Core,
        settings: MeshSettings,
        store: SqliteStore | None,
        projector: Projector | InlineProjector | None,
        path: Path | None,
    ) -> None:
        self._core = core
        self._settings = settings
        self._store = store
        self._projector = projector
        self._path = path

    def prepare(self, command: Sending) -> None:
        """Prepare a command that sends for the kernel, once the disk and the store can take its messages. It
        adds what the store knows of the command's ids. A second call does the same again.
        """
        self.require_capacity(command.size)
        if isinstance(command, Publish):
            if not command.minted:
                command.known = self._look_up([(topic_target(command.topic), command.envelopes)])
            return
        if not command.minted:
            command.known = self._look_up(command.groups)

    def require_capacity(self, size: int) -> None:
        """Refuse this many bytes if the disk, the store or one frame cannot take them."""
        if size > self._settings.batch_bytes_max:
            raise PayloadTooLarge(
                f"one batch holds {size} bytes; the limit is {self._settings.batch_bytes_max}",
                hint="send it in several calls",
            )
        if self._projector is not None and self._projector.lagging:
            raise StoreLagging(f"the store is {self._projector.lag} events behind the journal")
        if not self._core.journal.room(size):
            raise DiskFloor(f"the disk of {self._path} is too full to accept messages")

    def _look_up(
        self, targets: Sequence[tuple[str, Sequence[Envelope]]]
    ) -> dict[tuple[str, str], Seen] | None:
        """What the store knows of ids that memory may have forgotten."""
        admitted = self._core.kernel.state.admitted
        if self._store is None or admitted.horizon < 0:
            return None
        now = self._core.time.now
        horizon, latest = admitted.horizon, now() + ID_CLOCK_SLACK_MS
        keys = [
            (target, id)
            for target, envelopes in targets
            for id in made_otherwise([envelope.id for envelope in envelopes], horizon, latest)
        ]
        while keys:
            try:
                known = self._store.lookup(keys, now())
            except apsw.ConnectionClosedError:
                raise Closed("this mesh is closed") from None
            if admitted.horizon == horizon:
                return known
            horizon = admitted.horizon
        return None
