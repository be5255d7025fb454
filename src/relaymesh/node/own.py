"""The directories of a node: created for their owner only, and closed to other users if an earlier version
left them open.
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
_FOLDERS = frozenset({"server", "supervisor", "tables"})
"""Belong to the server, to the supervisor and to the pipeline, which set the modes of the files in them."""


def own_directory(path: Path, settings: MeshSettings) -> tuple[RealDisk, Mirror | None]:
    """The data directory and its mirror, if any. RelayMesh's own files in both are closed to other users."""
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
    # The caller may have named it by a link; links inside it are not followed.
    apply_modes(path.resolve(), _is_own)


def _is_own(path: str) -> bool:
    return is_own_name(path) or path in _FOLDERS or _STORE.fullmatch(path) is not None
