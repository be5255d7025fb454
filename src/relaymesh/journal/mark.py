"""The mark: how far the journal is known to be synced, in a file of 64 bytes.

It is rewritten in place after each sync and not synced itself. So after power loss it may say
less than the truth, never more: it is written only when the sync has returned.

    offset size field
         0    4 magic       b"RMJM"
         4    4 version     1
         8    8 epoch
        16    8 segment     its number
        24    8 offset      all bytes of that segment below this are durable, and all earlier segments
        32    8 sequence    all events below this are durable
        40   20 zero
        60    4 CRC         CRC-32C of bytes 0..59
"""

from __future__ import annotations

import logging
import struct
from dataclasses import dataclass

from crc32c import crc32c

from relaymesh.errors import FormatTooNew
from relaymesh.journal.disk import Disk, File
from relaymesh.journal.layout import MARK

__all__ = ["MARK_BYTES", "Mark", "open_mark", "read_mark"]

log = logging.getLogger("relaymesh.journal")

_MAGIC = b"RMJM"
_VERSION = 1
_LAYOUT = struct.Struct("<4sIQQQQ20x")
_CRC = struct.Struct("<I")
MARK_BYTES = _LAYOUT.size + _CRC.size
_READS = 3  # a reader beside a running node may catch the file half rewritten


@dataclass(frozen=True, slots=True)
class Mark:
    """Everything before this position is durable."""

    epoch: int
    segment: int
    offset: int
    sequence: int

    def encode(self) -> bytes:
        head = _LAYOUT.pack(_MAGIC, _VERSION, self.epoch, self.segment, self.offset, self.sequence)
        return head + _CRC.pack(crc32c(head))


def decode_mark(data: bytes) -> Mark | None:
    """The mark in `data`, or None when this is no whole mark."""
    if len(data) != MARK_BYTES or _CRC.unpack_from(data, _LAYOUT.size)[0] != crc32c(data[: _LAYOUT.size]):
        return None
    magic, version, epoch, segment, offset, sequence = _LAYOUT.unpack_from(data)
    if magic != _MAGIC:
        return None
    if version != _VERSION:
        raise FormatTooNew(f"the mark file has version {version}, this RelayMesh reads {_VERSION}")
    return Mark(epoch, segment, offset, sequence)


def read_mark(disk: Disk) -> Mark | None:
    """The mark, or None when the file is missing or unreadable (the latter is logged)."""
    if not disk.exists(MARK):
        return None
    try:
        file = disk.open(MARK, write=False)
        try:
            for _ in range(_READS):
                data = file.read_at(0, MARK_BYTES + 1)
                mark = decode_mark(data)
                if mark is not None or not data:  # empty: made, and lost in a crash before it was written out
                    return mark
        finally:
            file.close()
    except OSError as error:
        log.warning("the mark file cannot be read (%s); the frames' own marks are used", error)
        return None
    log.warning("the mark file is damaged; the frames' own marks are used")
    return None


def open_mark(disk: Disk) -> File:
    """The mark file for the writer, made if missing, its old content kept until the first write."""
    if disk.exists(MARK):
        return disk.open(MARK)
    file = disk.open(MARK, create=True)
    try:
        disk.sync_folder("")
    except BaseException:
        file.close()
        raise
    return file
