"""Small files swapped whole, and data files made durable before anything names them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from relaymesh.modes import PRIVATE, Modes, create_file, make_folder

__all__ = ["swap_file", "sync_files", "sync_folder"]

_NEW = ".new"
_FOLDERS_ABOVE = 5  # the day, the run, the table, `tables`, the warehouse: each may be new


def swap_file(path: Path, data: bytes, modes: Modes = PRIVATE) -> None:
    """Write `data` to `path`: a reader finds the old file or the new one, also after a power loss."""
    make_folder(path.parent, modes.folder)
    new = path.with_name(f".{path.name}{_NEW}")
    with os.fdopen(create_file(new, os.O_WRONLY | os.O_TRUNC, modes.file), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    sync_folder(path.parent)


def sync_files(files: Iterable[Path]) -> None:
    """Make files durable that another process (Spark's) has written, with the folders that hold them."""
    folders: set[Path] = set()
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        folders.update(list(path.parents)[:_FOLDERS_ABOVE])
    for folder in folders:
        sync_folder(folder)


def sync_folder(path: Path) -> None:
    if os.name == "nt":
        return  # folders cannot be opened there; the file system journals its names by itself
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
