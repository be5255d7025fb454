"""Light frames: an event loop may write them itself, because this takes no longer than passing them to
another thread."""

from __future__ import annotations

from relaymesh.kernel.records import Acked, AnyRecord, Dropped, Granted

__all__ = ["LIGHT_BYTES_MAX", "are_light"]

LIGHT = frozenset({Granted, Acked, Dropped})
LIGHT_RECORDS_MAX = 50
LIGHT_EVENTS_MAX = 2_000
LIGHT_BYTES_MAX = 65_536
"""The largest frame that an event loop may write itself. A record has up to half a kilobyte of names, an
event 9 bytes.
"""


def are_light(records: list[AnyRecord]) -> bool:
    """Whether the records hold only numbers and names, and are few."""
    if len(records) > LIGHT_RECORDS_MAX:
        return False
    events = 0
    for record in records:
        if record.__class__ not in LIGHT:
            return False
        events += record.count
    return events <= LIGHT_EVENTS_MAX
