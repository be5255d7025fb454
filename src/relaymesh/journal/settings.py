"""The journal's settings: each with its formula, default, and what raising it costs."""

from __future__ import annotations

from dataclasses import dataclass, fields

from relaymesh.errors import InvalidSettings
from relaymesh.kernel.bounds import BYTES_MAX, whole

__all__ = ["JournalSettings"]


@dataclass(frozen=True, kw_only=True, slots=True)
class JournalSettings:
    """Frozen and checked on construction.

    segment_bytes_max: a frame that would end beyond this opens the next segment; one frame larger than
        this has a segment of its own. Raising it means fewer files, and archiving in coarser steps.
    allocate_bytes: a segment's file grows in steps of this size, ahead of the data (a sync that changes
        no file size is 1.1 to 1.9 times faster). Raising it wastes up to that much disk; 0 turns it off.
    zero_ahead_bytes: so many zeros are written behind a frame, within what is allocated, when the last
        ones are used up (a frame on written blocks syncs 1.1 to 1.4 times faster than on blocks that are
        only reserved). Costs as many bytes of zeros as of data; 0 is right where a file system never
        writes in place.
    checkpoint_reserve_bytes: how much a checkpoint is expected to need. Publishes are refused while
        free bytes < allocate_bytes + checkpoint_reserve_bytes. Raising it refuses earlier.
    room_refresh_bytes: free space is asked again after this many bytes of frames (and at every rotation, and
        at every question while it is short). Raising it notices a filling disk later.
    """

    segment_bytes_max: int = 100_000_000
    allocate_bytes: int = 16_000_000
    zero_ahead_bytes: int = 262_144
    checkpoint_reserve_bytes: int = 64_000_000
    room_refresh_bytes: int = 4_000_000

    def __post_init__(self) -> None:
        for field in fields(self):
            least = 1 if field.name == "segment_bytes_max" else 0
            value = whole(getattr(self, field.name), field.name, least, BYTES_MAX, InvalidSettings)
            object.__setattr__(self, field.name, value)
