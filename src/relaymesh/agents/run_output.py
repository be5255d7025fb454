"""The output of attempts that failed; only that of the newest ones is kept."""

from __future__ import annotations

import shutil
from pathlib import Path

__all__ = ["KEPT_MAX", "RunOutput"]

KEPT_MAX = 100


class RunOutput:
    """A folder with a folder for each attempt, which its adapter fills."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def ended(self, run: str, *, keep: bool) -> None:
        """The attempt has ended. Remove its output, or keep it until there are too many."""
        if not keep:
            shutil.rmtree(self.folder / run, ignore_errors=True)
            return
        found = sorted(self.folder.iterdir(), key=_age, reverse=True)
        for old in found[KEPT_MAX:]:
            shutil.rmtree(old, ignore_errors=True)


def _age(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0
