"""Small private files: written whole or not at all, readable by their owner alone."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

_OPEN = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def make_private_folder(folder: Path) -> None:
    """The folder, with mode 0700. What lies in it is nobody else's business."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)


def write_private(path: Path, data: bytes) -> None:
    """Replace the file in one step, durable when this returns: a crash leaves the old one or the new one."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(draft, _OPEN, 0o600)  # never readable by others, not even for a moment
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    if os.name == "nt":  # a folder cannot be opened there, and renames are journalled
        return
    descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
