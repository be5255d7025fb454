"""Files that were found good, and their size, time and inode then: `seen.json`.

It only lets a run skip checks. A run in a copied warehouse, where all inodes differ, reads each file once and
records the new ones here. Facts that differ in anything from what is asked, and a file that does not read
back, skip nothing; `relaymesh pipeline verify` does not read it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from relaymesh.pipeline.tables.durable import swap_file

__all__ = ["FILE", "Facts", "Seen"]

FILE = "seen.json"


class Facts(msgspec.Struct, frozen=True, array_like=True):
    """The size, time and inode of a file, and the facts with which it was compared."""

    size: int
    mtime_ns: int
    inode: int
    bytes: int
    rows: int
    sha256: str
    first: int | None
    last: int | None


class Seen:
    """By path, relative to the warehouse. Reads `seen.json` when it is first asked."""

    def __init__(self, root: Path) -> None:
        self._path = root / FILE
        self._stored: dict[str, Facts] | None = None
        self._looked_at: dict[str, Facts] = {}

    def has(self, path: str, facts: Facts) -> bool:
        """Whether the file was found good with exactly these facts."""
        if self._looked_at.get(path) == facts:
            return True
        if self._stored is None:
            self._stored = _load(self._path)
        good = self._stored.get(path) == facts
        if good:
            self._looked_at[path] = facts
        return good

    def add(self, path: str, facts: Facts) -> None:
        self._looked_at[path] = facts

    def keep(self) -> None:
        """Save the files that were checked, if that is new; files that were not checked are forgotten."""
        if self._looked_at != self._stored:
            swap_file(self._path, msgspec.json.encode(self._looked_at))
            self._stored = dict(self._looked_at)


def _load(path: Path) -> dict[str, Facts]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Facts])
    except (OSError, msgspec.DecodeError):
        return {}
