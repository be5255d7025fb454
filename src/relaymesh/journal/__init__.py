"""The journal: append-only frames in segments, checksummed and synced by the commit.

Promises: what `Writer.sync` returned as synced is back after any crash; everything else is back wholly
or not at all; damaged data that was acknowledged is named and refused, never skipped or cut off.

The caller must: keep one thread at most in `append` and one in `sync`, take checkpoints only of synced
sequences, and after `JournalPoisoned` stop and recover. docs/formats/journal.md describes every byte.
"""

from relaymesh.journal.archive import archive_behind, drop_archived
from relaymesh.journal.checkpoint import Checkpoint, write_checkpoint
from relaymesh.journal.disk import Disk, File, Lock
from relaymesh.journal.frame import Frame
from relaymesh.journal.layout import read_owner
from relaymesh.journal.mark import Mark, read_mark
from relaymesh.journal.reader import read_frames
from relaymesh.journal.recovery import Recovery, recover
from relaymesh.journal.segment import FIRST_SEQUENCE, Located, SegmentName, list_segments
from relaymesh.journal.settings import JournalSettings
from relaymesh.journal.verdict import Damage, TornTail
from relaymesh.journal.verify import Report, verify
from relaymesh.journal.writer import Writer

__all__ = [
    "FIRST_SEQUENCE",
    "Checkpoint",
    "Damage",
    "Disk",
    "File",
    "Frame",
    "JournalSettings",
    "Located",
    "Lock",
    "Mark",
    "Recovery",
    "Report",
    "SegmentName",
    "TornTail",
    "Writer",
    "archive_behind",
    "drop_archived",
    "list_segments",
    "read_frames",
    "read_mark",
    "read_owner",
    "recover",
    "verify",
    "write_checkpoint",
]
