"""The journal: append-only frames in segments, checksummed and synced by the commit.

Promises: what `Writer.sync` returned as synced is back after any crash; everything else is back wholly
or not at all; damaged data that was acknowledged is named and refused, never skipped or cut off.

The caller must: keep one thread at most in `append` and one in `sync`, take checkpoints only of synced
sequences, and after `JournalPoisoned` stop and recover. docs/formats/journal.md describes every byte.
"""

from relaymesh.journal.archive import archive_behind, drop_archived
from relaymesh.journal.checkpoint import Checkpoint, write_checkpoint
from relaymesh.journal.compare import Comparison, Difference, compare
from relaymesh.journal.disk import Disk, File, Lock
from relaymesh.journal.finding import find_frames
from relaymesh.journal.frame import Frame
from relaymesh.journal.layout import read_owner
from relaymesh.journal.mark import Mark, read_mark
from relaymesh.journal.mirror import Mirror, MirrorMode, read_note
from relaymesh.journal.pair import MirroredDisk
from relaymesh.journal.reader import read_frames
from relaymesh.journal.recovery import Recovery, recover
from relaymesh.journal.restore import Restored, restore_from
from relaymesh.journal.segment import FIRST_SEQUENCE, Located, SegmentName, list_segments
from relaymesh.journal.settings import JournalSettings
from relaymesh.journal.verdict import Damage, TornTail
from relaymesh.journal.verify import Report, verify
from relaymesh.journal.writer import Writer

__all__ = [
    "FIRST_SEQUENCE",
    "Checkpoint",
    "Comparison",
    "Damage",
    "Difference",
    "Disk",
    "File",
    "Frame",
    "JournalSettings",
    "Located",
    "Lock",
    "Mark",
    "Mirror",
    "MirrorMode",
    "MirroredDisk",
    "Recovery",
    "Report",
    "Restored",
    "SegmentName",
    "TornTail",
    "Writer",
    "archive_behind",
    "compare",
    "drop_archived",
    "find_frames",
    "list_segments",
    "read_frames",
    "read_mark",
    "read_note",
    "read_owner",
    "recover",
    "restore_from",
    "verify",
    "write_checkpoint",
]
