"""The directories that a node works in: made for their owner alone, and closed if an earlier version left
them open to other users.
"""

from __future__ import annotations

import re
from pathlib import Path

from relaymesh.errors import DirectoryError
from relaymesh.journal import Mirror
from relaymesh.journal.layout import is_own_name
from relaymesh.kernel.bounds import shown
from relaymesh.modes import apply_modes, make_folder
from relaymesh.node.disk import RealDisk
from relaymesh.node.mirroring import mirror_of
from relaymesh.node.settings import MeshSettings

__all__ = ["own_directory"]

_STORE = re.compile(r"store\.db(?:\.rebuild)?(?:-wal|-shm|-journal)?")
_FOLDERS = frozenset({"server", "tables"})
"""The server's and the pipeline's own: they look after what lies in them."""


def own_directory(path: Path, settings: MeshSettings) -> tuple[RealDisk, Mirror | None]:
    """The data directory, and its mirror if it has one; our own names in both are closed to others."""
    try:
        make_folder(path)
        disk = RealDisk(path)
        mirror = mirror_of(path, disk, settings)
        _close_to_others(path)
        if mirror is not None:
            _close_to_others(Path(mirror.name))
    except OSError as error:
        raise DirectoryError(
            f"the directory {shown(str(path))} cannot be used: {error.strerror or error}",
            hint="name a directory that this user may read and write, on a disk that is there",
        ) from error
    return disk, mirror


def _close_to_others(path: Path) -> None:
    apply_modes(path.resolve(), _is_own)  # the caller may have named it by a link; inside, none is followed


def _is_own(path: str) -> bool:
    return is_own_name(path) or path in _FOLDERS or _STORE.fullmatch(path) is not None
