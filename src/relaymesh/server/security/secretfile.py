"""Small private files: written atomically, readable by their owner only."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path

from relaymesh.modes import apply_modes, create_file, make_folder

_OPEN = os.O_WRONLY | os.O_EXCL
_DRAFT = r"\..+\.[0-9a-f]{16}"
_OWN = re.compile(
    rf"tokens\.(json|lock)|local\.token|(address|reliability)\.json|audit(\.[0-9]+)?\.jsonl|{_DRAFT}"
)


def make_private_folder(folder: Path) -> None:
    """The folder, with mode 0700; files of the server's own names in it lose all rights of others."""
    make_folder(folder)
    apply_modes(folder, lambda name: _OWN.fullmatch(name) is not None, ours=True)


def write_private(path: Path, data: bytes) -> None:
    """Replace the file in one step, durable when this returns: a crash leaves the old one or the new one."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(
            create_file(draft, _OPEN), "wb"
        ) as file:  # never readable by others, not even for a moment
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
