"""The epoch: a number that grows with each start, durable before the first lease token is made of it.

    offset size field
         0    4 magic       b"RMJE"
         4    4 version     1
         8    8 epoch
        16   12 zero
        28    4 CRC         CRC-32C of bytes 0..27

A lost or damaged file does not bring an epoch back: each start also writes its epoch into a new
segment before it grants anything, so one more than the largest epoch in sight is always new.
"""

from __future__ import annotations

import logging
import struct

from crc32c import crc32c

from relaymesh.errors import FormatTooNew
from relaymesh.journal.disk import Disk
from relaymesh.journal.layout import EPOCH, NEW

__all__ = ["read_epoch", "write_epoch"]

log = logging.getLogger("relaymesh.journal")

_MAGIC = b"RMJE"
_VERSION = 1
_LAYOUT = struct.Struct("<4sIQ12x")
_CRC = struct.Struct("<I")


def read_epoch(disk: Disk) -> int | None:
    """The last epoch, or None when the file is missing or unreadable (the latter is logged)."""
    if not disk.exists(EPOCH):
        return None
    try:
        file = disk.open(EPOCH, write=False)
        try:
            data = file.read_at(0, _LAYOUT.size + _CRC.size + 1)
        finally:
            file.close()
    except OSError as error:
        log.warning("the epoch file cannot be read (%s); the epoch is taken from the journal", error)
        return None
    size = _LAYOUT.size
    whole = len(data) == size + _CRC.size and _CRC.unpack_from(data, size)[0] == crc32c(data[:size])
    if not whole or data[:4] != _MAGIC:
        log.warning("the epoch file is damaged; the epoch is taken from the journal")
        return None
    _, version, epoch = _LAYOUT.unpack_from(data)
    if version != _VERSION:
        raise FormatTooNew(f"the epoch file has version {version}, this RelayMesh reads {_VERSION}")
    return int(epoch)


def write_epoch(disk: Disk, epoch: int) -> None:
    """Replace the epoch durably."""
    head = _LAYOUT.pack(_MAGIC, _VERSION, epoch)
    file = disk.open(EPOCH + NEW, create=True)
    try:
        file.write_at(head + _CRC.pack(crc32c(head)), 0)
        file.sync()
    finally:
        file.close()
    disk.rename(EPOCH + NEW, EPOCH)
    disk.sync_folder("")
