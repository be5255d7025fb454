"""Who may read a warehouse: only its owner, or every user of the machine, if it was shared.

Spark writes files as its umask says. So a run gives the files of the warehouse their modes when it begins,
before each publish and when it ends; in between, a private warehouse is closed by the mode of its folder.
"""

from __future__ import annotations

import os
from pathlib import Path

from relaymesh.modes import PRIVATE, READABLE, Modes, apply_modes, create_file

__all__ = ["modes_of", "settle_modes", "share"]

SHARED = "shared"
"""A file of the warehouse: while it exists, every user may read the tables."""

_OWN = frozenset(
    {
        "bronze",
        "checkpoints",
        "content.json",
        "failed",
        "iceberg",
        "lock",
        "manifest.json",
        "manifests",
        "newest-report",
        "runs",
        "seen.json",
        "sources.json",
        "tables",
        "views.sql",
        SHARED,
    }
)


def share(root: Path, *, shared: bool) -> None:
    """Let every user read the warehouse, or only its owner, from the next `settle_modes` on."""
    if shared:
        os.close(create_file(root / SHARED, os.O_WRONLY))
    else:
        (root / SHARED).unlink(missing_ok=True)


def modes_of(root: Path) -> Modes:
    return READABLE if (root / SHARED).exists() else PRIVATE


def settle_modes(root: Path) -> None:
    """Give everything of the warehouse the modes it has to have. No link is followed."""
    apply_modes(root.resolve(), lambda path: path.partition("/")[0] in _OWN, modes_of(root))
