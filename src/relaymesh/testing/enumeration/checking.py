"""One crash state, recovered by the real code and held against the promises."""

from __future__ import annotations

from collections.abc import Mapping

from relaymesh.errors import MeshError
from relaymesh.journal import recover, verify
from relaymesh.testing.enumeration.lives import Life, Misbehaved, brought_back, events
from relaymesh.testing.enumeration.plain import PlainDisk
from relaymesh.testing.enumeration.recording import Promise

__all__ = ["check", "check_and_go_on"]


def check(life: Life, files: Mapping[str, bytes], promise: Promise, salt: int) -> PlainDisk:
    """Recover, compare, and open a writer. Returns the directory as the recovery left it."""
    disk = PlainDisk(files, salt)
    _start(life, disk, promise)
    return disk


def check_and_go_on(life: Life, files: Mapping[str, bytes], promise: Promise, salt: int) -> None:
    """And use the journal: a frame more, `verify`, and another recovery that must show exactly this."""
    disk = PlainDisk(files, salt)
    shown, epoch = _start(life, disk, promise, more=1)
    report = verify(disk)
    if report.damage or report.next_sequence != life.sequence(shown):
        raise Misbehaved(f"verify finds {report.damage}, next sequence {report.next_sequence}")
    _start(life, disk, Promise(shown, shown, epoch))


def _start(life: Life, disk: PlainDisk, promise: Promise, more: int = 0) -> tuple[int, int]:
    try:
        recovery = recover(disk, life.settings)
        shown = brought_back(life, recovery, promise)
        writer = recovery.open_writer(5000)
        if not writer.next_sequence == writer.synced == life.sequence(shown):
            raise Misbehaved(f"the writer goes on at {writer.next_sequence} after {shown} frames")
        for number in range(shown, shown + more):
            writer.append(life.payload(number), events(number), 6000)
            writer.sync()
        writer.close()
    except (MeshError, OSError) as error:
        raise Misbehaved(f"the recovery failed: {error!r}", silent=False) from error
    if disk.locked:
        raise Misbehaved("the lock is still held")
    return shown + more, recovery.epoch
