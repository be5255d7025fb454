"""Retention: which archived segments are dropped, and which are kept for a consumer that has not read them.

A segment is dropped when it is older than `archive_days` and every registered consumer has read its events.
For a consumer that is behind it is kept longer, up to `consumer_hold_days` and up to `consumer_hold_bytes`.
A log line warns when either bound is near, and another one tells what was dropped because of it.
"""

from __future__ import annotations

import logging

from relaymesh.journal import Disk, MirroredDisk, drop_archived, list_segments
from relaymesh.journal.archive import Hold, old_segments, waiting_bytes
from relaymesh.journal.consumers import Consumer, list_consumers
from relaymesh.node.settings import MeshSettings

__all__ = ["drop_old_segments"]

log = logging.getLogger("relaymesh.node")
alert = logging.getLogger("relaymesh.alert")

DAY_NS = 86_400_000_000_000
NEAR = 0.8
"""From this share of a bound on, a warning is logged."""


def drop_old_segments(disk: Disk, settings: MeshSettings, wall_ns: int) -> list[str]:
    """Drop the segments that no consumer needs, here and in the mirror; returns their names.

    If the files of the consumers cannot be read, everything is kept until the next time.
    """
    try:
        return _drop(disk, settings, wall_ns)
    except OSError as error:
        log.warning("no archived segment is dropped for now: %s", error)
        return []


def _drop(disk: Disk, settings: MeshSettings, wall_ns: int) -> list[str]:
    before_ns = wall_ns - int(settings.archive_days * DAY_NS)
    consumers = list_consumers(disk)
    hold = _hold(consumers, settings, wall_ns)
    dropped = drop_archived(disk, before_ns, hold)
    if isinstance(disk, MirroredDisk):  # it may have segments that the primary dropped while it was away
        disk.on_mirror(lambda mirror: drop_archived(mirror, before_ns, hold))
    if hold is not None:
        _tell_lost(disk, consumers, dropped)
        _tell_near(disk, consumers, hold, before_ns, wall_ns)
    return dropped


def _hold(consumers: list[Consumer], settings: MeshSettings, wall_ns: int) -> Hold | None:
    if not consumers:
        return None
    days = max(settings.archive_days, settings.consumer_hold_days)
    slowest = min(each.sequence for each in consumers)
    return Hold(slowest, wall_ns - int(days * DAY_NS), settings.consumer_hold_bytes)


def _tell_lost(disk: Disk, consumers: list[Consumer], dropped: list[str]) -> None:
    if not dropped:
        return
    kept_from = list_segments(disk)[0].name.first_sequence
    for name, sequence in consumers:
        if sequence < kept_from:
            alert.error(
                "the consumer %s has lost the events %d to %d: they were held as long as the settings allow",
                name,
                sequence,
                kept_from - 1,
            )


def _tell_near(disk: Disk, consumers: list[Consumer], hold: Hold, before_ns: int, wall_ns: int) -> None:
    """Check the kept segments: the age of the oldest, and the size of all."""
    segments = list_segments(disk)
    old = old_segments(disk, segments[-1].name.first_sequence, before_ns)
    waiting = [each for each in old if each.successor.name.first_sequence > hold.sequence]
    if not waiting:
        return
    age = (wall_ns - waiting[0].created_ns) / (wall_ns - hold.before_ns)
    size = waiting_bytes(disk, old, hold) / hold.bytes_max
    if max(age, size) >= NEAR:
        slowest = min(consumers, key=lambda each: each.sequence)
        alert.warning(
            "the consumer %s is behind at event %d: archived segments are held for it at %d%% of "
            "consumer_hold_days and %d%% of consumer_hold_bytes; beyond either they are dropped",
            slowest.name,
            slowest.sequence,
            age * 100,
            size * 100,
        )
