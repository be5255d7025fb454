"""Bringing a mirror in step: whatever of the primary's files it lacks is copied.

Each file is replaced in one step, oldest first, so at every moment the mirror is a data directory that
holds no less than before. While it lacks acknowledged events a file `incomplete` says so, and no start
or restore takes it for the whole. A file of the mirror gives way only to one that reads back
whole: damage in the primary is not copied over the bytes that could repair it. What the primary does not
know is set aside as `.aside`, not deleted.
"""

from __future__ import annotations

import logging

from relaymesh.errors import JournalDamaged
from relaymesh.journal.checkpoint import KEPT, checkpoint_path, list_checkpoints, read_checkpoint
from relaymesh.journal.copying import copy_file, same_bytes, same_ends
from relaymesh.journal.disk import Disk
from relaymesh.journal.epoch import read_epoch
from relaymesh.journal.frame import BadFrame
from relaymesh.journal.identity import read_mesh_id
from relaymesh.journal.layout import ASIDE, EPOCH, INCOMPLETE, MARK, MESH, NEW, remove_unfinished
from relaymesh.journal.mark import read_mark
from relaymesh.journal.payloads import copy_payloads
from relaymesh.journal.scan import SegmentReader, Walk
from relaymesh.journal.segment import HEAD_BYTES, Located, SegmentHead, list_segments
from relaymesh.journal.standing import Standing, standing_of
from relaymesh.journal.verdict import judge_sealed, read_head

__all__ = [
    "bring_in_step",
    "check_same_journal",
    "declare_complete",
    "declare_incomplete",
    "lacks",
    "same_aside",
]

log = logging.getLogger("relaymesh.journal")

SET_ASIDE = ".aside"


def check_same_journal(primary: Disk, mirror: Disk) -> None:
    """Raise `JournalDamaged` when the mirror holds a journal of its own: it must not be overwritten."""
    theirs = standing_of(mirror)
    if not theirs.has_data:
        return
    ours = {each.name.number: each for each in list_segments(primary)}
    shared = next((each for each in theirs.segments if each.name.number in ours), None)
    if shared is None or not _same_head(primary, ours[shared.name.number], mirror, shared):
        raise JournalDamaged(
            "the mirror holds another journal than the data directory",
            hint="name an empty directory as the mirror, or move what lies there away",
        )


def bring_in_step(primary: Disk, mirror: Disk, *, with_live: bool = True) -> int:
    """Make the mirror's files those of the primary; returns the bytes copied.

    The primary's segments in `journal/` must have been read through, or be sealed by a running writer.
    `with_live=False` leaves the newest segment, the mark and `incomplete` for a second pass.
    """
    remove_unfinished(mirror)
    theirs = standing_of(mirror)
    ours = standing_of(primary)
    if not with_live or lacks(ours, theirs):
        declare_incomplete(mirror, "it was being brought in step with its primary")
    copied = copy_payloads(primary, mirror)  # before the segments that name them
    copied += _copy_segments(primary, ours.segments[: None if with_live else -1], mirror, theirs)
    copied += _copy_checkpoints(primary, mirror)
    copied += _copy_aside(primary, mirror)
    if read_epoch(mirror) != read_epoch(primary):
        copied += copy_file(primary, EPOCH, mirror)
    if primary.exists(MESH) and read_mesh_id(mirror) != read_mesh_id(primary):
        copied += copy_file(primary, MESH, mirror)
    if with_live:
        _set_newer_aside(mirror, theirs, ours.newest)
        copied += _copy_mark(primary, mirror)
    if copied:
        log.info("the mirror was brought in step: %d bytes copied", copied)
    return copied


def declare_incomplete(disk: Disk, why: str) -> None:
    """Say durably that this directory must not be used yet."""
    if disk.exists(INCOMPLETE):
        return
    file = disk.open(INCOMPLETE + NEW, create=True)
    try:
        file.write_at(f"why {why}\n".encode(), 0)
        file.sync()
    finally:
        file.close()
    disk.rename(INCOMPLETE + NEW, INCOMPLETE)
    disk.sync_folder("")


def declare_complete(disk: Disk) -> None:
    if disk.exists(INCOMPLETE):
        disk.remove(INCOMPLETE)
        disk.sync_folder("")


def lacks(ours: Standing, theirs: Standing) -> bool:
    """Whether the mirror alone would bring less back than was acknowledged."""
    numbers = {each.name.number for each in theirs.segments}
    gap = bool(numbers) and len(numbers) != max(numbers) - min(numbers) + 1
    return gap or (ours.has_data and theirs.next_sequence < ours.acknowledged)


def _copy_segments(primary: Disk, segments: list[Located], mirror: Disk, theirs: Standing) -> int:
    there = {each.name.number: each for each in theirs.segments}
    mark = read_mark(mirror)
    whole_below = mark.segment if mark else 0  # a mark is written when all earlier segments are durable
    newest = segments[-1].name.number if segments else 0
    copied = 0
    for index, segment in enumerate(segments):
        other = there.get(segment.name.number)
        if other is not None and other.name == segment.name:
            same = same_ends if segment.name.number < min(whole_below, newest) else same_bytes
            if same(primary, mirror, segment.path, other.path):
                _move(mirror, other, segment)
                continue
            after = segments[index + 1] if index + 1 < len(segments) else None
            if after is not None and not _reads_whole(primary, segment, after):
                log.warning("%s differs from the mirror's and does not read back: run verify", segment.path)
                continue
        if other is not None and not _same_head(primary, segment, mirror, other):
            _set_aside(mirror, other)
        copied += copy_file(primary, segment.path, mirror)
        if other is not None and other.folder != segment.folder and mirror.exists(other.path):
            mirror.remove(other.path)
            mirror.sync_folder(other.folder)
    return copied


def _same_head(first: Disk, segment: Located, second: Disk, other: Located) -> bool:
    """Whether two segments of one number are the same file: the salt in the header tells."""
    if segment.name != other.name:
        return False
    one, two = first.open(segment.path, write=False), second.open(other.path, write=False)
    try:
        return one.read_at(0, HEAD_BYTES) == two.read_at(0, HEAD_BYTES)
    finally:
        one.close()
        two.close()


def _reads_whole(disk: Disk, segment: Located, after: Located) -> bool:
    try:
        head, successor = read_head(disk, segment), read_head(disk, after)
        if not isinstance(head, SegmentHead) or not isinstance(successor, SegmentHead) or not successor.seal:
            return False
        with SegmentReader(disk, segment) as reader:
            walk = Walk(reader.window, head, successor.seal.offset)
            for _ in walk:
                pass
    except JournalDamaged:
        return False
    return judge_sealed(segment.path, walk, successor.seal, successor) is None


def _move(mirror: Disk, other: Located, segment: Located) -> None:
    if other.folder != segment.folder:
        mirror.rename(other.path, segment.path)
        mirror.sync_folder(segment.folder)
        mirror.sync_folder(other.folder)


def _set_newer_aside(mirror: Disk, theirs: Standing, newest: int) -> None:
    """Segments that got their name here and not in the primary: nothing in them was acknowledged."""
    for segment in theirs.segments:
        if segment.name.number > newest:
            _set_aside(mirror, segment)


def _set_aside(mirror: Disk, segment: Located) -> None:
    log.warning("the mirror's %s is not the primary's: it is set aside", segment.path)
    mirror.rename(segment.path, f"{segment.path}{SET_ASIDE}")
    mirror.sync_folder(segment.folder)


def _copy_checkpoints(primary: Disk, mirror: Disk) -> int:
    copied = 0
    kept, theirs = list_checkpoints(primary)[:KEPT], set(list_checkpoints(mirror))
    same = {x for x in theirs.intersection(kept) if same_ends(primary, mirror, checkpoint_path(x))}
    if same == theirs == set(kept):
        return 0
    ours = [sequence for sequence in reversed(kept) if _is_whole(primary, sequence)]
    for sequence in ours:
        if sequence not in same:
            copied += copy_file(primary, checkpoint_path(sequence), mirror)
    if len(ours) == KEPT:
        for sequence in theirs - set(ours):
            mirror.remove(checkpoint_path(sequence))
    return copied


def same_aside(primary: Disk, mirror: Disk) -> bool:
    """Whether both set the same records aside."""
    here, there = primary.exists(ASIDE), mirror.exists(ASIDE)
    return same_bytes(primary, mirror, ASIDE) if here and there else here == there


def _copy_aside(primary: Disk, mirror: Disk) -> int:
    if same_aside(primary, mirror):
        return 0
    if primary.exists(ASIDE):
        return copy_file(primary, ASIDE, mirror)
    mirror.rename(ASIDE, f"{ASIDE}{SET_ASIDE}")
    mirror.sync_folder("")
    return 0


def _is_whole(disk: Disk, sequence: int) -> bool:
    try:
        read_checkpoint(disk, sequence)
    except (BadFrame, OSError, JournalDamaged):
        return False
    return True


def _copy_mark(primary: Disk, mirror: Disk) -> int:
    """The primary's mark, unless the mirror's says more: power loss may have taken either back."""
    ours, theirs = read_mark(primary), read_mark(mirror)
    if ours is None:
        if not mirror.exists(MARK):  # the writer opens it in both
            mirror.open(MARK, create=True).close()
            mirror.sync_folder("")
        return 0
    if theirs is not None and (theirs.segment, theirs.offset) >= (ours.segment, ours.offset):
        return 0
    return copy_file(primary, MARK, mirror)
