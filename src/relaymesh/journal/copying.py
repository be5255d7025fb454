"""Copying files from one data directory to another, so that a crash leaves the old file or the new one."""

from __future__ import annotations

from relaymesh.journal.disk import Disk, File
from relaymesh.journal.layout import NEW

__all__ = ["copy_file", "same_bytes", "same_ends"]

_BLOCK_BYTES = 1 << 20
_END_BYTES = 4096


def copy_file(source: Disk, name: str, target: Disk, new_name: str | None = None) -> int:
    """Copy one file durably, replacing an older one in one step. Returns its size.

    Blocks of zeros are allocated and not written: most of a live segment is space reserved ahead.
    """
    new_name = new_name or name
    reading = source.open(name, write=False)
    try:
        writing = target.open(new_name + NEW, create=True)
        try:
            size = _copy(reading, writing)
            writing.sync()
        finally:
            writing.close()
    finally:
        reading.close()
    target.rename(new_name + NEW, new_name)
    target.sync_folder(new_name.rpartition("/")[0])
    return size


def _copy(reading: File, writing: File) -> int:
    size = reading.size()
    writing.allocate(size)
    at = 0
    while block := reading.read_at(at, _BLOCK_BYTES):
        if block.strip(b"\0"):
            writing.write_at(block, at)
        at += len(block)
    return at


def same_bytes(first: Disk, second: Disk, name: str, other_name: str | None = None) -> bool:
    """Whether both hold the same bytes, all of them read."""
    one, other = first.open(name, write=False), second.open(other_name or name, write=False)
    try:
        size = one.size()
        if size != other.size():
            return False
        blocks = range(0, size, _BLOCK_BYTES)
        return all(one.read_at(at, _BLOCK_BYTES) == other.read_at(at, _BLOCK_BYTES) for at in blocks)
    finally:
        one.close()
        other.close()


def same_ends(first: Disk, second: Disk, name: str, other_name: str | None = None) -> bool:
    """Whether both have the same size, beginning and end: enough for files that are known to be whole."""
    one, other = first.open(name, write=False), second.open(other_name or name, write=False)
    try:
        size = one.size()
        ends = (0, max(0, size - _END_BYTES))
        return size == other.size() and all(
            one.read_at(at, _END_BYTES) == other.read_at(at, _END_BYTES) for at in ends
        )
    finally:
        one.close()
        other.close()
