"""One run at a time in a warehouse."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from relaymesh.errors import DirectoryInUse
from relaymesh.modes import make_folder
from relaymesh.node.disk import RealDisk
from relaymesh.pipeline.tables.sharing import settle_modes, share

__all__ = ["LOCK", "holder", "warehouse_lock"]

LOCK = "lock"


@contextmanager
def warehouse_lock(root: Path, what: str, shared: bool | None = None) -> Iterator[None]:
    """Lock the warehouse, or raise `DirectoryInUse` at once. `shared`: see `sharing.share`; None leaves it.

    The operating system holds the lock: it ends with the process, however that ended, so a lock file that is
    left behind blocks no other process. The text in it is for people.
    """
    make_folder(root)
    try:
        lock = RealDisk(root).lock(LOCK)
    except BlockingIOError:
        raise DirectoryInUse(
            f"another run works in {root} ({holder(root) or 'it does not say who'})",
            hint="wait for it, or stop it; runs share nothing but the published tables",
        ) from None
    try:
        lock.note(f"pid {os.getpid()}\nhost {socket.gethostname()}\nrun {what}\n".encode())
        if shared is not None:
            share(root, shared=shared)
        settle_modes(root)
        yield
    finally:
        settle_modes(root)
        lock.release()


def holder(root: Path) -> str | None:
    """The process named in the lock file, in one line. Only the lock itself shows whether it still runs."""
    try:
        return ", ".join((root / LOCK).read_text().splitlines()) or None
    except OSError:
        return None


def is_locked(root: Path) -> bool:
    """Whether a run works there now."""
    if not (root / LOCK).exists():
        return False
    try:
        RealDisk(root).lock(LOCK).release()
    except BlockingIOError:
        return True
    return False
