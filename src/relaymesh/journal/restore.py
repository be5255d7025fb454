"""Restoring: a data directory is made anew from a mirror. What lay there is set aside, never deleted.

The file `incomplete` is there from before the first file is moved until the last one is durable, so a
restore that is cut off leaves a directory that no start takes for a journal; the same command does
the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from relaymesh.errors import Conflict, JournalDamaged
from relaymesh.journal.catch_up import declare_complete, declare_incomplete
from relaymesh.journal.checkpoint import checkpoint_path, list_checkpoints
from relaymesh.journal.copying import copy_file
from relaymesh.journal.disk import Disk
from relaymesh.journal.layout import (
    ARCHIVE,
    ASIDE,
    CHECKPOINTS,
    EPOCH,
    INCOMPLETE,
    JOURNAL,
    LOCK,
    MARK,
    MESH,
    MIRROR,
    prepare,
    take_lock,
)
from relaymesh.journal.payloads import copy_payloads
from relaymesh.journal.segment import list_segments
from relaymesh.journal.verify import Report, verify

__all__ = ["Restored", "restore_from"]

_FOLDERS = ("", JOURNAL, ARCHIVE, CHECKPOINTS)
_STAY = (LOCK, INCOMPLETE, MIRROR)  # the restored directory has the same mirror


@dataclass(frozen=True, slots=True)
class Restored:
    """What was brought back, and where the old files are (None when there were none)."""

    report: Report
    bytes: int
    aside: str | None


def restore_from(mirror: Disk, target: Disk, aside: str, agree: Callable[[str], None]) -> Restored:
    """Make `target` a copy of `mirror`; old files move to the folder `aside` in it.

    `agree` is asked, with the reason, before a directory is replaced that is whole or that may hold more than
    the mirror; it raises to stop. Raises `JournalDamaged` when the mirror does not read back, `Conflict`
    when the target is whole and lacks nothing, `DirectoryInUse` when a process runs on either.
    """
    source = take_lock(mirror)
    try:
        prepare(target)
        lock = take_lock(target)
        try:
            report = verify(mirror)
            if report.damage:
                raise report.damage[0].error()
            if not report.segments:
                raise JournalDamaged(
                    "the mirror holds no journal", hint="name the directory that is the mirror"
                )
            _check_target(target, report, agree)
            return _restore(mirror, target, aside, report)
        finally:
            lock.release()
    finally:
        source.release()


def _check_target(target: Disk, mirror: Report, agree: Callable[[str], None]) -> None:
    if not list_segments(target) or target.exists(INCOMPLETE):
        return
    report = verify(target)
    ours, theirs = report.next_sequence or 0, mirror.next_sequence or 0
    if not report.damage and ours >= theirs:
        raise Conflict(
            f"the data directory reads back whole up to sequence {ours}, the mirror up to {theirs}",
            hint="nothing needs to be restored; nothing was changed",
        )
    if not report.damage:
        agree(f"The data directory reads back, but lacks {theirs - ours} events that the mirror has.")
    elif ours > theirs:
        agree(f"The data directory is damaged, but may hold {ours - theirs} events that the mirror lacks.")


def _restore(mirror: Disk, target: Disk, aside: str, report: Report) -> Restored:
    declare_incomplete(target, "it was being restored from a mirror")
    moved = _set_aside(target, aside)
    # Payload files are named by their content: those that are whole stay, and no other is of use.
    copied = copy_payloads(mirror, target, check=True)
    for segment in list_segments(mirror):
        copied += copy_file(mirror, segment.path, target)
    for sequence in reversed(list_checkpoints(mirror)):
        copied += copy_file(mirror, checkpoint_path(sequence), target)
    for name in (EPOCH, MESH, MARK, ASIDE):
        if mirror.exists(name):
            copied += copy_file(mirror, name, target)
    restored = verify(target)
    damage = [each for each in restored.damage if each.segment != INCOMPLETE]
    if damage:
        raise damage[0].error()
    declare_complete(target)
    return Restored(report, copied, aside if moved else None)


def _set_aside(target: Disk, aside: str) -> int:
    """Move every file of the directory out of the way, under the same names."""
    moved = 0
    for folder in _FOLDERS:
        names = [name for name in target.list(folder) if folder or name not in _STAY]
        new_folder = f"{aside}/{folder}" if folder else aside
        if names:
            target.make_folder(new_folder)
            target.sync_folder("")  # a folder that is lost takes along what was moved into it
            target.sync_folder(aside)
        for name in names:
            target.rename(f"{folder}/{name}" if folder else name, f"{new_folder}/{name}")
        if names:
            target.sync_folder(new_folder)
            target.sync_folder(folder)
        moved += len(names)
    return moved
