"""Settings of one mesh. Parsed once, at the edge; each with its default and what raising it costs."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from relaymesh.errors import InvalidSettings, MeshError
from relaymesh.journal import JournalSettings, MirrorMode
from relaymesh.kernel.bounds import (
    BYTES_MAX,
    COUNT_MAX,
    DURATION_MS_MAX,
    one_of,
    plain_text,
    real,
    shown,
    whole,
)
from relaymesh.kernel.payload import INLINE_BYTES_MAX

DAYS_MAX = 36_500
"""A hundred years: the longest time that anything is kept."""
WHOLE = {
    "batch_ms": DURATION_MS_MAX,
    "batch_events": COUNT_MAX,
    "idle_sync_ms": DURATION_MS_MAX,
    "payload_bytes_max": BYTES_MAX,
    "batch_bytes_max": BYTES_MAX,
    "inline_bytes_max": BYTES_MAX,
    "remembered_ids_max": COUNT_MAX,
    "store_lag_max": COUNT_MAX,
    "checkpoint_bytes": BYTES_MAX,
    "consumer_hold_bytes": BYTES_MAX,
    "mirror_queue_bytes": BYTES_MAX,
}
"""Settings that are whole numbers from 1 on, and the largest of each."""
DAYS = {
    "archive_days": 1.0,
    "consumer_hold_days": 1e-6,
    "done_retention_days": 1e-6,
    "dead_letter_days": 1e-6,
    "report_days": 1e-6,
}
"""Settings in days, and the least of each. `archive_days` covers dedup, which looks back one day."""

Durability = Literal["synced", "batched", "memory"]
DelayedOnStop = Literal["keep", "deliver"]


@dataclass(frozen=True, kw_only=True, slots=True)
class MeshSettings:
    """Frozen and checked on construction.

    durability: `synced` answers a send after the sync (no receipted message is ever lost); `batched` answers
        after the write and syncs every `batch_ms` or `batch_events` (a power loss may lose that much);
        `memory` writes nothing.
    batch_ms, batch_events: how long and how many events `batched` may hold back from the disk. Raising either
        risks more at a power loss and syncs less often.
    idle_sync_ms: acks are written at once and synced within this time. Raising it means more redeliveries
        after a power loss.
    delayed_on_stop: `keep` leaves delayed messages in the journal for the next start, `deliver` hands them
        out when the mesh closes. None means `keep`, and `deliver` for `memory`.
    payload_bytes_max: the largest content, in bytes. Raising it costs memory in every mailbox with such a
        message. Any value but the default goes before `payload_max_bytes` of the settings file.
    batch_bytes_max: the largest sum of contents in one `send_many` or `publish_many`.
    inline_bytes_max: content, inputs and results of more bytes are kept in payload files, each synced before
        its record. Raising it costs memory for every such message; lowering it costs a sync for each.
    remembered_ids_max: settled ids kept in memory; older ones are looked up in the store. Raising it costs
        about 250 bytes an id.
    store_lag_max: events the store may be behind before sends are refused. Raising it costs memory.
    checkpoint_bytes: a checkpoint is taken after so many bytes of journal. Raising it makes recovery longer.
    archive_days: how long archived segments are kept. Must cover the dedup window of one day.
    consumer_hold_days: how long archived segments are kept at most for a registered consumer (the pipeline)
        that has not read them; from 80% on a warning is logged. Raising it costs disk space.
    consumer_hold_bytes: how many bytes beyond `archive_days` are kept at most for such a consumer; the oldest
        go first, with a warning. Raising it costs that much disk space.
    done_retention_days: how long the store's tables keep messages that were settled, and tasks that ended;
        what is older is removed at the start and once a day. Ids stay for at least the dedup window of one
        day, and tasks for at least the days in which their key is known (`idempotency_ttl_days` of the
        settings file). A day more costs a day's messages at about 300 bytes each. Any value but the default
        goes before the settings file.
    dead_letter_days: dead letters older than this are appended to `dead-letters/<year>-<month>.jsonl` and
        purged, at the start and once a day. Raising it costs memory: letters are in memory until then.
    report_days: how long the daily reports of dead letters are kept.
    mirror: a second directory, on another disk, that holds the same journal byte for byte. None: use the
        mirror recorded in the data directory, if any. Costs the same disk space again.
    mirror_mode: `required` answers a send when both directories are synced, so each send waits for the slower
        disk, and a failing mirror stops the journal; `best_effort` lets the mirror follow, and continues
        without a mirror that fails or is slow.
    mirror_queue_bytes: how far a best-effort mirror may be behind before it is given up. It is caught up
        later. Raising it costs that much memory while the mirror is slow.
    """

    durability: Durability = "synced"
    batch_ms: int = 100
    batch_events: int = 100
    idle_sync_ms: int = 100
    delayed_on_stop: DelayedOnStop | None = None
    payload_bytes_max: int = 10_485_760
    batch_bytes_max: int = 268_435_456
    inline_bytes_max: int = INLINE_BYTES_MAX
    remembered_ids_max: int = 100_000
    store_lag_max: int = 500_000
    checkpoint_bytes: int = 200_000_000
    archive_days: float = 7
    consumer_hold_days: float = 30
    consumer_hold_bytes: int = 20_000_000_000
    done_retention_days: float = 7
    dead_letter_days: float = 30
    report_days: float = 90
    mirror: str | os.PathLike[str] | None = None
    mirror_mode: MirrorMode = "required"
    mirror_queue_bytes: int = 64_000_000
    journal: JournalSettings = field(default_factory=JournalSettings)

    def __post_init__(self) -> None:
        checked: dict[str, Any] = {
            "durability": one_of(self.durability, "durability", get_args(Durability), InvalidSettings),
            "mirror_mode": one_of(self.mirror_mode, "mirror_mode", get_args(MirrorMode), InvalidSettings),
        }
        if self.delayed_on_stop is not None:
            checked["delayed_on_stop"] = one_of(
                self.delayed_on_stop, "delayed_on_stop", get_args(DelayedOnStop), InvalidSettings
            )
        for name, most in WHOLE.items():
            checked[name] = whole(getattr(self, name), name, 1, most, InvalidSettings)
        for name, least in DAYS.items():
            checked[name] = real(getattr(self, name), name, least, DAYS_MAX, InvalidSettings)
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if not isinstance(self.journal, JournalSettings):
            raise InvalidSettings(f"journal must be JournalSettings, not {shown(self.journal)}")
        self._check_mirror()

    def _check_mirror(self) -> None:
        if self.mirror is not None:
            directory(self.mirror, "mirror")
        if self.mirror is not None and self.durability == "memory":
            raise InvalidSettings("a mesh in memory has no journal to mirror: leave out mirror or durability")

    @property
    def deliver_delayed_on_stop(self) -> bool:
        if self.delayed_on_stop is None:
            return self.durability == "memory"
        return self.delayed_on_stop == "deliver"


def directory(path: Any, what: str) -> str:
    """A path that names a directory: a string, or an object that `os.fspath` accepts."""
    try:
        plain = plain_text(os.fspath(path), what, InvalidSettings)
        os.fsencode(plain)
    except MeshError:
        raise
    except Exception:  # not a path, a path whose `os.fspath` fails, or half an emoji
        raise InvalidSettings(f"{what} must be a path, not {shown(path)}") from None
    if not plain or "\0" in plain:
        raise InvalidSettings(f"{what} is {'empty' if not plain else shown(plain)}: name a directory")
    return plain
