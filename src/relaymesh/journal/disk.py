"""The Disk port: every byte the journal reads or writes goes through these few methods.

Two implementations share one contract suite: `relaymesh.node.disk.RealDisk` and the
simulated `relaymesh.testing.disk.MemoryDisk`.

Names are paths relative to the data directory, with `/` between the parts; the
directory itself is `""`. A failing call raises `OSError` with its `errno`; the port
retries nothing, because what a failed sync means is for the journal to decide.
"""

from __future__ import annotations

import errno
from typing import Protocol

__all__ = ["Disk", "File", "Lock", "is_full"]


class File(Protocol):
    """One open file. Reads and writes name their offset: there is no cursor to share between threads."""

    def write_at(self, data: bytes, offset: int) -> None:
        """Write all of `data`, looping over short writes. Not durable before `sync`."""

    def read_at(self, offset: int, size: int) -> bytes:
        """Read up to `size` bytes; fewer only where the file ends."""

    def sync(self) -> None:
        """Return once everything written before this call is durable, the file's size included."""

    def allocate(self, size: int) -> None:
        """Make the file at least `size` bytes long, zero-filled, with its blocks reserved where possible."""

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def close(self) -> None: ...


class Lock(Protocol):
    """A held lock. The operating system releases it when the process dies."""

    def note(self, text: bytes) -> None:
        """Replace the lock file's content: a process that is refused reads there which one holds it."""

    def release(self) -> None: ...


class Disk(Protocol):
    """One data directory."""

    def open(self, name: str, *, create: bool = False, write: bool = True) -> File:
        """Open a file; `create` makes it when missing and empties it when not."""

    def exists(self, name: str) -> bool: ...

    def list(self, folder: str) -> list[str]:
        """The sorted names of the files in `folder`, without the folder; a missing folder has none."""

    def modified_ns(self, name: str) -> int:
        """When the bytes of a file last changed, by the wall clock."""

    def rename(self, old: str, new: str) -> None:
        """Atomic; replaces `new`. Durable after `sync_folder` of both folders."""

    def remove(self, name: str) -> None: ...

    def make_folder(self, folder: str) -> None:
        """Make the folder and its parents; no error when it is there."""

    def sync_folder(self, folder: str) -> None:
        """Make the names in `folder` durable: created, renamed and removed ones."""

    def free_bytes(self) -> int:
        """How much this process may still write."""

    def lock(self, name: str) -> Lock:
        """Take the lock, or raise `BlockingIOError` at once when a process (also this one) holds it."""

    def process_id(self) -> int:
        """The running process: a forked child sees another number than its parent."""

    def salt(self) -> int:
        """64 bits that cannot be guessed: they tell a segment's own frames from copies inside payloads."""


def is_full(error: OSError) -> bool:
    """Whether the error says that the disk (or the quota) is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)
