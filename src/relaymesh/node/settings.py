"""Settings of one mesh. Parsed once, at the edge; each with its default and what raising it costs."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Literal

from relaymesh.errors import InvalidSettings
from relaymesh.journal import JournalSettings, MirrorMode

Durability = Literal["synced", "batched", "memory"]
DelayedOnStop = Literal["keep", "deliver"]


@dataclass(frozen=True, kw_only=True, slots=True)
class MeshSettings:
    """Frozen and checked on construction.

    durability: `synced` answers a send after the sync (nothing receipted is ever lost); `batched` after the
        write, syncing every `batch_ms` or `batch_events` (a power loss may take that much); `memory` writes
        nothing.
    batch_ms, batch_events: how long and how many events `batched` may hold back from the disk. Raising either
        risks more at a power loss and syncs less often.
    idle_sync_ms: acks are written at once and synced within this time. Raising it means more redeliveries
        after a power loss.
    delayed_on_stop: `keep` leaves delayed messages in the journal for the next start, `deliver` hands them
        out when the mesh closes. None means `keep`, and `deliver` for `memory`.
    payload_bytes_max: the largest content, in bytes. Raising it costs memory in every mailbox that holds one.
    batch_bytes_max: the largest sum of contents in one `send_many` or `publish_many`.
    remembered_ids_max: settled ids kept in memory; older ones are looked up in the store. Raising it costs
        about 250 bytes an id.
    store_lag_max: events the store may be behind before sends are refused. Raising it costs memory.
    checkpoint_bytes: a checkpoint is taken after so many bytes of journal. Raising it makes recovery longer.
    archive_days: how long archived segments are kept. Must cover the dedup window of one day.
    consumer_hold_days: how long archived segments are kept at most for a registered consumer (the pipeline)
        that has not got them; from 80% on an alert is logged. Raising it costs disk space.
    consumer_hold_bytes: how many bytes beyond `archive_days` are kept at most for such a consumer; the oldest
        go first, with an alert. Raising it costs that much disk space.
    dead_letter_days: dead letters older than this are purged.
    mirror: a second directory, on another disk, that holds the same journal byte for byte. None keeps the one
        the data directory is noted to have, if any. Costs the same disk space again.
    mirror_mode: `required` answers a send when both directories are synced, so each waits for the slower
        disk, and a failing mirror stops the journal; `best_effort` lets the mirror follow, and goes on
        without one that fails or is slow.
    mirror_queue_bytes: how far a best-effort mirror may be behind before it is given up, to be brought back
        later. Raising it costs that much memory while the mirror is slow.
    """

    durability: Durability = "synced"
    batch_ms: int = 100
    batch_events: int = 100
    idle_sync_ms: int = 100
    delayed_on_stop: DelayedOnStop | None = None
    payload_bytes_max: int = 10_485_760
    batch_bytes_max: int = 268_435_456
    remembered_ids_max: int = 100_000
    store_lag_max: int = 500_000
    checkpoint_bytes: int = 200_000_000
    archive_days: float = 7
    consumer_hold_days: float = 30
    consumer_hold_bytes: int = 20_000_000_000
    dead_letter_days: float = 30
    mirror: str | os.PathLike[str] | None = None
    mirror_mode: MirrorMode = "required"
    mirror_queue_bytes: int = 64_000_000
    journal: JournalSettings = field(default_factory=JournalSettings)

    def __post_init__(self) -> None:
        if self.durability not in ("synced", "batched", "memory"):
            raise InvalidSettings(f"durability is {self.durability!r}: it must be synced, batched or memory")
        if self.delayed_on_stop not in (None, "keep", "deliver"):
            raise InvalidSettings(f"delayed_on_stop is {self.delayed_on_stop!r}: it must be keep or deliver")
        for name in (
            "batch_ms",
            "batch_events",
            "idle_sync_ms",
            "payload_bytes_max",
            "batch_bytes_max",
            "remembered_ids_max",
            "store_lag_max",
            "checkpoint_bytes",
            "consumer_hold_days",
            "consumer_hold_bytes",
            "dead_letter_days",
            "mirror_queue_bytes",
        ):
            if getattr(self, name) <= 0:
                raise InvalidSettings(f"{name} is {getattr(self, name)}: it must be positive")
        if self.archive_days < 1:
            raise InvalidSettings("archive_days must be at least 1: dedup looks back one day")
        self._check_mirror()

    def _check_mirror(self) -> None:
        if self.mirror_mode not in ("required", "best_effort"):
            raise InvalidSettings(f"mirror_mode is {self.mirror_mode!r}: it must be required or best_effort")
        if self.mirror is not None and not os.fspath(self.mirror):
            raise InvalidSettings("mirror is empty: name a directory, or None for no mirror")
        if self.mirror is not None and self.durability == "memory":
            raise InvalidSettings("a mesh in memory has no journal to mirror: leave out mirror or durability")

    @property
    def deliver_delayed_on_stop(self) -> bool:
        if self.delayed_on_stop is None:
            return self.durability == "memory"
        return self.delayed_on_stop == "deliver"
