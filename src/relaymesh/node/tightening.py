"""Directories that earlier versions made for everybody to read: closed at the next start."""

from __future__ import annotations

import re
from pathlib import Path

from relaymesh.journal.layout import is_own_name
from relaymesh.modes import tighten

__all__ = ["tighten_directory"]

_STORE = re.compile(r"store\.db(?:\.rebuild)?(?:-wal|-shm|-journal)?")
_FOLDERS = frozenset({"server", "tables"})
"""The server's and the pipeline's own: they look after what lies in them."""


def tighten_directory(path: Path) -> None:
    """Take the rights of other users from a data directory or a mirror: from our own names in it alone."""
    tighten(path.resolve(), _is_own)  # the caller may have named it by a link; inside, none is followed


def _is_own(path: str) -> bool:
    return is_own_name(path) or path in _FOLDERS or _STORE.fullmatch(path) is not None
